"""An ingest loop over in-memory parts, and the records that tests feed it."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from ingest_parts import FakeEmbedder, FakeFeed, FakeIndex, FakeLanguages, FakeScreen, raw, until

from ingest.feed_batch import FeedRecord
from ingest.loop import IngestLoop

CREATED = "2026-07-04T14:38:06Z"


def version(number: int) -> str:
    return str(1_783_175_886_090 + number)


def post(post_id: str, text: str, number: int = 0, **fields: Any) -> dict[str, Any]:
    return {"id": post_id, "text": text, "created_at": CREATED, "version": version(number)} | fields


def account(author_id: str, state: str, number: int = 0) -> dict[str, Any]:
    return {"account": {"source": "t", "id": author_id}, "state": state, "version": version(number)}


def records(*given: dict[str, Any] | bytes | tuple[str, int | None], first: int = 0) -> list[FeedRecord]:
    """A topic object, bytes as they are, or (post id, version) for a deletion; version None states none."""
    made = []
    for offset, item in enumerate(given, first):
        if isinstance(item, tuple):
            headers = () if item[1] is None else (("version", version(item[1]).encode()),)
            made.append(raw(offset, None, item[0].encode(), headers=headers))
        else:
            made.append(raw(offset, item if isinstance(item, bytes) else json.dumps(item).encode()))
    return made


class Running:
    """The loop over given batches, run until they are committed."""

    def __init__(self, *batches: Sequence[FeedRecord], index: FakeIndex | None = None) -> None:
        self.feed, self.screen, self.embedder = FakeFeed(*batches), FakeScreen(), FakeEmbedder()
        self.index = index or FakeIndex()
        self.languages = FakeLanguages()
        self.now_s = 1000.0
        self.pauses: list[float] = []
        self.unhealthy: list[str] = []
        self.loop = IngestLoop(
            self.feed,
            self.screen,
            self.embedder,
            self.index,
            self.languages,
            clock=lambda: 1_900_000_000_000,
            now_s=lambda: self.now_s,
            sleep=self._sleep,
        )

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.unhealthy.append(self.loop.stats().reason)
        await asyncio.sleep(0)

    async def until_committed(self) -> None:
        running = asyncio.create_task(self.loop.run())
        await until(lambda: running.done() or len(self.feed.committed) == len(self.feed.batches))
        await self.feed.close()
        await asyncio.wait_for(running, 10)


async def ingested(*batches: Sequence[FeedRecord]) -> Running:
    running = Running(*batches)
    await running.until_committed()
    return running
