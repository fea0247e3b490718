"""Reads the topic and keeps the index true to it: read, decode, screen, split, embed, apply, commit.

The stages overlap, and what one batch leaves is in the index before what the next one leaves. A batch is committed only
after all of it is in the index. When a part fails, the batch waits and is tried again, for ever: nothing is skipped.
Knows no broker, no model and no store.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Protocol

from ingest.ingest_stats import IngestStats, Tally
from ingest.parcel import Lane, Parcel
from ingest.patience import Patience
from ingest.post import AccountChange, Passage, Removal
from ingest.stages import Decoding, Embedding, LanguageDetector, PostEmbedder, PostScreen, Screening

# What waits between two stages, and so what the later one takes at a time.
LANE_RECORDS, LANE_BYTES = 256, 2_000_000
STALL_S = 120.0


class Feed(Protocol):
    @property
    def newest_ms(self) -> int | None: ...
    @property
    def failed_commits(self) -> int: ...
    @property
    def fault(self) -> str: ...  # "" when healthy
    @property
    def lag_records(self) -> int: ...
    def __aiter__(self) -> AsyncIterator[Any]: ...  # of Batch
    async def commit(self, batch: Any) -> None: ...
    async def set_aside(self, record: Any, reason: str, detail: str) -> None: ...
    def check(self) -> None: ...  # raises when it is stalled
    async def close(self) -> None: ...


class PostStore(Protocol):
    async def apply(
        self, passages: Sequence[Passage], removals: Sequence[Removal], accounts: Sequence[AccountChange] = ()
    ) -> Any: ...


class IngestStalled(RuntimeError):
    """Records wait and no batch has been finished for long."""

    def __init__(self, seconds: float, reason: str) -> None:
        super().__init__(seconds, reason)
        self.seconds, self.reason = seconds, reason

    def __str__(self) -> str:
        return f"no batch was finished for {self.seconds:.0f} s" + (f": {self.reason}" if self.reason else "")


class IngestLoop:
    def __init__(
        self,
        feed: Feed,
        screen: PostScreen,
        embedder: PostEmbedder,
        index: PostStore,
        languages: LanguageDetector,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._feed, self._index = feed, index
        self._clock, self._now_s = clock, now_s
        self._patience, self._tally = Patience(sleep), Tally(now_s)
        self._decoding = Decoding(feed.set_aside, self._patience, self._tally)
        self._screening = Screening(screen, languages, self._patience, self._tally)
        self._embedding = Embedding(embedder, self._decoding, self._patience, self._tally)
        self._applying = asyncio.Lock()
        self._underway: list[Parcel] = []  # read and not committed, in the order of the feed
        self._last_applied_ms: int | None = None
        self._moved_s = now_s()

    async def run(self) -> None:
        """Returns when the feed has ended and all of it is in the index. Cancel it at any time: what was not committed
        is delivered again."""
        decoded, screened, embedded, applied = (Lane(LANE_RECORDS, LANE_BYTES) for _ in range(4))
        try:
            async with asyncio.TaskGroup() as stages:
                stages.create_task(self._read(decoded))
                stages.create_task(self._screen(decoded, screened))
                stages.create_task(self._embed(screened, embedded))
                stages.create_task(self._apply(embedded, applied))
                stages.create_task(self._commit(applied))
        finally:
            await self._feed.close()

    def stats(self) -> IngestStats:
        """Cheap: may be asked several times a second."""
        reason = self._patience.reason or self._feed.fault
        oldest_ms = min((parcel.oldest_ms for parcel in self._underway), default=None)
        numbers: dict[str, Any] = self._tally.numbers()
        return IngestStats(
            healthy=not reason,
            reason=reason,
            lag_records=self._feed.lag_records,
            newest_ms=self._feed.newest_ms,
            last_applied_ms=self._last_applied_ms,
            oldest_unapplied_ms=None if oldest_ms is None else max(0, self._clock() - oldest_ms),
            records_in_flight=sum(parcel.records for parcel in self._underway),
            bytes_in_flight=sum(parcel.size for parcel in self._underway),
            retries=self._patience.retries,
            failed_commits=self._feed.failed_commits,
            **numbers,
        )

    def check(self) -> None:
        """Raises what the feed raises when it is stalled, and IngestStalled when what it has read does not move on."""
        self._feed.check()
        if self._underway:
            still_s = self._now_s() - max(self._moved_s, self._underway[0].arrived_s)
            if still_s > STALL_S:
                raise IngestStalled(still_s, self._patience.reason)

    async def _read(self, to: Lane) -> None:
        async for batch in self._feed:
            parcel = Parcel.of(batch, self._now_s())
            self._underway.append(parcel)
            await self._decoding.decode(parcel)
            await self._take_away_at_once(parcel)
            await to.put(parcel)
        await to.close()

    async def _take_away_at_once(self, parcel: Parcel) -> None:
        """Removals and account changes overtake the posts that are still to be screened and embedded; they are applied
        again in their place."""
        ahead = [earlier.newest for earlier in self._underway if earlier is not parcel]
        removals, accounts = parcel.newest.overtaking(ahead), parcel.newest.accounts
        if removals or accounts:
            await self._change((), removals, accounts)

    async def _screen(self, waiting: Lane, to: Lane) -> None:
        while parcels := await waiting.take():
            parcel = self._joined(parcels)
            await self._screening.screen(parcel.newest)
            await to.put(parcel)
        await to.close()

    async def _embed(self, waiting: Lane, to: Lane) -> None:
        while parcels := await waiting.take():
            parcel = self._joined(parcels)
            await self._embedding.embed(parcel)
            await to.put(parcel)
        await to.close()

    async def _apply(self, waiting: Lane, to: Lane) -> None:
        while parcels := await waiting.take():
            for parcel in parcels:
                await self._apply_one(parcel)
                self._last_applied_ms = self._clock()
                await to.put(parcel)
        await to.close()

    async def _apply_one(self, parcel: Parcel) -> None:
        """The index takes passages before removals; a post that was removed and came back needs it the other way."""
        passages, removals, accounts = parcel.passages, parcel.newest.removals, parcel.newest.accounts
        back = {passage.post.id for passage in passages} & {removal.post_id for removal in removals}
        if back:
            await self._change((), removals, accounts)
            await self._change(passages, (), ())
        elif passages or removals or accounts:
            await self._change(passages, removals, accounts)
        self._tally.applied(passages, len(removals), len(accounts))

    async def _change(
        self, passages: Sequence[Passage], removals: Sequence[Removal], accounts: Sequence[AccountChange]
    ) -> None:
        """One change of the index at a time, however often it is tried."""

        async def attempt() -> None:
            async with self._applying:
                await self._index.apply(passages, removals, accounts)

        await self._patience.until_done("index", attempt)

    async def _commit(self, waiting: Lane) -> None:
        while parcels := await waiting.take():
            for parcel in parcels:
                for batch in parcel.batches:
                    await self._feed.commit(batch)
                self._underway.remove(parcel)
                self._moved_s = self._now_s()

    def _joined(self, parcels: list[Parcel]) -> Parcel:
        """What waits together is worked on together: small calls when posts trickle in, large ones in a backlog."""
        first, *others = parcels
        for later in others:
            first.join(later)
            self._underway.remove(later)
        return first
