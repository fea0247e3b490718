"""One Kafka record of the topic <-> a post or its removal. docs/feed.md is its specification. Knows no broker."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pydantic import ValidationError

from ingest.payload import Refused, parse
from ingest.post import Author, Malformed, Post, Record, Removal
from ingest.shape import PostJson, count_unknown, shortened
from ingest.shape import post_id as post_id_of
from ingest.versions import time_text, time_us, version_us

MAX_TEXT = 20_000  # code points; the rest of a longer text is not searchable
MAX_URL = 2048

Headers = Sequence[tuple[str, bytes | None]]
T = TypeVar("T")

_LANG = re.compile(r"[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*", re.ASCII)
_SOURCE = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,39}", re.ASCII)
_URL_BREAKS = re.compile(r"[\s\x00-\x20\x7f-\x9f\"<>`{}|\\^\u202a-\u202e\u2066-\u2069]")
_INVISIBLE = "\u00ad\u061c\u180e\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"


def decode(
    key: bytes | None,
    value: bytes | None,
    headers: Headers = (),
    *,
    timestamp_ms: int,
    received_ms: int,
    dropped: Counter[str] | None = None,
) -> Record:
    """Never raises on what comes from the topic. `dropped` counts, by field, what was left out of accepted records.

    An object with `"deleted": true` is a deletion too, for producers that cannot send a null value.
    """
    left_out: Counter[str] = Counter()
    event_us = (timestamp_ms if timestamp_ms > 0 else received_ms) * 1000
    try:
        if value is None:
            record: Record = _tombstone(key, headers, event_us, left_out)
        else:
            record = _version_of_a_post(key, parse(value), event_us, received_ms, left_out)
    except Refused as refused:
        return Malformed(refused.reason, refused.detail)
    if dropped is not None:
        dropped.update(left_out)
    return record


def encode(post: Post) -> dict[str, Any]:
    """The topic object of a post; `decode` gives the same post back."""
    return {
        "id": post.id,
        "source": post.source,
        "version": time_text(post.version_us),
        "author": {"id": post.author.id, "handle": post.author.handle, "name": post.author.name},
        "text": post.text,
        "lang": post.lang,
        "url": post.url,
        "created_at": time_text(post.created_ms * 1000),
        "edited_at": None if post.edited_ms is None else time_text(post.edited_ms * 1000),
        "reply_to": post.reply_to,
        "quote_of": post.quote_of,
        "repost_of": post.repost_of,
        "labels": list(post.labels),
        "consent": {"indexable": post.indexable},
        "engagement": {
            "likes": post.likes, "reposts": post.reposts, "replies": post.replies, "views": post.views,
        },
    }  # fmt: skip


def _tombstone(key: bytes | None, headers: Headers, event_us: int, dropped: Counter[str]) -> Removal:
    """A deletion is never refused for its version: one that cannot be read counts as none."""
    if not key:
        raise Refused("key", "a null value needs a key")
    post_id = _readable_key(key)
    versions = [content for name, content in headers if name in ("version", "ver") and content]
    if not versions:
        return Removal(post_id, event_us)
    try:
        return Removal(post_id, version_us(versions[-1].decode("ascii")), if_newer=True)
    except ValueError:
        dropped["version"] += 1
        return Removal(post_id, event_us)


def _version_of_a_post(
    key: bytes | None, parsed: dict[str, Any], event_us: int, received_ms: int, dropped: Counter[str]
) -> Post | Removal:
    """What takes a post away is looked at first, so that no other fault of the record can keep the post findable."""
    post_id = _checked_id(key, parsed.get("id"))
    if parsed.get("deleted") not in (None, False):
        return _removal(post_id, parsed, event_us, "deleted")
    if not _may_index(parsed.get("consent")):
        return _removal(post_id, parsed, event_us, "consent")
    try:
        fields = PostJson.model_validate({name: given for name, given in parsed.items() if given is not None})
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise Refused("field", f"{'.'.join(map(str, fault['loc']))}: {fault['type']}") from None
    created_us = _read("created_at", time_us, fields.created_at)
    edited_us = None if fields.edited_at is None else _read("edited_at", time_us, fields.edited_at)
    version = created_us if edited_us is None else edited_us
    if parsed.get("version") is not None:
        version = _read("version", version_us, parsed["version"])
    count_unknown(parsed, dropped)
    if not fields.text.strip().strip(_INVISIBLE).strip():
        return Removal(post_id, version, "empty", if_newer=True)
    return _post(post_id, version, fields, created_us // 1000, edited_us, received_ms, dropped)


def _post(
    post_id: str,
    version: int,
    fields: PostJson,
    created_ms: int,
    edited_us: int | None,
    received_ms: int,
    dropped: Counter[str],
) -> Post:
    author, counts = fields.author, fields.engagement
    if len(fields.text) > MAX_TEXT:
        dropped["text"] += 1
    return Post(
        id=post_id,
        source=_kept("source", fields.source, _is_source, dropped) or _source_of(post_id),
        version_us=version,
        text=shortened(fields.text, MAX_TEXT),
        created_ms=created_ms,
        received_ms=received_ms,
        author=Author(author.id or "", author.handle or "", author.name or ""),
        lang=_kept("lang", fields.lang, _is_language, dropped),
        url=_kept("url", fields.url, _is_web_url, dropped),
        edited_ms=None if edited_us is None else edited_us // 1000,
        reply_to=fields.reply_to,
        quote_of=fields.quote_of,
        repost_of=fields.repost_of,
        labels=tuple(fields.labels),
        likes=counts.likes or 0,
        reposts=counts.reposts or 0,
        replies=counts.replies or 0,
        views=counts.views,
    )


def _readable_key(key: bytes) -> str:
    try:
        return post_id_of(key.decode("utf-8"))
    except ValueError:
        raise Refused("key", "not an id") from None


def _checked_id(key: bytes | None, given: Any) -> str:
    """A number is refused: above 2**53 somebody has rounded it already."""
    if not isinstance(given, str):
        raise Refused("id", "missing" if given is None else "not a string")
    post_id = _read("id", post_id_of, given)
    if key and _readable_key(key) != post_id:
        raise Refused("key", "differs from the id")
    return post_id


def _read(name: str, read: Callable[[str], T], given: Any) -> T:
    if not isinstance(given, str):
        raise Refused(name, "not a string")
    try:
        return read(given)
    except ValueError:
        raise Refused(name) from None


def _removal(post_id: str, parsed: Mapping[str, Any], event_us: int, reason: str) -> Removal:
    """A stated version takes its place in the order of versions; a guessed one removes whatever is there.

    The guess is not before the record's own time: an edit that it has overtaken must not bring the post back.
    """
    guess_us = event_us
    for name, read in (("version", version_us), ("edited_at", time_us), ("created_at", time_us)):
        if parsed.get(name) is not None:
            try:
                stated_us = _read(name, read, parsed[name])
            except Refused:
                continue
            if name == "version":
                return Removal(post_id, stated_us, reason, if_newer=True)
            guess_us = max(guess_us, stated_us)
    return Removal(post_id, guess_us, reason)


def _may_index(consent: Any) -> bool:
    """Absent or null is consent; anything else that is not plainly yes is a no."""
    if consent is None:
        return True
    return isinstance(consent, dict) and (consent.get("indexable") is None or consent["indexable"] is True)


def _kept(name: str, given: str | None, is_good: Callable[[str], bool], dropped: Counter[str]) -> str:
    if not given:
        return ""
    if is_good(given):
        return given
    dropped[name] += 1
    return ""


def _source_of(post_id: str) -> str:
    before = post_id.partition(":")[0] if ":" in post_id else ""
    return before if _is_source(before) else ""


def _is_source(source: str) -> bool:
    return _SOURCE.fullmatch(source) is not None


def _is_language(tag: str) -> bool:
    return len(tag) <= 35 and _LANG.fullmatch(tag) is not None


def _is_web_url(url: str) -> bool:
    """It becomes a link on a page: only http and https, with a host, and nothing that could break out of it."""
    if len(url) > MAX_URL or _URL_BREAKS.search(url):
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False
