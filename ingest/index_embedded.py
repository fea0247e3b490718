"""The embedded index as a PostIndex: one EdgeIndex, and the one thread that may touch it."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ingest.index import ApplyReport, Copy, Query, Summary
from ingest.index_edge import EdgeIndex, wall_clock
from ingest.index_tier import Tier
from ingest.index_vacuum import is_due, vacuum
from ingest.post import AccountChange, Match, Passage, Receipt, Removal

T = TypeVar("T")
REST = 20  # times as long as a vacuum took, there is none


class EmbeddedIndex:
    """A search waits for one step of what else is under way: a few posts applied, moved or read for a vacuum.

    The parameters are EdgeIndex's. Opening it blocks for about a second for 200,000 posts; raises IndexUnusable.
    """

    def __init__(
        self,
        path: Path,
        dim: int = 384,
        *,
        window_h: float = 72.0,
        max_posts: int = 200_000,
        warm_days: float = 30.0,
        clock: Callable[[], int] = wall_clock,
        shard: int = 0,
        shards: int = 1,
    ) -> None:
        self._thread = ThreadPoolExecutor(1, "index")
        opening = partial(
            EdgeIndex,
            path,
            dim,
            window_h=window_h,
            max_posts=max_posts,
            warm_days=warm_days,
            clock=clock,
            shard=shard,
            shards=shards,
        )
        try:
            self._index: EdgeIndex = self._thread.submit(opening).result()
        except BaseException:
            self._thread.shutdown()
            raise
        self._rest_until_s = 0.0

    async def apply(
        self, passages: Sequence[Passage], removals: Sequence[Removal], accounts: Sequence[AccountChange] = ()
    ) -> ApplyReport:
        report = ApplyReport()
        for step in await self._run(self._index.steps, passages, removals, accounts):
            report += await self._run(step)
        return report

    async def search(self, query: Query) -> list[Match]:
        return await self._run(self._index.search, query)

    async def fetch(self, post_ids: Sequence[str]) -> dict[str, Match]:
        return await self._run(self._index.fetch, post_ids)

    async def present(self, post_ids: Sequence[str]) -> set[str]:
        return await self._run(self._index.present, post_ids)

    async def copies(self, matches: Sequence[Match], limit: int = 200) -> dict[str, list[Copy]]:
        return {match.post_id: await self._run(self._index.copies, match, limit) for match in matches}

    async def receipt(self, post_id: str) -> Receipt | None:
        return await self._run(self._index.receipt, post_id)

    async def summary(self) -> Summary:
        return await self._run(self._index.summary)

    async def maintain(self, now_ms: int) -> None:
        """Moves and drops what is too old, then vacuums what is due; that may take minutes, in which all goes on."""
        while await self._run(self._index.age, now_ms):
            pass
        for tier in self._index.tiers:
            await self._run(tier.flush_if_due)
            await asyncio.to_thread(tier.generations.sweep)
            if time.monotonic() >= self._rest_until_s and await self._run(is_due, tier, now_ms):
                await self.vacuum(tier)

    async def vacuum(self, tier: Tier) -> None:
        started_s = time.monotonic()
        await vacuum(tier, self._run)
        self._rest_until_s = time.monotonic() + REST * (time.monotonic() - started_s)

    @property
    def tiers(self) -> tuple[Tier, ...]:
        return self._index.tiers

    async def close(self) -> None:
        await self._run(self._index.close)
        self._thread.shutdown()

    async def _run(self, call: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)
