"""What is kept of each feed between two readings, as one cursor for all of them. Knows no network."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ingest.sources.rss import Sighting


@dataclass(frozen=True, slots=True)
class FeedState:
    """`etag`, `modified`: the server's, to be asked with; `at`: where the feed has moved to for good, "" if nowhere."""

    etag: str = ""
    modified: str = ""
    at: str = ""
    seen: Mapping[str, Sighting] = field(default_factory=dict, repr=False)


def dump(states: Mapping[str, FeedState]) -> str:
    """JSON: by the url of the feed, what of it is not empty; entries as `[content, version_us, updated_us]`."""
    feeds = {
        url: {
            "etag": state.etag,
            "modified": state.modified,
            "at": state.at,
            "seen": {key: [sight.content, sight.version_us, sight.updated_us] for key, sight in state.seen.items()},
        }
        for url, state in states.items()
    }
    return json.dumps(feeds, separators=(",", ":"))


def load(cursor: str | None) -> dict[str, FeedState]:
    """A cursor, or a part of one, that cannot be read is none: that feed is read as if for the first time, which writes
    its entries once more as the versions that they were."""
    try:
        feeds = json.loads(cursor or "{}")
    except ValueError:
        return {}
    if not isinstance(feeds, dict):
        return {}
    return {url: state for url, given in feeds.items() if (state := _state(given)) is not None}


def _state(given: Any) -> FeedState | None:
    if not isinstance(given, dict) or not isinstance(given.get("seen"), dict):
        return None
    texts: dict[str, Any] = {name: given.get(name) for name in ("etag", "modified", "at")}
    try:
        seen = {key: Sighting(*entry) for key, entry in given["seen"].items()}
    except TypeError:
        return None
    is_whole = all(isinstance(text, str) for text in texts.values()) and all(map(_is_whole, seen.values()))
    return FeedState(**texts, seen=seen) if is_whole else None


def _is_whole(sight: Sighting) -> bool:
    numbers = (sight.version_us, 0 if sight.updated_us is None else sight.updated_us)
    return isinstance(sight.content, str) and all(type(number) is int for number in numbers)
