"""Fields of a Bluesky record, the part of an event that its author wrote. Knows no event."""

from collections.abc import Mapping
from typing import Any

from ingest.payload import Refused
from ingest.shape import MAX_ID_BYTES
from ingest.sources.atproto import AtUri, is_language, read_at_uri

SOURCE = "bluesky"
POST = "app.bsky.feed.post"
NO_UNAUTHENTICATED = "!no-unauthenticated"
OPTED_OUT = "no-unauthenticated"  # the same as an account's reason
MAX_LANGUAGES = 20


def post_id(uri: AtUri | str) -> str:
    return f"{SOURCE}:{uri}"


def reference(given: Any, reason: str, name: str) -> str | None:
    inner = given.get(name) if isinstance(given, dict) else None
    uri = strong_reference(inner, reason)
    return None if uri is None else post_id(uri)


def quoted_post(embed: Any) -> str | None:
    """A quoted feed, list or starter pack is no post."""
    given = embed.get("record") if isinstance(embed, dict) else None
    if isinstance(given, dict) and "uri" not in given:  # a quote with media wraps once more
        given = given.get("record")
    uri = strong_reference(given, "quote")
    return post_id(uri) if uri is not None and uri.collection == POST else None


def strong_reference(given: Any, reason: str) -> AtUri | None:
    """Of a strong reference `{"uri", "cid"}`; None when there is none. Raises Refused, as Bluesky does not show it."""
    if not isinstance(given, dict):
        return None
    try:
        uri = read_at_uri(given.get("uri"))
    except ValueError:
        raise Refused(reason, "not an at-uri") from None
    if not uri.record_key or len(post_id(uri).encode()) > MAX_ID_BYTES:
        raise Refused(reason, "not a record")
    return uri


def self_labels(record: Mapping[str, Any]) -> tuple[str, ...]:
    given = record.get("labels")
    values = given.get("values") if isinstance(given, dict) else None
    listed = [entry.get("val") for entry in values if isinstance(entry, dict)] if isinstance(values, list) else []
    return tuple(dict.fromkeys(label for label in listed if isinstance(label, str) and 0 < len(label) <= 128))


def spoken_languages(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Those that name a language; private-use tags (`x-...`) do not. Over 35 characters only the language is kept."""
    given = record.get("langs")
    tags = [tag for tag in given[:MAX_LANGUAGES] if is_language(tag)] if isinstance(given, list) else []
    return tuple(tag if len(tag) <= 35 else primary(tag) for tag in tags if primary(tag) not in ("i", "x"))


def primary(tag: str) -> str:
    return tag.partition("-")[0].lower()
