"""The names that one stream of a Mastodon instance has: on the websocket, as an event stream and as a REST timeline."""

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Channel:
    """Paths are relative to /api/v1. Parameters are (name, value) pairs."""

    subscription: tuple[tuple[str, str], ...]
    events_path: str
    events_parameters: tuple[tuple[str, str], ...]
    timeline_path: str
    timeline_parameters: tuple[tuple[str, str], ...] = ()


def channel_of(stream: str) -> Channel:
    """`public`, `public:local`, `hashtag:NAME` or `list:ID`. Raises ValueError for any other."""
    kind, _, name = stream.partition(":")
    if stream == "public":
        return Channel((("stream", "public"),), "/streaming/public", (), "/timelines/public")
    if stream == "public:local":
        local = (("local", "true"),)
        return Channel((("stream", stream),), "/streaming/public/local", (), "/timelines/public", local)
    if kind == "hashtag" and (tag := name.removeprefix("#")):
        tagged = (("tag", tag),)
        return Channel((("stream", kind), *tagged), "/streaming/hashtag", tagged, f"/timelines/tag/{quote(tag, '')}")
    if kind == "list" and name:
        listed = (("list", name),)
        return Channel((("stream", kind), *listed), "/streaming/list", listed, f"/timelines/list/{quote(name, '')}")
    raise ValueError(f"{stream!r} is no stream: public, public:local, hashtag:NAME or list:ID")
