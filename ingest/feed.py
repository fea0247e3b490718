"""The topic as the loop sees it: batches of raw records in, offsets out. Decodes nothing; the broker is behind
ingest/kafka_member.py."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress

from ingest.buffer import Buffer
from ingest.dead_letters import DeadLetterWriter
from ingest.feed_batch import FeedBatch, FeedRecord
from ingest.kafka import require_codecs
from ingest.kafka_member import GroupMember
from ingest.offsets import Offsets

BATCH_RECORDS, BATCH_BYTES = 256, 2_000_000
BUFFER_RECORDS, BUFFER_BYTES = 2048, 16_000_000


class KafkaFeed:
    """A member of a consumer group. Iterate it, and `commit` each batch when done: the rest is delivered again.

    Batches may be committed in any order, while later ones are in work; only what has nothing unfinished before it
    becomes the group's offset. `session_timeout_s`: how long a member may be silent; Tansu makes the first member wait
    half of it, Kafka refuses less than 6. `stall_s`: no progress for so long, with records waiting or the broker
    silent, rebuilds the consumer.
    """

    def __init__(
        self, brokers: str, topic: str, group: str, *, session_timeout_s: float = 6.0, stall_s: float = 20.0
    ) -> None:
        """Raises CodecMissing."""
        require_codecs()
        self._buffer, self._offsets = Buffer(BUFFER_RECORDS, BUFFER_BYTES), Offsets()
        self._member = GroupMember(
            brokers.split(","), topic, group, self._buffer, self, session_timeout_s=session_timeout_s, stall_s=stall_s
        )
        self._dead_letters = DeadLetterWriter(brokers, topic)
        self._hand_back_s = session_timeout_s / 4
        self._running: asyncio.Task[None] | None = None
        self._committing, self._settled = asyncio.Lock(), asyncio.Event()
        self._reading = 0  # goes up whenever what was handed over is no longer ours to commit
        self._closed = False
        self.failed_commits = 0

    @property
    def lag_records(self) -> int:
        """What waits in the topic or the buffer, or is in work."""
        return self._member.behind + len(self._buffer) + self._offsets.unfinished_records

    @property
    def newest_ms(self) -> int | None:
        """The newest record's own time, not later than its arrival."""
        return self._member.newest_ms

    @property
    def rebuilds(self) -> int:
        return self._member.rebuilds

    @property
    def fault(self) -> str:
        """Why the feed is not healthy, "" when it is."""
        return self._member.fault

    def check(self) -> None:
        """Raises FeedStalled when nothing has moved for long, though the consumer was built anew again and again."""
        if self._running is not None:
            self._member.check()

    async def __aiter__(self) -> AsyncIterator[FeedBatch]:
        """Ends after `close`. Never raises for the broker's faults: `fault` says what is wrong meanwhile."""
        assert self._running is None, "iterated twice"
        if self._closed:
            return
        running = self._running = asyncio.create_task(self._member.run())
        running.add_done_callback(lambda _: self._buffer.end())
        while await self._buffer.filled():
            yield self._next_batch()
        if not self._closed:
            await running  # raises what was no fault of the broker

    async def commit(self, batch: FeedBatch) -> None:
        """Returns when the broker has it, or at once if a batch before it is unfinished. After a rebalance or a lost
        broker a commit is dropped and counted: the next owner reads the records again."""
        if batch.reading != self._reading:
            self.failed_commits += 1
            return
        known = [self._offsets.finish(partition, end) for partition, end in batch.next_offsets.items()]
        self.failed_commits += not all(known)
        async with self._committing:  # who waits here may find its offsets committed with another's
            if due := self._offsets.due():
                reading = self._reading
                is_taken = await self._member.commit(due)
                self.failed_commits += not is_taken
                if is_taken and reading == self._reading:
                    self._offsets.committed(due)
        if not self._offsets.unfinished_records:
            self._settled.set()

    async def set_aside(self, record: FeedRecord, reason: str, detail: str = "") -> None:
        """Keeps a record that is no post on the dead-letter topic. Raises KafkaError."""
        await self._dead_letters.add(record, reason, detail)

    async def close(self) -> None:
        """Leaves the group; the iteration ends."""
        self._closed = True
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        await self._member.leave()
        await self._dead_letters.close()

    async def hand_back(self) -> None:
        """What is in work gets a moment to finish, so that the next owner does not do it again."""
        if self._offsets.unfinished_records:
            self._settled.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._hand_back_s):
                    await self._settled.wait()

    def start_over(self) -> None:
        """What was handed over commits nothing any more; it will be read again, here or by another member."""
        self._reading += 1
        self._offsets.forget()

    def _next_batch(self) -> FeedBatch:
        records = self._buffer.take(BATCH_RECORDS, BATCH_BYTES)
        records.sort(key=lambda record: record.partition)  # stable: each partition keeps its order
        ends = {record.partition: record.offset + 1 for record in records}
        for partition, count in Counter(record.partition for record in records).items():
            self._offsets.hand_out(partition, ends[partition], count)
        return FeedBatch(tuple(records), ends, time.time_ns() // 1_000_000, self._reading)
