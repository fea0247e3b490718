"""In-memory parts for the ingest loop, with the method names of the real ones."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ingest.feed_batch import FeedBatch, FeedRecord
from ingest.post import AccountChange, Passage, Removal


async def until(condition: Callable[[], Any], timeout_s: float = 30.0) -> None:
    """Returns once the condition holds; raises TimeoutError if it never does."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - what is watched knows no events
            await asyncio.sleep(0.01)


class Down(RuntimeError):
    """A part that does not answer."""


class Gate:
    """Lets through as many calls as there are permits; the others wait. Open by default."""

    def __init__(self) -> None:
        self.begun = 0
        self._permits: int | None = None
        self._changed = asyncio.Condition()

    def shut(self) -> None:
        self._permits = 0

    async def let(self, calls: int | None = None) -> None:
        """So many more, or all from now on."""
        async with self._changed:
            self._permits = None if calls is None or self._permits is None else self._permits + calls
            self._changed.notify_all()

    async def passed(self) -> None:
        self.begun += 1
        async with self._changed:
            await self._changed.wait_for(lambda: self._permits != 0)
            if self._permits is not None:
                self._permits -= 1


@dataclass
class Failing:
    """Raises as many times as `failures` says, then works; a `shaky` part raises every fourth time or so."""

    failures: int = 0
    gate: Gate = field(default_factory=Gate)
    shaky: random.Random | None = None

    def fail(self) -> None:
        if self.shaky is not None and self.shaky.random() < 0.25:
            raise Down
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
        await self.gate.passed()
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
        await self.gate.passed()
        self.fail()
        if self.fail_at and len(self.asked) + 1 == self.fail_at:
            self.fail_at = 0
            raise Down
        self.asked.append(list(texts))
        return np.array([[np.nan if "nan" in text else 1.0, len(text)] for text in texts])


class FakeLanguages:
    """Says "xx" for every text, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def detect(self, texts: Sequence[str]) -> list[str]:
        self.asked += texts
        return ["xx" for _ in texts]


@dataclass
class Stored:
    version_us: int
    passages: list[Passage] = field(default_factory=list)  # [] is a tombstone


@dataclass
class FakeIndex(Failing):
    """The rules of the real index (docs/feed.md), one change after the other: accounts, passages in order, removals."""

    stored: dict[str, Stored] = field(default_factory=dict)
    accounts: dict[str, AccountChange] = field(default_factory=dict)
    passages: list[Passage] = field(default_factory=list)  # all that were taken in
    calls: int = 0

    async def apply(
        self, passages: Sequence[Passage], removals: Sequence[Removal], accounts: Sequence[AccountChange] = ()
    ) -> None:
        await self.gate.passed()
        self.fail()
        self.calls += 1
        self.change(passages, removals, accounts)

    @property
    def texts(self) -> dict[str, str]:
        """Of what can be found. A plain repost is counted and never found."""
        hidden = {account for account, change in self.accounts.items() if change.state != "active"}
        texts = {
            post_id: "".join(passage.text for passage in stored.passages)
            for post_id, stored in self.stored.items()
            if stored.passages and stored.passages[0].post.account not in hidden
        }
        return {post_id: text for post_id, text in texts.items() if text}

    @property
    def reposts(self) -> dict[str, str]:
        """Plain reposts: id -> what they repost."""
        live = (stored.passages[0] for stored in self.stored.values() if stored.passages)
        return {found.post.id: str(found.post.repost_of) for found in live if not found.text}

    def change(
        self, passages: Sequence[Passage], removals: Sequence[Removal], accounts: Sequence[AccountChange] = ()
    ) -> None:
        for change in accounts:
            self._change_account(change)
        for passage in passages:
            self._take_in(passage)
        for removal in removals:
            self._remove(removal)

    def _change_account(self, change: AccountChange) -> None:
        known = self.accounts.get(change.account)
        is_newer = known is None or known.version_us <= change.version_us
        if known is not None and known.state == "deleted" or not (is_newer or change.state == "deleted"):
            return
        self.accounts[change.account] = change
        if change.state == "deleted":
            for post_id, stored in list(self.stored.items()):
                if stored.passages and stored.passages[0].post.account == change.account:
                    self._erase(post_id, stored.version_us)

    def _take_in(self, passage: Passage) -> None:
        post = passage.post
        account, original = self.accounts.get(post.account), self.stored.get(post.repost_of or "")
        stored = self.stored.get(post.id, Stored(-1))
        if account is not None and account.state == "deleted":
            return self._erase(post.id, post.version_us)  # known as removed, so that reposts of it stay out
        if post.version_us < stored.version_us or (post.version_us == stored.version_us and not stored.passages):
            return
        if original is not None and not original.passages:
            return self._erase(post.id, post.version_us)
        stored.passages = [*stored.passages, passage] if passage.number else [passage]
        stored.version_us = post.version_us
        self.stored[post.id] = stored
        self.passages.append(passage)

    def _remove(self, removal: Removal) -> None:
        stored = self.stored.get(removal.post_id, Stored(-1))
        if not removal.if_newer or removal.version_us >= stored.version_us:
            self._erase(removal.post_id, removal.version_us)

    def _erase(self, post_id: str, version_us: int) -> None:
        stored = self.stored.setdefault(post_id, Stored(-1))
        stored.version_us, stored.passages = max(stored.version_us, version_us), []
        for other in self.stored.values():
            if other.passages and other.passages[0].post.repost_of == post_id:
                other.passages = []


class FakeFeed:
    """Given batches, then nothing until it is closed. Remembers what was handed over, committed and set aside."""

    def __init__(self, *batches: Sequence[FeedRecord]) -> None:
        self.batches = [_batch(batch) for batch in batches]
        self.handed_over = 0
        self.committed: list[FeedBatch] = []
        self.aside: list[tuple[int, str]] = []
        self.fault, self.lag_records, self.newest_ms, self.failed_commits = "", 0, None, 0
        self.stalled: Exception | None = None
        self.failures = 0
        self._closed, self._news = asyncio.Event(), asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[FeedBatch]:
        while not self._closed.is_set():
            if self.handed_over < len(self.batches):
                self.handed_over += 1
                yield self.batches[self.handed_over - 1]
            else:
                await self._news.wait()
                self._news.clear()

    def push(self, batch: Sequence[FeedRecord]) -> None:
        self.batches.append(_batch(batch))
        self._news.set()

    async def commit(self, batch: FeedBatch) -> None:
        self.committed.append(batch)

    async def set_aside(self, record: FeedRecord, reason: str, detail: str = "") -> None:
        if self.failures:
            self.failures -= 1
            raise Down
        self.aside.append((record.offset, reason))

    def check(self) -> None:
        if self.stalled is not None:
            raise self.stalled

    async def close(self) -> None:
        self._closed.set()
        self._news.set()


def _batch(records: Sequence[FeedRecord]) -> FeedBatch:
    return FeedBatch(tuple(records), {0: records[-1].offset + 1}, 1_800_000_000_000)


def raw(offset: int, value: bytes | None, key: bytes | None = None, **rest: Any) -> FeedRecord:
    return FeedRecord("posts", 0, offset, 1_800_000_000_000, key, value, **rest)
