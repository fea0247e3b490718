"""A file of posts, one JSON object a line -> events that can be published. Knows no broker and no clock.

A line is a topic object (docs/feed.md), a deletion `{"id": ..., "deleted": true, "at": ...}`, or an event
`{"at": ..., "id": ..., "post": topic object or null}`, null for a deletion.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ingest.payload import Refused, parse
from ingest.versions import time_text, time_us


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a post: `value` is a topic object, or `{"id", "deleted": true, "version"}`."""

    number: int  # of the line or item, from 1
    at_us: int | None  # None: it does not say when
    value: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class BadLine:
    number: int
    reason: str


def read_events(lines: Iterable[bytes | Mapping[str, Any]]) -> Iterator[Event | BadLine]:
    """Blank lines are skipped, but counted."""
    for number, line in enumerate(lines, 1):
        if isinstance(line, bytes) and not line.strip():
            continue
        try:
            given = parse(line) if isinstance(line, bytes) else line
            yield _event(number, given)
        except Refused as refused:
            yield BadLine(number, str(refused))


def _event(number: int, given: Mapping[str, Any]) -> Event:
    at_us = _time(given, "at")
    if "post" not in given:
        post = {name: content for name, content in given.items() if name != "at"}
    elif given["post"] is None:
        post = {"id": given.get("id"), "deleted": True}
    else:
        post = given["post"]
        if not isinstance(post, Mapping):
            raise Refused("post", "not an object")
        if given.get("id", post.get("id")) != post.get("id"):
            raise Refused("id", "differs from the post's")
    if post.get("deleted"):
        if at_us is not None and post.get("version") is None:
            post = {**post, "version": time_text(at_us)}
        return Event(number, at_us, post)
    for name in ("edited_at", "created_at"):
        at_us = _time(post, name) if at_us is None else at_us
    return Event(number, at_us, post)


def _time(given: Mapping[str, Any], name: str) -> int | None:
    if given.get(name) is None:
        return None
    if not isinstance(given[name], str):
        raise Refused(name, "not a string")
    try:
        return time_us(given[name])
    except ValueError:
        raise Refused(name) from None
