"""Posts of the archive onto the topic again, as the versions they were: what was removed since stays removed, by the
tombstones of the index. Knows no broker."""

import asyncio
from asyncio import Future
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from ingest.archive import Archive
from ingest.payload import Refused
from ingest.post import Post

WINDOW = 500  # sent and not yet acknowledged, at most
READ_AHEAD = 500


class Publisher(Protocol):
    async def send(self, record: Post) -> tuple[Any, "Future[Any]"]: ...
    async def acknowledged(self, sent: "Future[Any]") -> None: ...


@dataclass(frozen=True, slots=True)
class Republished:
    """`posts` were acknowledged; `refused` break a rule of the topic that was not there yet, by reason; `damaged`:
    files of which nothing was restored, and why."""

    posts: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)


async def republish(
    archive: Archive,
    publisher: Publisher,
    since_ms: int,
    until_ms: int,
    progress: Callable[[int], None] = lambda done: None,
) -> Republished:
    """Both ends included. Raises what the publisher raises, and OSError when the archive cannot be read."""
    pending: deque[Future[Any]] = deque()
    refused: Counter[str] = Counter()
    posts = 0
    async for post in _in_a_thread(archive.restore(since_ms, until_ms)):
        try:
            _, sent = await publisher.send(post)
        except Refused as error:
            refused[error.reason] += 1
        else:
            pending.append(sent)
            posts += 1
        while len(pending) > WINDOW:
            await publisher.acknowledged(pending.popleft())
        progress(posts + refused.total())
    while pending:
        await publisher.acknowledged(pending.popleft())
    return Republished(posts, dict(refused), dict(archive.damaged))


async def _in_a_thread(posts: Iterator[Post]) -> AsyncIterator[Post]:
    """Files are read while what was sent is acknowledged."""
    while some := await asyncio.to_thread(lambda: list(islice(posts, READ_AHEAD))):
        for post in some:
            yield post
