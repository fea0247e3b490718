"""Several indexes as one: each holds the posts whose id falls to it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeVar
from uuid import UUID

from ingest.index import ApplyReport, Copy, PostIndex, Query, Summary
from ingest.index_points import point_id
from ingest.index_rules import check
from ingest.post import AccountChange, Match, Passage, Receipt, Removal
from ingest.rank import rescore

T = TypeVar("T")


class ShardedIndex:
    """A repost is kept where the post is that it repeats: what happens to that post happens to it. Removals and
    accounts go to all. One shard that fails fails the call; what the others did stays, and the batch comes again.

    A post must not change what it reposts, nor begin or cease to be a repost (no network lets it): of two versions in
    two shards the newer is shown, as long as both match. `Copy.is_known_author` may be missed when the author's other
    posts are in another shard than all of the copies.
    """

    def __init__(self, indexes: Sequence[PostIndex], dim: int = 384) -> None:
        assert indexes, "no shards"
        self._indexes, self._dim = tuple(indexes), dim

    def shard_of(self, post_id: str) -> int:
        return UUID(point_id(post_id)).int % len(self._indexes)

    async def apply(
        self, passages: Sequence[Passage], removals: Sequence[Removal], accounts: Sequence[AccountChange] = ()
    ) -> ApplyReport:
        check(passages, removals, self._dim)
        parts: list[list[Passage]] = [[] for _ in self._indexes]
        for passage in passages:
            parts[self.shard_of(passage.post.repost_of or passage.post.id)].append(passage)
        changed = (
            index.apply(part, removals, accounts)
            for index, part in zip(self._indexes, parts, strict=True)
            if part or removals or accounts
        )
        total = sum(await _all(changed), ApplyReport())
        elsewhere = len(removals) * (len(self._indexes) - 1)  # a shard that has no such post counts it as removed, too
        return replace(total, removed=total.removed - elsewhere)

    async def search(self, query: Query) -> list[Match]:
        found = _newest(chain.from_iterable(await self._ask(lambda index: index.search(query))))
        return rescore(
            found,
            limit=query.limit,
            bm25_share=query.bm25_share,
            half_life_ms=query.half_life_ms,
            now_ms=query.now_ms,
        )

    async def fetch(self, post_ids: Sequence[str]) -> dict[str, Match]:
        newest: dict[str, Match] = {}
        for found in await self._ask(lambda index: index.fetch(post_ids)):
            for post_id, match in found.items():
                if post_id not in newest or match.version_us > newest[post_id].version_us:
                    newest[post_id] = match
        return newest

    async def present(self, post_ids: Sequence[str]) -> set[str]:
        return set().union(*await self._ask(lambda index: index.present(post_ids)))

    async def copies(self, matches: Sequence[Match], limit: int = 200) -> dict[str, list[Copy]]:
        found = await self._ask(lambda index: index.copies(matches, limit))
        return {match.post_id: _earliest([copies[match.post_id] for copies in found], limit) for match in matches}

    async def receipt(self, post_id: str) -> Receipt | None:
        """Every shard is told of every removal, and only one of them that a post came back, or went with another."""
        receipts = await self._ask(lambda index: index.receipt(post_id))
        known = [receipt for receipt in receipts if receipt is not None]
        if not known or await self.present([post_id]):
            return None
        return max(known, key=lambda receipt: receipt.purged_ms)

    async def summary(self) -> Summary:
        parts = await self._ask(lambda index: index.summary())
        return Summary(
            posts=sum(part.posts for part in parts),
            newest_ms=max((part.newest_ms for part in parts if part.newest_ms is not None), default=None),
            warm_posts=sum(part.warm_posts for part in parts),
            removals=max(part.removals for part in parts),
            hidden_accounts=max(part.hidden_accounts for part in parts),
        )

    async def maintain(self, now_ms: int) -> None:
        await self._ask(lambda index: index.maintain(now_ms))

    async def close(self) -> None:
        await self._ask(lambda index: index.close())

    async def _ask(self, question: Callable[[PostIndex], Awaitable[T]]) -> list[T]:
        return await _all(question(index) for index in self._indexes)


async def _all(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Raises the first fault when all have ended, so that none goes on behind the caller's back."""
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]


def _newest(matches: Iterable[Match]) -> list[Match]:
    found = list(matches)
    version_of: dict[str, int] = {}
    for match in found:
        version_of[match.post_id] = max(match.version_us, version_of.get(match.post_id, match.version_us))
    return [match for match in found if match.version_us == version_of[match.post_id]]


def _earliest(parts: Sequence[Sequence[Copy]], limit: int) -> list[Copy]:
    copies = sorted(chain.from_iterable(parts), key=lambda copy: (copy.sort_ms, copy.post_id))[:limit]
    known = {copy.account for copy in copies if copy.is_known_author}
    return [replace(copy, is_known_author=copy.account in known) for copy in copies]
