"""Our place in a consumer group: reads ahead into a buffer, whatever the loop is waiting for, and reconnects for ever:
after a broker restart, a lost topic, a consumer that is alive but stuck (aiokafka#1154)."""

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Protocol

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import ConsumerStoppedError, KafkaError

from ingest.buffer import Buffer
from ingest.feed_batch import FeedRecord
from ingest.kafka import REQUEST_TIMEOUT_S, count_members, ensure_topic, group_consumer, stop
from ingest.kafka_lag import Lag
from ingest.watchdog import Watchdog

log = logging.getLogger(__name__)

POLL_RECORDS = 64  # by so many the buffer can pass its limits
POLL_MS = 500
WATCH_EVERY_S = 1.0
HEALTHY_FOR_S = 5.0
LAST_COMMIT_S = 1.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
LOST = (KafkaError, ConsumerStoppedError, OSError, TimeoutError)


class Holder(Protocol):
    """Who has records in work."""

    async def hand_back(self) -> None: ...  # before the partitions go to another member; soon
    def start_over(self) -> None: ...  # what was taken from the buffer commits nothing any more


class GroupMember:
    """`run` it; take from the buffer. Holds every partition that the group gives it."""

    def __init__(
        self,
        brokers: list[str],
        topic: str,
        group: str,
        buffer: Buffer,
        holder: Holder,
        *,
        session_timeout_s: float,
        stall_s: float,
    ) -> None:
        self._brokers, self._topic, self._group = brokers, topic, group
        self._session_timeout_s = session_timeout_s
        self._buffer, self._holder = buffer, holder
        self._consumer: AIOKafkaConsumer | None = None
        self._committing: asyncio.Task[None] | None = None
        self._lag = Lag(topic, self._count_members, self._ensure_topic)
        self._watchdog = Watchdog(stall_s)
        self._fetched: dict[int, int] = {}  # partition -> the last offset
        self._fault = "not connected yet"
        self.behind = 0  # records of our partitions that were not fetched yet
        self.rebuilds = 0
        self.newest_ms: int | None = None

    @property
    def fault(self) -> str:
        """Why it is not healthy, "" when it is."""
        if self._fault or self._consumer is None:
            return self._fault
        silent_s = self._watchdog.silent_s
        return "" if silent_s < HEALTHY_FOR_S else f"the broker has not answered for {silent_s:.0f} s"

    def check(self) -> None:
        """Raises FeedStalled when nothing has moved for long, though the consumer was built anew again and again."""
        self._watchdog.check(self.fault or "records wait and do not come")

    async def run(self) -> None:
        """Until it is cancelled. Never raises for the broker's faults."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                consumer = await self._connect()
                pause_s = FIRST_PAUSE_S
                await self._read(consumer)
                log.warning("feed stuck, topic %s, group %s: rebuilding", self._topic, self._group)
            except LOST as error:
                self._fault = f"{type(error).__name__}: {error}" if isinstance(error, KafkaError) else repr(error)
                log.warning("feed lost, topic %s, group %s: %s", self._topic, self._group, type(error).__name__)
            await self.leave()
            self.rebuilds += 1
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def commit(self, offsets: Mapping[int, int]) -> bool:
        """Whether the broker took it. After a rebalance it does not: the next owner reads the records again."""
        if self._consumer is None:
            return False
        of_topic = {TopicPartition(self._topic, partition): offset for partition, offset in offsets.items()}
        committing = self._committing = asyncio.create_task(self._consumer.commit(of_topic))
        await _ended(committing, REQUEST_TIMEOUT_S)
        if committing.cancelled():
            fault = "no answer"
        elif (error := committing.exception()) is None:
            return True
        elif isinstance(error, LOST):  # CommitFailedError, and IllegalStateError for what is not ours (T9)
            fault = type(error).__name__
        else:
            raise error
        log.warning("commit dropped, topic %s, group %s: %s", self._topic, self._group, fault)
        return False

    async def leave(self) -> None:
        """The group and the broker."""
        self._fault = self._fault or "reconnecting"
        consumer, self._consumer = self._consumer, None
        if self._committing is not None:  # aiokafka repeats it for ever once it is closing
            await _ended(self._committing, LAST_COMMIT_S)
        self._start_over()
        if consumer is not None:
            await stop(consumer)

    async def revoked(self) -> None:
        """Holds no lock that a commit needs, and never waits for a poll, which itself waits for the rebalance."""
        self._buffer.clear()
        await self._holder.hand_back()
        self._start_over()

    async def _connect(self) -> AIOKafkaConsumer:
        await self._ensure_topic()
        consumer = self._consumer = group_consumer(self._brokers, self._group, self._session_timeout_s)
        consumer.subscribe([self._topic], listener=_Revoked(self))
        async with asyncio.timeout(60 + 4 * self._session_timeout_s):
            await consumer.start()
        self._watchdog.built()
        self._fault = ""
        return consumer

    async def _read(self, consumer: AIOKafkaConsumer) -> None:
        """Returns when the consumer is stuck."""
        watching = asyncio.create_task(self._watch(consumer))
        try:
            while not self._watchdog.is_stuck:
                await self._rewind(consumer)
                if self._buffer.is_full:
                    await self._wait_for_room(consumer)
                else:
                    await self._poll(consumer)
                    await asyncio.sleep(0)  # a backlog is fetched without waiting: the loop has its turn too
            self._fault = "nothing came for long: rebuilding the consumer"
        finally:
            watching.cancel()
            await asyncio.wait([watching])

    async def _poll(self, consumer: AIOKafkaConsumer) -> None:
        """At once when records are there. Time-boxed, because getmany waits for ever in a rebalance that never ends."""
        try:
            async with asyncio.timeout(POLL_MS / 1000 + 1):
                fetched = await consumer.getmany(timeout_ms=POLL_MS, max_records=POLL_RECORDS)
        except TimeoutError:
            return
        # No await from here to the buffer: a rebalance in between would leave in it what is no longer ours.
        now_ms = time.time_ns() // 1_000_000
        for partition, records in fetched.items():
            if records[0].offset <= self._fetched.get(partition.partition, -1):
                self._start_over()  # aiokafka has gone back by itself: the topic is shorter than it was
            self._fetched[partition.partition] = records[-1].offset
            self._buffer.put(
                [
                    FeedRecord(r.topic, r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers))
                    for r in records
                ]
            )
            newest_ms = min(now_ms, max(record.timestamp for record in records))
            self.newest_ms = newest_ms if self.newest_ms is None else max(self.newest_ms, newest_ms)
            self._watchdog.moved()

    async def _wait_for_room(self, consumer: AIOKafkaConsumer) -> None:
        """Paused partitions are not fetched, but polled: who stops polling for minutes loses its place in the group."""
        while self._buffer.is_full:
            consumer.pause(*consumer.assignment())
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_MS / 1000):
                    await consumer.getmany()
                    await self._buffer.room()
            self._watchdog.moved()
        consumer.resume(*consumer.paused())

    async def _watch(self, consumer: AIOKafkaConsumer) -> None:
        """Once a second: how far behind. The same question shows whether the broker still answers."""
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            with suppress(*LOST):
                async with asyncio.timeout(HEALTHY_FOR_S):
                    self.behind = await self._lag.records_behind(consumer)
                self._watchdog.answered()
                if self.behind == 0 and not self._lag.is_left_out:
                    self._watchdog.moved()

    async def _rewind(self, consumer: AIOKafkaConsumer) -> None:
        if ours := self._lag.made_anew(consumer):
            log.warning("topic %s, group %s: made anew, reading it from its start", self._topic, self._group)
            self._start_over()
            await consumer.seek_to_beginning(*ours)

    def _start_over(self) -> None:
        self._buffer.clear()
        self._fetched.clear()
        self._lag.start_over()
        self._holder.start_over()

    async def _ensure_topic(self) -> None:
        await ensure_topic(self._brokers, self._topic)

    async def _count_members(self) -> int:
        return await count_members(self._brokers, self._group)


async def _ended(task: asyncio.Task[None], timeout_s: float) -> None:
    """By itself, or cancelled."""
    await asyncio.wait([task], timeout=timeout_s)
    if not task.done():
        task.cancel()
        await asyncio.wait([task])


class _Revoked(ConsumerRebalanceListener):
    def __init__(self, member: GroupMember) -> None:
        self._member = member

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Always of all of them: aiokafka speaks the eager protocol."""
        await self._member.revoked()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        pass
