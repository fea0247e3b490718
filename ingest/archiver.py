"""Reads the topic once more, as a consumer group of its own, and keeps the archive true to it: screened posts go in,
what is removed goes out. Knows no broker, no model and no store.

Posts wait to be written together; their batches are committed once they are. When a part fails, everything waits and is
tried again, for ever, as in the ingest loop.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ingest.archive import Archive, ArchiveReport
from ingest.ingest_stats import Tally
from ingest.parcel import Batch, Parcel, RawRecord
from ingest.patience import Patience
from ingest.stages import Decoding, PostScreen, Screening
from ingest.versions import Newest

MAX_RECORDS, MAX_BYTES = 50_000, 64_000_000  # that wait; beyond that they are written before their time


class Feed(Protocol):
    failed_commits: int

    @property
    def fault(self) -> str: ...  # "" when healthy
    @property
    def lag_records(self) -> int: ...
    def __aiter__(self) -> AsyncIterator[Any]: ...  # of Batch
    async def commit(self, batch: Any) -> None: ...
    def check(self) -> None: ...  # raises when it is stalled
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ArchiverStats:
    """Counts since the start; times are epoch milliseconds. `reason` says why it is not healthy, "" when it is."""

    healthy: bool
    reason: str
    lag_records: int
    waiting_records: int
    last_written_ms: int | None
    records: int = 0
    posts: int = 0  # written
    stale: int = 0
    erased: int = 0
    blocked: int = 0
    damaged_files: int = 0
    retries: int = 0
    failed_commits: int = 0


class Archiver:
    """`flush_s`: how long posts wait to be written together, and how late a removal may reach the archive."""

    def __init__(
        self,
        feed: Feed,
        screen: PostScreen,
        archive: Archive,
        flush_s: float,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._feed, self._archive, self._flush_s, self._now_s = feed, archive, flush_s, now_s
        self._patience, self._tally = Patience(sleep), Tally(now_s)
        self._decoding = Decoding(_leave_to_the_loop, self._patience, self._tally)
        self._screening = Screening(screen, _AsGiven(), self._patience, self._tally)
        self._newest, self._batches = Newest(), list[Batch]()
        self._records = self._size = 0
        self._first_s = 0.0  # when the first of what waits came
        self._written = ArchiveReport()
        self._last_written_ms: int | None = None

    async def run(self) -> None:
        """Returns when the feed has ended and all of it is written. Cancel it at any time: what was not committed is
        delivered again."""
        batches = aiter(self._feed)
        coming: asyncio.Future[Batch] | None = None
        try:
            while True:
                coming = coming or asyncio.ensure_future(anext(batches))
                await asyncio.wait([coming], timeout=self._flush_in_s())
                if coming.done():
                    try:
                        await self._take(coming.result())
                    except StopAsyncIteration:
                        break
                    coming = None
                if self._is_due():
                    await self._flush()
            await self._flush()
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.wait([coming])
            await self._feed.close()

    def stats(self) -> ArchiverStats:
        reason = self._patience.reason or self._feed.fault
        return ArchiverStats(
            healthy=not reason,
            reason=reason,
            lag_records=self._feed.lag_records,
            waiting_records=self._records,
            last_written_ms=self._last_written_ms,
            records=self._tally.counts["records"],
            posts=self._written.posts,
            stale=self._written.stale,
            erased=self._written.erased,
            blocked=self._tally.counts["blocked"],
            damaged_files=len(self._archive.damaged),
            retries=self._patience.retries,
            failed_commits=self._feed.failed_commits,
        )

    def check(self) -> None:
        """Raises what the feed raises when it is stalled."""
        self._feed.check()

    async def _take(self, batch: Batch) -> None:
        parcel = Parcel.of(batch, self._now_s())
        await self._decoding.decode(parcel)
        await self._screening.screen(parcel.newest)
        if not self._batches:
            self._first_s = parcel.arrived_s
        self._newest.join(parcel.newest)
        self._batches.append(batch)
        self._records += parcel.records
        self._size += parcel.size

    def _flush_in_s(self) -> float | None:
        return max(0.0, self._first_s + self._flush_s - self._now_s()) if self._batches else None

    def _is_due(self) -> bool:
        is_full = self._records >= MAX_RECORDS or self._size >= MAX_BYTES
        return bool(self._batches) and (is_full or self._now_s() - self._first_s >= self._flush_s)

    async def _flush(self) -> None:
        newest, batches = self._newest, self._batches
        if not batches:
            return
        report = await self._patience.until_done("archive", lambda: asyncio.to_thread(self._write, newest))
        self._written += report
        self._last_written_ms = time.time_ns() // 1_000_000
        await asyncio.gather(*(self._feed.commit(batch) for batch in batches))
        self._newest, self._batches = Newest(), []
        self._records = self._size = 0

    def _write(self, newest: Newest) -> ArchiveReport:
        return self._archive.write(newest.posts, newest.removals, newest.accounts)


class _AsGiven:
    """A post keeps the language that its source gave: whoever reads it again may know better."""

    def detect(self, texts: Sequence[str]) -> list[str]:
        return [""] * len(texts)


async def _leave_to_the_loop(raw: RawRecord, reason: str, detail: str) -> None:
    """The ingest loop keeps what is no post on the dead-letter topic."""
