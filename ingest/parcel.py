"""What one or more batches of the feed still have to leave in the index, and the lanes on which stages hand it on."""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Protocol

from ingest.post import Passage
from ingest.versions import Newest


class RawRecord(Protocol):
    """A record of the topic as it came. `timestamp_ms` is -1 when the producer set none."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...


class Batch(Protocol):
    @property
    def records(self) -> tuple[Any, ...]: ...  # of RawRecord
    @property
    def received_ms(self) -> int: ...


@dataclass(slots=True, eq=False)
class Parcel:
    """Batches that follow each other in the feed. `arrived_s` is monotonic; `oldest_ms` is a record's own time."""

    batches: list[Batch]
    arrived_s: float
    records: int
    size: int  # bytes of its records
    oldest_ms: int
    newest: Newest = field(default_factory=Newest)
    raw: dict[str, RawRecord] = field(default_factory=dict)  # by post id, should the post turn out to be unfit
    passages: list[Passage] = field(default_factory=list)

    @classmethod
    def of(cls, batch: Batch, arrived_s: float) -> "Parcel":
        records = batch.records
        times = [raw.timestamp_ms if raw.timestamp_ms >= 0 else batch.received_ms for raw in records]
        size = sum(len(raw.value or b"") + len(raw.key or b"") for raw in records)
        return cls([batch], arrived_s, len(records), size, min(times, default=batch.received_ms))

    def join(self, later: "Parcel") -> None:
        assert not self.passages and not later.passages, "only what is not embedded yet can be joined"
        self.batches += later.batches
        self.records += later.records
        self.size += later.size
        self.oldest_ms = min(self.oldest_ms, later.oldest_ms)
        self.newest.join(later.newest)
        self.raw |= later.raw


class Lane:
    """A short queue between two stages: in order, bounded in records and bytes, with one on each side.

    A parcel that is larger than the bounds is let in when the lane is empty.
    """

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self._max_records, self._max_bytes = max_records, max_bytes
        self._parcels: deque[Parcel] = deque()
        self._changed = asyncio.Condition()
        self._closed = False

    async def put(self, parcel: Parcel) -> None:
        """Waits until there is room."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._has_room(parcel))
            self._parcels.append(parcel)
            self._changed.notify_all()

    async def take(self) -> list[Parcel]:
        """All that waits, at least one; [] once the lane is closed and empty."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._parcels or self._closed)
            taken = list(self._parcels)
            self._parcels.clear()
            self._changed.notify_all()
            return taken

    async def close(self) -> None:
        """Nothing more will be put."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _has_room(self, parcel: Parcel) -> bool:
        records = parcel.records + sum(waiting.records for waiting in self._parcels)
        size = parcel.size + sum(waiting.size for waiting in self._parcels)
        return not self._parcels or (records <= self._max_records and size <= self._max_bytes)
