"""The text of an X post as people see it: whole, links written out, HTML entities decoded. Knows no ids."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ingest.payload import Refused
from ingest.sources.x_ids import either

_ENTITY = re.compile(r"&(amp|lt|gt);")  # X escapes these three and no others
MAX_URLS = 200  # a post of 25,000 characters has room for more than anybody writes
_CHARACTERS = {"amp": "&", "lt": "<", "gt": ">"}
_MEDIA_URL = re.compile(r"https?://(?:www\.)?(?:twitter|x)\.com/\w+/status/\d+/(?:photo|video)/\d+", re.ASCII)
_WEB_URL = re.compile(r"(?i:https?)://[^\s<>\"\x00-\x20\x7f-\x9f]{1,2048}")
_SHORT_URL = re.compile(r"https?://\S{1,200}")
_SHORT_URL_GOES_ON = re.compile(r"[A-Za-z0-9]")


def text_of(post: Mapping[str, Any]) -> str:
    """`note_tweet` (in the schema 2.167 `note_post`) holds the whole of a text that is cut. Raises Refused."""
    note = either(post, "note_tweet", "note_post")
    if isinstance(note, Mapping) and isinstance(note.get("text"), str) and note["text"]:
        return visible(note["text"], note.get("entities"))
    if not isinstance(post.get("text"), str):
        raise Refused("field", "text: missing" if post.get("text") is None else "text: not a string")
    return visible(post["text"], post.get("entities"))


def visible(text: str, entities: Any) -> str:
    """`entities.urls` says what stands behind each t.co link. What it says wrongly is left as it is.

    A post's own pictures are links at its end, before the link of a quoted post; they go.
    """
    replaced = sorted(_replaced(text, entities))
    tail = len(text)
    for start, stop, _ in reversed(replaced):
        if text[stop:tail].strip():
            break
        tail = start
    pieces, end = [], 0
    for start, stop, written in replaced:
        if start < end:
            continue
        is_picture = not written and start >= tail
        before = _decoded(text[end:start])
        pieces += [before.rstrip()] if is_picture else [before, written or text[start:stop]]
        end = stop
    return "".join([*pieces, _decoded(text[end:])])


def _decoded(text: str) -> str:
    """Once: what was typed as "&lt;" comes as "&amp;lt;"."""
    return _ENTITY.sub(lambda found: _CHARACTERS[found[1]], text)


def _replaced(text: str, entities: Any) -> set[tuple[int, int, str]]:
    """(start, stop, what to write) by code points; "" for a picture or video of the post itself.

    Four pictures of one post are four entities over the same link.
    """
    urls = entities.get("urls") if isinstance(entities, Mapping) else None
    found: set[tuple[int, int, str]] = set()
    for entity in urls[:MAX_URLS] if isinstance(urls, list) else ():
        if not isinstance(entity, Mapping):
            continue
        short, written = entity.get("url"), _written(entity)
        if isinstance(short, str) and _SHORT_URL.fullmatch(short) and written is not None:
            found |= {(start, start + len(short), written) for start in _places(text, short, entity.get("start"))}
    return found


def _written(entity: Mapping[str, Any]) -> str | None:
    url = entity.get("expanded_url")
    if not isinstance(url, str) or not _WEB_URL.fullmatch(url):
        return None
    return "" if "media_key" in entity or _MEDIA_URL.fullmatch(url) else url


def _places(text: str, short: str, start: Any) -> Iterator[int]:
    """Offsets count code points, of some clients UTF-16 units; where they are wrong the link is looked for."""
    if isinstance(start, int) and not isinstance(start, bool) and 0 <= start < 2 * len(text):
        if text.startswith(short, start):
            yield start
            return
        before = text.encode("utf-16-le", "surrogatepass")[: 2 * start].decode("utf-16-le", "replace")
        if text.startswith(short, len(before)):
            yield len(before)
            return
    start = text.find(short)
    while start >= 0:
        if not _SHORT_URL_GOES_ON.match(text, start + len(short)):
            yield start
        start = text.find(short, start + len(short))
