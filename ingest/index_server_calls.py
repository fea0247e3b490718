"""Calls to a Qdrant server: each with a time-out, made again when it fails for a reason that may pass. Knows no posts.

Every change waits until it can be seen (`wait`), names its points by ids that never change, and states conditions: made
twice, it leaves what it leaves when made once. So a call whose answer was lost is simply made again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from qdrant_client import AsyncQdrantClient, models
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from ingest.index_points import Condition, Payload
from ingest.index_server_filter import where

log = logging.getLogger(__name__)
T = TypeVar("T")

ATTEMPTS = 6
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0
CHANGE_TIMEOUT_S, ASK_TIMEOUT_S = 30.0, 10.0
REQUEST_BYTES, REQUEST_POINTS = 4_000_000, 500  # a server takes 32 MB
REQUEST_IDS = 1000
PAGE = 1000


class IndexUnavailable(ConnectionError):
    """The server cannot be reached, refuses the key, is too old, or holds something else under that name."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(url, reason)
        self.url, self.reason = url, reason

    def __str__(self) -> str:
        return f"index {self.url}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Write:
    """Points that are written where `condition` holds, or where there is nothing yet. `size`: bytes, at most about."""

    points: list[models.PointStruct]
    condition: models.Filter
    size: int


class Calls:
    """`replicas`: of each shard. Raises IndexUnavailable once ATTEMPTS have failed."""

    def __init__(
        self,
        client: AsyncQdrantClient,
        collection: str,
        url: str,
        replicas: int,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client, self.collection, self.url, self._sleep = client, collection, url, sleep
        # A write is acknowledged by most replicas (index_server_collection.py), so what most of them have is read.
        self._consistency = models.ReadConsistencyType.QUORUM if replicas > 1 else None
        self._ordering = models.WriteOrdering.STRONG if replicas > 1 else None
        self.retries = 0

    # -- changing

    async def write(self, writes: Iterable[Write]) -> None:
        """In order, in as few requests as their size allows."""
        for some in _requests(writes):
            operations = [
                models.UpsertOperation(upsert=models.PointsList(points=write.points, update_filter=write.condition))
                for write in some
            ]
            await self._change(self._client.batch_update_points, update_operations=operations)

    async def delete(self, ids: Sequence[str]) -> None:
        for part in _parts(ids):
            await self._change(self._client.delete, points_selector=models.PointIdsList(points=list(part)))

    async def delete_where(self, condition: models.Filter) -> None:
        await self._change(self._client.delete, points_selector=models.FilterSelector(filter=condition))

    async def set_where(self, conditions: Iterable[Condition], payload: Payload) -> None:
        chosen = models.FilterSelector(filter=where(conditions))
        await self._change(self._client.set_payload, payload=payload, points=chosen)

    # -- asking

    async def retrieve(
        self, ids: Iterable[str], fields: Sequence[str] | None = None, with_vectors: bool = False
    ) -> dict[str, models.Record]:
        """By point id; `fields` None: the whole payload."""
        found: dict[str, models.Record] = {}
        for part in _parts(list(ids)):
            wanted = True if fields is None else list(fields)
            records = await self._ask(
                self._client.retrieve, ids=part, with_payload=wanted, with_vectors=with_vectors
            )  # fmt: skip
            found |= {str(record.id): record for record in records}
        return found

    async def query(self, requests: Sequence[models.QueryRequest]) -> list[list[models.ScoredPoint]]:
        """All of them in one round trip."""
        if not requests:
            return []
        answers = await self._ask(self._client.query_batch_points, requests=requests)
        return [answer.points for answer in answers]

    async def scroll(self, conditions: Iterable[Condition], fields: Sequence[str]) -> AsyncIterator[Payload]:
        """All payloads for which the conditions hold, page by page."""
        condition, offset = where(conditions), None
        while True:
            records, offset = await self._page(condition, fields, PAGE, offset, None)
            for record in records:
                yield payload_in(record)
            if offset is None:
                return

    async def first(
        self, conditions: Iterable[Condition], fields: Sequence[str], limit: int, direction: models.Direction
    ) -> list[Payload]:
        """By sort time."""
        order = models.OrderBy(key="sort_ms", direction=direction)
        records, _ = await self._page(where(conditions), fields, limit, None, order)
        return [payload_in(record) for record in records]

    async def count(self, conditions: Iterable[Condition]) -> int:
        answer = await self._until_done(
            partial(self._client.count, self.collection, where(conditions), exact=True), ASK_TIMEOUT_S
        )
        return int(answer.count)

    async def close(self) -> None:
        await self._client.close()

    async def _page(
        self, condition: models.Filter, fields: Sequence[str], limit: int, offset: Any, order: models.OrderBy | None
    ) -> tuple[list[models.Record], Any]:
        asked = {"scroll_filter": condition, "limit": limit, "offset": offset, "order_by": order}
        return await self._ask(self._client.scroll, **asked, with_payload=list(fields))

    async def _change(self, call: Callable[..., Awaitable[Any]], **given: Any) -> None:
        given |= {"wait": True, "ordering": self._ordering}
        await self._until_done(partial(call, self.collection, **given), CHANGE_TIMEOUT_S)

    async def _ask(self, call: Callable[..., Awaitable[T]], **given: Any) -> T:
        given |= {"consistency": self._consistency}
        return await self._until_done(partial(call, self.collection, **given), ASK_TIMEOUT_S)

    async def _until_done(self, call: Callable[..., Awaitable[T]], timeout_s: float) -> T:
        pause_s = FIRST_PAUSE_S
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with asyncio.timeout(timeout_s + 1):  # the server gives up first
                    return await call(timeout=int(timeout_s))
            except (UnexpectedResponse, ResponseHandlingException, ResourceExhaustedResponse, TimeoutError) as error:
                reason = reason_of(error)
                if attempt == ATTEMPTS or not may_pass(error):
                    raise IndexUnavailable(self.url, reason) from error
                self.retries += 1
                log.warning("index server: %s, attempt %d", reason, attempt)
                await self._sleep(max(pause_s, getattr(error, "retry_after_s", 0)))
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        raise AssertionError("the last attempt returns or raises")


def may_pass(error: Exception) -> bool:
    """Whether the same call may succeed later: time-outs, lost connections, an overloaded or broken server."""
    status = error.status_code if isinstance(error, UnexpectedResponse) else None
    return status is None or status in (408, 429) or status >= 500


def reason_of(error: Exception) -> str:
    """In a few words, without anything of a request."""
    if isinstance(error, UnexpectedResponse):
        known = {401: "refuses the API key", 403: "refuses the API key", 404: "has no such collection"}
        return known.get(error.status_code or 0, f"answers with status {error.status_code}")
    if isinstance(error, ResourceExhaustedResponse):
        return "is overloaded"
    if isinstance(error, ResponseHandlingException):
        return f"cannot be reached ({type(error.source).__name__})"
    return "does not answer in time"


def payload_in(point: models.Record | models.ScoredPoint) -> Payload:
    assert point.payload is not None
    return point.payload


def _requests(writes: Iterable[Write]) -> Iterable[list[Write]]:
    held: list[Write] = []
    size = points = 0
    for write in writes:
        if held and (size + write.size > REQUEST_BYTES or points + len(write.points) > REQUEST_POINTS):
            yield held
            held, size, points = [], 0, 0
        held.append(write)
        size, points = size + write.size, points + len(write.points)
    if held:
        yield held


def _parts(ids: Sequence[str]) -> list[Sequence[str]]:
    return [ids[start : start + REQUEST_IDS] for start in range(0, len(ids), REQUEST_IDS)]
