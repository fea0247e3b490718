"""In-memory parts for the ingest loop, with the method names of the real ones."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ingest.feed import FeedBatch, FeedRecord
from ingest.post import Passage, Removal


async def until(condition: Callable[[], Any], timeout_s: float = 30.0) -> None:
    """Returns once the condition holds; raises TimeoutError if it never does."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - what is watched knows no events
            await asyncio.sleep(0.01)


class Down(RuntimeError):
    """A part that does not answer."""


@dataclass
class Failing:
    """Raises as many times as `failures` says, then works."""

    failures: int = 0

    def fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise Down


@dataclass(frozen=True)
class FakeVerdict:
    action: int
    text: str


@dataclass
class FakeScreen(Failing):
    """Blocks what says "bad", replaces "secret" by [secret]."""

    asked: list[list[str]] = field(default_factory=list)

    async def check_posts(self, texts: Sequence[str]) -> list[FakeVerdict]:
        self.fail()
        self.asked.append(list(texts))
        return [self._verdict(text) for text in texts]

    def _verdict(self, text: str) -> FakeVerdict:
        if "bad" in text:
            return FakeVerdict(2, "")
        return FakeVerdict(int("secret" in text), text.replace("secret", "[secret]"))


@dataclass
class FakeEmbedder(Failing):
    """[1.0, length of the text]; not finite for a text that says "nan". The call of number `fail_at` fails."""

    asked: list[list[str]] = field(default_factory=list)
    fail_at: int = 0

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.fail()
        if self.fail_at and len(self.asked) + 1 == self.fail_at:
            self.fail_at = 0
            raise Down
        self.asked.append(list(texts))
        return np.array([[np.nan if "nan" in text else 1.0, len(text)] for text in texts])


@dataclass
class FakeIndex(Failing):
    """The version rule of the real index: passages in order, then removals."""

    texts: dict[str, str] = field(default_factory=dict)  # of what can be found
    versions: dict[str, int] = field(default_factory=dict)
    passages: list[Passage] = field(default_factory=list)
    calls: int = 0

    async def apply(self, passages: Sequence[Passage], removals: Sequence[Removal]) -> None:
        self.fail()
        self.calls += 1
        for passage in passages:
            post = passage.post
            stored = self.versions.get(post.id, -1)
            if post.version_us > stored or (post.id in self.texts and post.version_us == stored):
                self.texts[post.id] = (self.texts.get(post.id, "") if passage.number else "") + passage.text
                self.versions[post.id] = post.version_us
                self.passages.append(passage)
        for removal in removals:
            stored = self.versions.get(removal.post_id, -1)
            if removal.if_newer and removal.version_us < stored:
                continue
            self.texts.pop(removal.post_id, None)
            self.versions[removal.post_id] = max(stored, removal.version_us)


class FakeFeed:
    """Given batches, then nothing until it is closed. Remembers what was committed and what was set aside."""

    def __init__(self, *batches: Sequence[FeedRecord]) -> None:
        self.batches = [FeedBatch(tuple(batch), {0: batch[-1].offset + 1}, 1_800_000_000_000) for batch in batches]
        self.committed: list[FeedBatch] = []
        self.aside: list[tuple[int, str]] = []
        self.fault, self.lag_records, self.newest_ms, self.failed_commits = "", 0, None, 0
        self.failures = 0
        self._closed = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[FeedBatch]:
        for batch in self.batches:
            if self._closed.is_set():
                return
            yield batch
        await self._closed.wait()

    async def commit(self, batch: FeedBatch) -> None:
        self.committed.append(batch)

    async def set_aside(self, record: FeedRecord, reason: str) -> None:
        if self.failures:
            self.failures -= 1
            raise Down
        self.aside.append((record.offset, reason))

    async def close(self) -> None:
        self._closed.set()


def raw(offset: int, value: bytes | None, key: bytes | None = None, **rest: Any) -> FeedRecord:
    return FeedRecord("posts", 0, offset, 1_800_000_000_000, key, value, **rest)
