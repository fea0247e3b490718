"""One Kafka record of the topic <-> a post, its removal, or a change of an account. docs/feed.md is its specification.

Knows no broker.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ingest.payload import Refused, parse
from ingest.post import AccountChange, Malformed, Post, Record, Removal
from ingest.shape import is_reason
from ingest.topic_object import ACCOUNT_KEY, read_object, readable_key, source_of
from ingest.versions import time_text, time_us, version_us

Headers = Sequence[tuple[str, bytes | None]]

_LAST_US = time_us("9999-12-31T23:59:59.999999Z")


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

    A post that does not say when it was received was received when its record was written, so that one which waited in
    a backlog is not taken for one that is dated back; when it came, if the record has no time or one in the future.
    """
    left_out: Counter[str] = Counter()
    event_us = min((timestamp_ms if timestamp_ms > 0 else received_ms) * 1000, _LAST_US)
    arrived_ms = timestamp_ms if 0 < timestamp_ms <= received_ms else received_ms
    try:
        if value is None:
            record: Record = _tombstone(key, headers, event_us, left_out)
        else:
            record = read_object(key, parse(value), event_us, arrived_ms, left_out)
    except Refused as refused:
        return Malformed(refused.reason, refused.detail)
    if dropped is not None:
        dropped.update(left_out)
    return record


def encode(record: Post | Removal | AccountChange) -> tuple[bytes, bytes | None, list[tuple[str, bytes | None]]]:
    """Key, value and headers, from which `decode` makes the same again.

    The place in the order of a removal that states no version is the record's own time, which goes with them.
    """
    headers: list[tuple[str, bytes | None]] = [("v", b"1")]
    if isinstance(record, Post):
        key, value = record.id, json_bytes(_post_object(record))
        headers += [("op", b"upsert"), ("source", record.source.encode()), _version(record)]
    elif isinstance(record, AccountChange):
        key = f"{ACCOUNT_KEY}{record.source}:{record.author_id}"
        value = json_bytes(_account_object(record))
        headers += [("op", b"account"), ("source", record.source.encode()), _version(record)]
    else:
        key, value = record.post_id, None
        headers += [("op", b"delete"), ("source", source_of(key).encode()), ("reason", record.reason.encode())]
        headers += [_version(record)] if record.if_newer else []
    return key.encode("utf-8", "surrogatepass"), value, headers


def json_bytes(value: Mapping[str, Any]) -> bytes:
    """Raises Refused for what is not JSON."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # a lone surrogate: escaped, so that the reader's rule for it applies
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except (ValueError, TypeError, RecursionError):
        raise Refused("json") from None


def _version(record: Post | Removal | AccountChange) -> tuple[str, bytes]:
    return "version", time_text(record.version_us).encode()


def _post_object(post: Post) -> dict[str, Any]:
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
        "conversation": post.conversation,
        "received_at": time_text(post.received_ms * 1000),
        # The author's id may be a pseudonym by now (a post from the archive), which is no account.
        "account": post.account or None,
        "labels": list(post.labels),
        "consent": {"indexable": post.indexable},
        "engagement": {
            "likes": post.likes, "reposts": post.reposts, "replies": post.replies, "views": post.views,
        },
    }  # fmt: skip


def _account_object(change: AccountChange) -> dict[str, Any]:
    return {
        "account": {"source": change.source, "id": change.author_id},
        "state": change.state,
        "version": time_text(change.version_us),
        "reason": change.reason,
    }


def _tombstone(key: bytes | None, headers: Headers, event_us: int, dropped: Counter[str]) -> Removal:
    """A deletion is never refused for its headers: what cannot be read counts as absent."""
    if not key:
        raise Refused("key", "a null value needs a key")
    if key.startswith(ACCOUNT_KEY.encode()):
        raise Refused("account", "a null value says nothing of it: send active, hidden or deleted")
    post_id = readable_key(key)
    reason = _header(headers, ("reason",), _reason, dropped) or "deleted"
    version = _header(headers, ("version", "ver"), version_us, dropped)
    if version is None:
        return Removal(post_id, event_us, reason)
    return Removal(post_id, version, reason, if_newer=True)


def _header(headers: Headers, names: tuple[str, ...], read: Callable[[str], Any], dropped: Counter[str]) -> Any:
    """The last one that says anything; None if there is none, or it cannot be read."""
    given = [content for name, content in headers if name in names and content]
    if not given:
        return None
    try:
        return read(given[-1].decode("ascii"))
    except ValueError:
        dropped[names[0]] += 1
        return None


def _reason(label: str) -> str:
    if not is_reason(label):
        raise ValueError("not a label")
    return label
