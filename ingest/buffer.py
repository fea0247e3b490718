"""Records between the broker and the loop, bounded in number and bytes. Knows no broker."""

import asyncio
from collections import deque
from collections.abc import Sequence

from ingest.feed_batch import FeedRecord


class Buffer:
    """First in, first out. It is full at either limit and has room again at half of both; `put` may pass a limit once,
    by what one poll brings."""

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self._max_records, self._max_bytes = max_records, max_bytes
        self._records: deque[FeedRecord] = deque()
        self._bytes = 0
        self._has_ended = False
        self._filled, self._room = asyncio.Event(), asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        return len(self._records)

    @property
    def is_full(self) -> bool:
        return not self._room.is_set()

    def put(self, records: Sequence[FeedRecord]) -> None:
        self._records.extend(records)
        self._bytes += sum(record.size for record in records)
        if self._records:
            self._filled.set()
        if len(self._records) >= self._max_records or self._bytes >= self._max_bytes:
            self._room.clear()

    def take(self, max_records: int, max_bytes: int) -> list[FeedRecord]:
        """What is there, within both limits; a record that is larger by itself comes alone."""
        taken: list[FeedRecord] = []
        size = 0
        while self._records and len(taken) < max_records:
            size += self._records[0].size
            if taken and size > max_bytes:
                break
            taken.append(self._records.popleft())
        self._bytes -= sum(record.size for record in taken)
        self._mark()
        return taken

    def clear(self) -> None:
        self._records.clear()
        self._bytes = 0
        self._mark()

    def _mark(self) -> None:
        if not self._records and not self._has_ended:
            self._filled.clear()
        if len(self._records) <= self._max_records // 2 and self._bytes <= self._max_bytes // 2:
            self._room.set()

    def end(self) -> None:
        """Nothing will be put any more, and what is left is of no use."""
        self._has_ended = True
        self._filled.set()

    async def filled(self) -> bool:
        """True when there is something to take, False after the end."""
        while not self._records and not self._has_ended:  # it may be emptied before its waiter runs
            await self._filled.wait()
        return not self._has_ended

    async def room(self) -> None:
        """Returns when there is room."""
        await self._room.wait()
