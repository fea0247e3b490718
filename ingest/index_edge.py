"""The embedded index: Qdrant Edge in a folder, a hot tier and a warm one. Blocking, for one thread at a time.

Edge holds the GIL for the whole of every call, so each step is kept short, and the process that owns the index does
nothing else (index_embedded.py gives it a thread).
"""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from ingest.index import ApplyReport, Copy, Query, Summary
from ingest.index_edge_aging import Retention, age
from ingest.index_edge_changes import Changes
from ingest.index_edge_copies import copies
from ingest.index_edge_search import search
from ingest.index_layout import Layout, claim
from ingest.index_points import (
    BELIEVED,
    FOUND,
    HIDDEN_ACCOUNTS,
    POSTS,
    REMOVED,
    YES,
    Payload,
    match_of,
    point_id,
    receipt_of,
)
from ingest.index_rules import check, slices
from ingest.index_tier import Tier, payload_in
from ingest.post import AccountChange, Match, Passage, Receipt, Removal

HOUR_MS, DAY_MS = 3_600_000, 24 * 3_600_000
Step = Callable[[], ApplyReport]


def wall_clock() -> int:
    return time.time_ns() // 1_000_000


class EdgeIndex:
    """Opens the folder, or makes it; raises IndexUnusable.

    Hot are the posts of the last `window_h`, at most `max_posts` of them. Older ones are warm until they are
    `warm_days` old; 0 has no warm tier. `clock` gives epoch milliseconds: from then on a removal is remembered for
    TOMBSTONES_KEPT_MS and the window. `shard`: the folder is for that part of the posts (index_shards.py).
    """

    def __init__(
        self,
        path: Path,
        dim: int = 384,
        *,
        window_h: float = 72.0,
        max_posts: int = 200_000,
        warm_days: float = 0.0,
        clock: Callable[[], int] = wall_clock,
        shard: int = 0,
        shards: int = 1,
    ) -> None:
        claim(path, Layout(dim, shard, shards))
        self._dim, self._clock = dim, clock
        self._keep = Retention(int(window_h * HOUR_MS), max_posts, int(warm_days * DAY_MS))
        self.hot = Tier(path / "hot", dim, "hot")
        self.warm = Tier(path / "warm", dim, "warm") if warm_days else None
        if self.warm is None:
            shutil.rmtree(path / "warm", ignore_errors=True)  # a removal would not reach it
        self._changes = Changes(self.hot, self.warm, clock)
        self._warm_newest_ms = self.warm.newest_ms(POSTS) if self.warm else None

    @property
    def tiers(self) -> tuple[Tier, ...]:
        return (self.hot, self.warm) if self.warm else (self.hot,)

    def steps(
        self, passages: Sequence[Passage], removals: Sequence[Removal], accounts: Sequence[AccountChange] = ()
    ) -> Iterator[Step]:
        """What `apply` does, a few milliseconds each; a search may come between two of them, and all must be run.

        Raises BadPassages at once.
        """
        check(passages, removals, self._dim)
        return self._steps(passages, removals, accounts)

    def _steps(
        self, passages: Sequence[Passage], removals: Sequence[Removal], accounts: Sequence[AccountChange]
    ) -> Iterator[Step]:
        for change in accounts:
            yield partial(self._changes.account, change)
        for some_passages, some_removals in slices(passages, removals):
            yield partial(self._changes.slice, some_passages, some_removals)
        while self._changes.doomed:
            yield self._changes.remove_doomed
        for tier in self.tiers:
            yield partial(_flush_if_due, tier)

    def apply(
        self, passages: Sequence[Passage], removals: Sequence[Removal], accounts: Sequence[AccountChange] = ()
    ) -> ApplyReport:
        """By the version rule (docs/feed.md); found, or gone, for the very next search.

        A removal takes the reposts of the post with it, as they may hold its text, and none is admitted until the post
        is back. All pieces of a version come in one call, in order. Raises BadPassages before anything is applied.
        """
        report = ApplyReport()
        for step in self.steps(passages, removals, accounts):
            report += step()
        return report

    def search(self, query: Query) -> list[Match]:
        return search(self.hot, self.warm if self._reaches_back(query) else None, query)

    def _reaches_back(self, query: Query) -> bool:
        """A question without a time is about now, unless it asks for a thread, or for what was before some time."""
        if self._warm_newest_ms is None:
            return False
        if query.since_ms is None:
            return query.until_ms is not None or query.conversation is not None
        return query.since_ms <= self._warm_newest_ms

    def fetch(self, post_ids: Sequence[str]) -> dict[str, Match]:
        found = self._heads(post_ids, None)
        return {post_id: match_of(payload) for post_id, payload in found.items()}

    def present(self, post_ids: Sequence[str]) -> set[str]:
        """Those of the posts that can be found."""
        return set(self._heads(post_ids, ["pieces", "hidden", "original_hidden", "bare"]))

    def _heads(self, post_ids: Sequence[str], fields: Sequence[str] | None) -> dict[str, Payload]:
        """The first pieces of the posts that can be found."""
        missing = {point_id(post_id): post_id for post_id in post_ids}
        found: dict[str, Payload] = {}
        for tier in self.tiers:
            for i, record in tier.retrieve(missing, fields).items():
                payload = payload_in(record)
                post_id = missing.pop(i)
                if payload["pieces"] and YES not in (payload.get(m) for m in ("hidden", "original_hidden", "bare")):
                    found[post_id] = payload
        return found

    def copies(self, match: Match, limit: int = 200) -> list[Copy]:
        return copies(self.hot, self.warm, match, limit)

    def receipt(self, post_id: str) -> Receipt | None:
        record = self.hot.retrieve([point_id(post_id)]).get(point_id(post_id))
        return receipt_of(post_id, payload_in(record)) if record else None

    def summary(self) -> Summary:
        hot_posts, warm_posts = (tier.found_posts if tier else 0 for tier in (self.hot, self.warm))
        newest = (tier.newest_ms([*FOUND, BELIEVED]) for tier in self.tiers)
        return Summary(
            posts=hot_posts + warm_posts,
            newest_ms=max((ms for ms in newest if ms is not None), default=None),
            warm_posts=warm_posts,
            removals=self.hot.count([REMOVED]),
            hidden_accounts=self.hot.count([HIDDEN_ACCOUNTS]),
        )

    def age(self, now_ms: int) -> bool:
        """Moves or drops some of what is too old; False when nothing is."""
        is_more = age(self.hot, self.warm, self._keep, now_ms)
        self._warm_newest_ms = self.warm.newest_ms(POSTS) if self.warm else None
        return is_more

    def flush(self) -> None:
        for tier in self.tiers:
            tier.flush()

    def close(self) -> None:
        """Flushes and gives the folder free."""
        for tier in self.tiers:
            tier.close()


def _flush_if_due(tier: Tier) -> ApplyReport:
    tier.flush_if_due()
    return ApplyReport()
