"""What a Mastodon status says, as one text: its warning, its words, what its media show, what its poll asks.

The form, line by line: `CW: warning` and an empty line; the text of `content`; `[image: ...]`, `[video: ...]`,
`[audio: ...]` or `[media: ...]` for each description; `[poll: one | two]`. Custom emoji stay as `:shortcode:`. The card
is the linked site's words and is left out; what the status quotes is a post of its own.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ingest.payload import Refused
from ingest.sources.html_text import text_of

MAX_MEDIA = 20
MAX_OPTIONS = 20

_KINDS = {"image": "image", "video": "video", "gifv": "video", "audio": "audio"}
_SPACES = re.compile(r"\s+")
_IS_WARNING = re.compile(r"cw\b", re.IGNORECASE)


def full_text(status: Mapping[str, Any]) -> str:
    """Raises Refused when `content` is no string; null is empty."""
    content = status.get("content")
    if content is not None and not isinstance(content, str):
        raise Refused("content", "not a string")
    lines = [text_of(content or ""), *_media(status.get("media_attachments")), _poll(status.get("poll"))]
    text = "\n".join(line for line in lines if line)
    warning = _line(status.get("spoiler_text"))
    if not warning:
        return text
    if not _IS_WARNING.match(warning):
        warning = f"CW: {warning}"
    return f"{warning}\n\n{text}" if text else warning


def _media(attachments: Any) -> Iterator[str]:
    for attachment in _objects(attachments, MAX_MEDIA):
        if line := _line(attachment.get("description")):
            kind = attachment.get("type")
            yield f"[{_KINDS.get(kind, 'media') if isinstance(kind, str) else 'media'}: {line}]"


def _poll(poll: Any) -> str:
    options = _objects(poll.get("options"), MAX_OPTIONS) if isinstance(poll, dict) else ()
    titles = [title for option in options if (title := _line(option.get("title")))]
    return f"[poll: {' | '.join(titles)}]" if titles else ""


def _line(given: Any) -> str:
    return _SPACES.sub(" ", given).strip() if isinstance(given, str) else ""


def _objects(given: Any, most: int) -> Iterator[dict[str, Any]]:
    if isinstance(given, list):
        yield from (entry for entry in given[:most] if isinstance(entry, dict))
