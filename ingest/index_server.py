"""The index on a Qdrant server or cluster, in one collection. Several processes may use it at once.

There is one tier: the server keeps vectors on disk and their int8 copies in memory, and decides itself what is cached.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from qdrant_client import AsyncQdrantClient, models
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from ingest.index import ApplyReport, Copy, Query, Summary
from ingest.index_points import (
    BELIEVED,
    FOUND,
    HIDDEN_ACCOUNTS,
    POSTS,
    REMOVED,
    YES,
    Condition,
    Payload,
    match_of,
    point_id,
    receipt_of,
)
from ingest.index_rules import TOMBSTONES_KEPT_MS, check, slices
from ingest.index_server_calls import ASK_TIMEOUT_S, PAGE, Calls, IndexUnavailable, payload_in, reason_of
from ingest.index_server_changes import SLICE_POINTS, Changes
from ingest.index_server_collection import ensure_collection, require_version
from ingest.index_server_copies import copies
from ingest.index_server_filter import where
from ingest.index_server_search import search
from ingest.post import AccountChange, Match, Passage, Receipt, Removal

HOUR_MS, DAY_MS = 3_600_000, 24 * 3_600_000


def wall_clock() -> int:
    return time.time_ns() // 1_000_000


class ServerIndex:
    """`open` one, or `connect`. Each call raises IndexUnavailable when the server cannot be used, after some attempts.

    Posts of the last `window_h` are searched; older ones, until they are `warm_days` old, when the question's time
    reaches back. Without warm days there are at most `max_posts`. `clock` gives epoch milliseconds.
    """

    def __init__(
        self,
        calls: Calls,
        dim: int,
        *,
        window_h: float = 72.0,
        max_posts: int = 200_000,
        warm_days: float = 0.0,
        clock: Callable[[], int] = wall_clock,
    ) -> None:
        self._calls, self._dim, self._clock = calls, dim, clock
        self._window_ms = int(window_h * HOUR_MS)
        self._kept_ms = max(int(warm_days * DAY_MS), self._window_ms)
        self._max_posts = max_posts if self._kept_ms == self._window_ms else None
        self._changes = Changes(calls, clock)
        self._changing = asyncio.Lock()

    @classmethod
    async def open(
        cls,
        client: AsyncQdrantClient,
        collection: str,
        *,
        url: str = "",
        dim: int = 384,
        shards: int = 1,
        replicas: int = 1,
        window_h: float = 72.0,
        max_posts: int = 200_000,
        warm_days: float = 0.0,
        clock: Callable[[], int] = wall_clock,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> "ServerIndex":
        """Makes the collection if it is missing, of so many `shards` and `replicas`. Raises IndexUnavailable."""
        try:
            async with asyncio.timeout(10 * ASK_TIMEOUT_S):
                await require_version(client, url)
                found = await ensure_collection(client, collection, url, dim=dim, shards=shards, replicas=replicas)
        except (UnexpectedResponse, ResponseHandlingException, ResourceExhaustedResponse, TimeoutError) as error:
            raise IndexUnavailable(url, reason_of(error)) from error
        calls = Calls(client, collection, url, found, sleep)
        return cls(calls, dim, window_h=window_h, max_posts=max_posts, warm_days=warm_days, clock=clock)

    async def apply(
        self, passages: Sequence[Passage], removals: Sequence[Removal], accounts: Sequence[AccountChange] = ()
    ) -> ApplyReport:
        """By the version rule (docs/feed.md); found, or gone, for the very next search.

        What IndexUnavailable leaves half done is ended by the same call again.
        """
        check(passages, removals, self._dim)
        report = ApplyReport()
        async with self._changing:
            for change in accounts:
                report += await self._changes.account(change)
            for some_passages, some_removals in slices(passages, removals, SLICE_POINTS):
                report += await self._changes.slice(some_passages, some_removals)
            await self._changes.remove_doomed()
        return report

    async def search(self, query: Query) -> list[Match]:
        asks_for_old = (query.since_ms, query.until_ms, query.conversation) != (None, None, None)
        now_or_never = () if asks_for_old else (Condition("sort_ms", gte=self._clock() - self._window_ms),)
        return await search(self._calls, query, now_or_never)

    async def fetch(self, post_ids: Sequence[str]) -> dict[str, Match]:
        found = await self._heads(post_ids, None)
        return {post_id: match_of(payload) for post_id, payload in found.items()}

    async def present(self, post_ids: Sequence[str]) -> set[str]:
        return set(await self._heads(post_ids, ["pieces", "hidden", "original_hidden", "bare"]))

    async def copies(self, matches: Sequence[Match], limit: int = 200) -> dict[str, list[Copy]]:
        return await copies(self._calls, matches, limit)

    async def receipt(self, post_id: str) -> Receipt | None:
        records = await self._calls.retrieve([point_id(post_id)])
        return next((receipt_of(post_id, payload_in(record)) for record in records.values()), None)

    async def summary(self) -> Summary:
        old = Condition("sort_ms", lte=self._clock() - self._window_ms - 1)
        posts, warm_posts, removals, hidden, newest = await asyncio.gather(
            self._calls.count(FOUND),
            self._calls.count([*FOUND, old]),
            self._calls.count([REMOVED]),
            self._calls.count([HIDDEN_ACCOUNTS]),
            self._calls.first([*FOUND, BELIEVED], ["sort_ms"], 1, models.Direction.DESC),
        )
        return Summary(posts, newest[0]["sort_ms"] if newest else None, warm_posts, removals, hidden)

    async def maintain(self, now_ms: int) -> None:
        """The server vacuums by itself."""
        forgotten_ms = now_ms - self._window_ms - TOMBSTONES_KEPT_MS
        for old in (
            [Condition("sort_ms", lte=now_ms - self._kept_ms - 1)],
            [Condition("removed_ms", lte=forgotten_ms - 1)],
            [Condition("account_state", ("active",)), Condition("changed_ms", lte=forgotten_ms - 1)],
        ):
            await self._calls.delete_where(where(old))
        if self._max_posts is not None:
            await self._drop_oldest(await self._calls.count(POSTS) - self._max_posts)

    async def close(self) -> None:
        await self._calls.close()

    async def _drop_oldest(self, excess: int) -> None:
        while excess > 0:
            oldest = await self._calls.first(
                POSTS, ["post_id", "pieces"], min(excess, PAGE), models.Direction.ASC
            )  # fmt: skip
            if not oldest:
                return
            await self._calls.delete(
                [point_id(post["post_id"], number) for post in oldest for number in range(post["pieces"])]
            )
            excess -= len(oldest)

    async def _heads(self, post_ids: Sequence[str], fields: Sequence[str] | None) -> dict[str, Payload]:
        """The first pieces of the posts that can be found."""
        post_of = {point_id(post_id): post_id for post_id in post_ids}
        found = {}
        for i, record in (await self._calls.retrieve(list(post_of), fields)).items():
            payload = payload_in(record)
            if payload["pieces"] and YES not in (payload.get(m) for m in ("hidden", "original_hidden", "bare")):
                found[post_of[i]] = payload
        return found


async def connect(
    url: str,
    *,
    api_key: str = "",
    collection: str = "groundswell",
    shards: int = 1,
    replicas: int = 1,
    window_h: float = 72.0,
    max_posts: int = 200_000,
    warm_days: float = 30.0,
) -> ServerIndex:
    """Raises IndexUnavailable, which says what is wrong: the address, the key, the version, or the collection."""
    try:
        client = AsyncQdrantClient(
            url=url, api_key=api_key or None, timeout=int(ASK_TIMEOUT_S), check_compatibility=False
        )  # fmt: skip
    except ValueError as error:
        raise IndexUnavailable(url, f"is no address of a server: {error}") from error
    try:
        return await ServerIndex.open(
            client,
            collection,
            url=url,
            shards=shards,
            replicas=replicas,
            window_h=window_h,
            max_posts=max_posts,
            warm_days=warm_days,
        )
    except BaseException:
        await client.close()
        raise
