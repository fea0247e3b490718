"""The JSON object of a record -> a post, its removal, or a change of an account. docs/feed.md is its specification.

Knows no headers: a null value, and everything that is written, is in ingest/record.py.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ingest.payload import Refused
from ingest.post import AccountChange, Author, Post, Removal, account_of
from ingest.shape import (
    AccountChangeJson,
    PostJson,
    count_unknown,
    is_account,
    is_language,
    is_source,
    is_web_url,
    shortened,
)
from ingest.shape import post_id as post_id_of
from ingest.versions import time_us, version_us

MAX_TEXT = 20_000  # code points; the rest of a longer text is not searchable
ACCOUNT_KEY = "account:"  # before the keys of accounts, so no post's id may begin with it
# No post was written before there were networks, and 9999 is how databases write "never". What lies between is a clock
# that is wrong or a lie, which Post.clock tells.
FIRST_US, END_US = time_us("1970-01-01T00:00:00Z"), time_us("9999-01-01T00:00:00Z")

T = TypeVar("T")
Shape = TypeVar("Shape", bound=BaseModel)

_INVISIBLE = "\u00ad\u061c\u180e\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"


def read_object(
    key: bytes | None, parsed: dict[str, Any], event_us: int, received_ms: int, dropped: Counter[str]
) -> Post | Removal | AccountChange:
    """`event_us` is the record's own time. Raises Refused."""
    if (key or b"").startswith(ACCOUNT_KEY.encode()) or ("account" in parsed and "id" not in parsed):
        return _account_change(key, parsed, event_us, dropped)
    return _version_of_a_post(key, parsed, event_us, received_ms, dropped)


def readable_key(key: bytes) -> str:
    """The post id that the key is. Raises Refused."""
    try:
        return post_id_of(key.decode("utf-8"))
    except ValueError:
        raise Refused("key", "not an id") from None


def _account_change(key: bytes | None, parsed: dict[str, Any], event_us: int, dropped: Counter[str]) -> AccountChange:
    """What takes posts away is not refused for its version; what brings them back is."""
    fields = _shaped(AccountChangeJson, parsed)
    source, author_id = fields.account.source, fields.account.id
    if key and key != f"{ACCOUNT_KEY}{source}:{parsed['account']['id']}".encode():
        raise Refused("key", "differs from the account")
    version = event_us
    if parsed.get("version") is not None:
        try:
            version = _read("version", version_us, parsed["version"])
        except Refused:
            if fields.state == "active":
                raise
            dropped["version"] += 1
    count_unknown(AccountChangeJson, parsed, dropped)
    return AccountChange(source, author_id, fields.state, version, fields.reason or "")


def _version_of_a_post(
    key: bytes | None, parsed: dict[str, Any], event_us: int, received_ms: int, dropped: Counter[str]
) -> Post | Removal:
    """What takes a post away is looked at first, so that no other fault of the record can keep the post findable."""
    post_id = _checked_id(key, parsed.get("id"))
    if parsed.get("deleted") not in (None, False):
        return _removal(post_id, parsed, event_us, "deleted")
    if not _may_index(parsed.get("consent")):
        return _removal(post_id, parsed, event_us, "consent")
    fields = _shaped(PostJson, parsed)
    created_us = _read("created_at", _possible_us, fields.created_at)
    edited_us = None if fields.edited_at is None else _read("edited_at", _possible_us, fields.edited_at)
    version = created_us if edited_us is None else edited_us
    if parsed.get("version") is not None:
        version = _read("version", version_us, parsed["version"])
    count_unknown(PostJson, parsed, dropped)
    text = "" if is_invisible(fields.text) else fields.text
    if not text and fields.repost_of is None:
        return Removal(post_id, version, "empty", if_newer=True)
    if len(text) > MAX_TEXT:
        dropped["text"] += 1
    author, counts = fields.author, fields.engagement
    if fields.received_at is not None:
        received_ms = _earlier_ms(fields.received_at, received_ms, dropped)
    source = _kept("source", fields.source, is_source, dropped) or source_of(post_id)
    return Post(
        id=post_id,
        source=source,
        version_us=version,
        text=shortened(text, MAX_TEXT),
        created_ms=created_us // 1000,
        received_ms=received_ms,
        author=Author(author.id or "", author.handle or "", author.name or ""),
        lang=_kept("lang", fields.lang, is_language, dropped),
        url=_kept("url", fields.url, is_web_url, dropped),
        edited_ms=None if edited_us is None else edited_us // 1000,
        reply_to=fields.reply_to,
        quote_of=fields.quote_of,
        repost_of=fields.repost_of,
        labels=tuple(fields.labels),
        likes=counts.likes or 0,
        reposts=counts.reposts or 0,
        replies=counts.replies or 0,
        views=counts.views,
        conversation=fields.conversation,
        account=_kept("account", fields.account, is_account, dropped)
        or (account_of(source, author.id) if author.id else ""),
    )


def source_of(post_id: str) -> str:
    before = post_id.partition(":")[0] if ":" in post_id else ""
    return before if is_source(before) else ""


def is_invisible(text: str) -> bool:
    return not text.strip().strip(_INVISIBLE).strip()


def _shaped(shape: type[Shape], parsed: Mapping[str, Any]) -> Shape:
    """null is the same as absent. Raises Refused, with the field and its fault."""
    try:
        return shape.model_validate({name: given for name, given in parsed.items() if given is not None})
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise Refused("field", f"{'.'.join(map(str, fault['loc']))}: {fault['type']}") from None


def _checked_id(key: bytes | None, given: Any) -> str:
    """A number is refused: above 2**53 somebody has rounded it already."""
    if not isinstance(given, str):
        raise Refused("id", "missing" if given is None else "not a string")
    post_id = _read("id", post_id_of, given)
    if post_id.startswith(ACCOUNT_KEY):
        raise Refused("id", "begins as the key of an account")
    if key and readable_key(key) != post_id:
        raise Refused("key", "differs from the id")
    return post_id


def _read(name: str, read: Callable[[str], T], given: Any) -> T:
    if not isinstance(given, str):
        raise Refused(name, "not a string")
    try:
        return read(given)
    except ValueError:
        raise Refused(name) from None


def _possible_us(text: str) -> int:
    us = time_us(text)
    if not FIRST_US <= us < END_US:
        raise ValueError("before 1970, or the year 9999")
    return us


def _earlier_ms(received_at: str, received_ms: int, dropped: Counter[str]) -> int:
    """When a post that is published again was first received; never later than it came."""
    try:
        return min(_possible_us(received_at) // 1000, received_ms)
    except ValueError:
        dropped["received_at"] += 1
        return received_ms


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
