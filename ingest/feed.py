"""The only consumer door to Kafka: batches of raw records in, offsets out. Decodes nothing.

Reconnects for ever: after a broker restart, a lost topic, a consumer that is alive but stuck (aiokafka#1154).
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, TopicAlreadyExistsError, for_code

log = logging.getLogger(__name__)
# Its DEBUG lines hold keys and values, which no log of ours may; while a broker is away it logs ten errors a second.
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)

PARTITIONS = 4
BATCH_RECORDS = 64
# Kafka answers a fetch as soon as there is a record; Tansu looks again only after half of this time or more.
FETCH_WAIT_MS = 50
POLL_MS = 500
REQUEST_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 5.0
WATCH_EVERY_S = 1.0
AHEAD_LOOKS = 3  # in a row
HEALTHY_FOR_S = 5.0
MAX_DEAD_LETTER_BYTES = 32_000_000


@dataclass(frozen=True, slots=True)
class FeedRecord:
    """A Kafka record as it came. `timestamp_ms` is -1 when the producer set none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class FeedBatch:
    """Records in the order of their partitions, without gaps; `next_offsets` is where each partition goes on."""

    records: tuple[FeedRecord, ...]
    next_offsets: dict[int, int]
    received_ms: int
    reading: int = 0  # of the consumer that fetched it: another's offsets may be of another topic of that name


class KafkaFeed:
    """A member of a consumer group. Iterate it, and `commit` each batch when done: the rest is delivered again.

    `session_timeout_s`: how long a member may be silent; Tansu makes the first member wait half of it, Kafka refuses
    less than 6. `stall_s`: no progress for so long, with records waiting or the broker silent, rebuilds the consumer.
    """

    def __init__(
        self, brokers: str, topic: str, group: str, *, session_timeout_s: float = 6.0, stall_s: float = 20.0
    ) -> None:
        self._brokers, self._topic, self._group = brokers.split(","), topic, group
        self._session_timeout_s, self._stall_s = session_timeout_s, stall_s
        self._consumer: AIOKafkaConsumer | None = None
        self._dead_letters: AIOKafkaProducer | None = None
        self._watching: asyncio.Task[None] | None = None
        self._closed = False
        self._reading = 0
        self._ahead: Counter[TopicPartition] = Counter()  # looks that found us beyond the end of the partition
        self._behind = 0  # records of our partitions that were not handed over yet
        self._in_flight = 0  # handed over, not committed
        self._answered_s = self._moved_s = 0.0  # when the broker last answered, when records last moved or none waited
        self._fault = "not connected yet"
        self.failed_commits = 0
        self.rebuilds = 0
        self.newest_ms: int | None = None

    @property
    def lag_records(self) -> int:
        return self._behind + self._in_flight

    @property
    def fault(self) -> str:
        """Why the feed is not healthy, "" when it is."""
        if self._fault or self._consumer is None:
            return self._fault
        silent_s = time.monotonic() - self._answered_s
        return "" if silent_s < HEALTHY_FOR_S else f"the broker has not answered for {silent_s:.0f} s"

    async def __aiter__(self) -> AsyncIterator[FeedBatch]:
        """Ends after `close`. Never raises for the broker's faults: `fault` says what is wrong meanwhile."""
        pause_s = 0.2
        while not self._closed:
            try:
                consumer = await self._connect()
                pause_s = 0.2
                while not self._closed and not self._is_stuck():
                    await self._rewind(consumer)
                    if batch := await self._poll(consumer):
                        yield batch
            except (KafkaError, OSError, TimeoutError) as error:
                self._fault = f"{type(error).__name__}: {error}" if isinstance(error, KafkaError) else repr(error)
                log.warning("feed lost, topic %s, group %s: %s", self._topic, self._group, type(error).__name__)
            await self._disconnect()
            if not self._closed:
                self.rebuilds += 1
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, 5.0)

    async def _connect(self) -> AIOKafkaConsumer:
        await ensure_topic(self._brokers, self._topic)
        consumer = self._consumer = AIOKafkaConsumer(
            self._topic,
            bootstrap_servers=self._brokers,
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=FETCH_WAIT_MS,
            session_timeout_ms=int(self._session_timeout_s * 1000),
            heartbeat_interval_ms=int(self._session_timeout_s * 1000 / 3),
            request_timeout_ms=int(REQUEST_TIMEOUT_S * 1000),
            metadata_max_age_ms=30_000,
        )
        async with asyncio.timeout(60 + 4 * self._session_timeout_s):
            await consumer.start()
        self._answered_s = self._moved_s = time.monotonic()
        self._fault = ""
        self._reading += 1
        self._ahead.clear()
        self._watching = asyncio.create_task(self._watch(consumer))
        return consumer

    async def _poll(self, consumer: AIOKafkaConsumer) -> FeedBatch | None:
        """At once when records are there. Time-boxed, because getmany waits for ever in a rebalance that never ends."""
        try:
            async with asyncio.timeout(POLL_MS / 1000 + 1):
                fetched = await consumer.getmany(timeout_ms=POLL_MS, max_records=BATCH_RECORDS)
        except TimeoutError:
            return None
        records = tuple(
            FeedRecord(r.topic, r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers))
            for of_partition in fetched.values()
            for r in of_partition
        )
        if not records:
            return None
        self._moved_s = time.monotonic()
        self._in_flight = len(records)
        self.newest_ms = max(self.newest_ms or 0, *(record.timestamp_ms for record in records))
        ends = {partition.partition: of_partition[-1].offset + 1 for partition, of_partition in fetched.items()}
        return FeedBatch(records, ends, time.time_ns() // 1_000_000, self._reading)

    async def commit(self, batch: FeedBatch) -> None:
        """After a rebalance or a lost broker a commit is dropped and counted: its new owner reads the records again."""
        self._in_flight = 0
        self._moved_s = time.monotonic()
        if self._consumer is None or batch.reading != self._reading:
            self.failed_commits += 1
            return
        ours = self._consumer.assignment()
        ends = {TopicPartition(self._topic, partition): end for partition, end in batch.next_offsets.items()}
        kept = {partition: end for partition, end in ends.items() if partition in ours}
        is_whole = len(kept) == len(ends)
        self.failed_commits += not is_whole
        if not kept:
            return
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await self._consumer.commit(kept)
        except (KafkaError, TimeoutError) as error:
            self.failed_commits += is_whole
            log.warning("commit dropped, topic %s, group %s: %s", self._topic, self._group, type(error).__name__)

    async def set_aside(self, record: FeedRecord, reason: str) -> None:
        """Keeps a record that is no post on `<topic>.dlq`, as it came, with where it was and why. Raises KafkaError."""
        topic = f"{self._topic}.dlq"
        where = {"topic": record.topic, "partition": record.partition, "offset": record.offset, "reason": reason}
        headers = [*record.headers, *((name, str(content).encode()) for name, content in where.items())]
        key = record.key if record.key is not None or record.value is not None else b""
        try:
            # Each time: Tansu acknowledges what is sent to a topic that it has lost, and drops it.
            await ensure_topic(self._brokers, topic, partitions=1)
            if self._dead_letters is None:
                self._dead_letters = plain_producer(self._brokers, max_request_size=MAX_DEAD_LETTER_BYTES)
                await self._dead_letters.start()
            try:
                await self._dead_letters.send_and_wait(topic, record.value, key, headers=headers)
            except MessageSizeTooLargeError:  # the broker's own limit: keep what says where it was
                await self._dead_letters.send_and_wait(topic, b"", key, headers=headers)
        except KafkaError:  # a broker may have come back without the topic: the next try makes it again
            await self._stop_dead_letters()
            raise

    async def close(self) -> None:
        """Leaves the group. The iteration ends within a poll."""
        self._closed = True
        await self._disconnect()
        await self._stop_dead_letters()

    async def _stop_dead_letters(self) -> None:
        """What is still unsent has been reported as failed, so that a broker that is gone is not waited for."""
        producer, self._dead_letters = self._dead_letters, None
        if producer is not None:
            with suppress(KafkaError):
                await producer.stop()

    async def _disconnect(self) -> None:
        self._fault = self._fault or "reconnecting"
        watching, self._watching = self._watching, None
        consumer, self._consumer = self._consumer, None
        if watching is not None:
            watching.cancel()
            await asyncio.wait([watching])
        if consumer is not None:
            await _stop(consumer)

    def _is_stuck(self) -> bool:
        """Records wait and none came, or the broker has been silent, for `stall_s`."""
        now_s = time.monotonic()
        if now_s - min(self._answered_s, self._moved_s) < self._stall_s:
            return False
        self._fault = f"stuck for {self._stall_s:.0f} s: rebuilding the consumer"
        log.warning("feed stuck, topic %s, group %s: rebuilding", self._topic, self._group)
        return True

    async def _watch(self, consumer: AIOKafkaConsumer) -> None:
        """Once a second: how far behind. The same question shows whether the broker still answers."""
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            with suppress(KafkaError, OSError, TimeoutError):
                async with asyncio.timeout(HEALTHY_FOR_S):
                    self._behind = await self._records_behind(consumer)
                self._answered_s = time.monotonic()
                if self._behind == 0 or self._in_flight:
                    self._moved_s = self._answered_s

    async def _records_behind(self, consumer: AIOKafkaConsumer) -> int:
        partitions = list(consumer.assignment())
        if not partitions:  # more members than partitions, or the topic has gone
            if self._topic not in await consumer.topics():
                await ensure_topic(self._brokers, self._topic)
            return 0
        ends = await consumer.end_offsets(partitions)
        behind = 0
        for partition in partitions:
            if partition not in consumer.assignment():  # revoked while we waited
                continue
            # Tansu's end misses all but one record of the last batch; what a fetch has seen is right, but may be old.
            seen = consumer.highwater(partition)
            position = await consumer.position(partition)
            behind += max(0, max(ends[partition], seen or 0) - position)
            is_ahead = ends[partition] < position and seen is not None and seen < position
            self._ahead[partition] = self._ahead[partition] + 1 if is_ahead else 0
        return behind

    async def _rewind(self, consumer: AIOKafkaConsumer) -> None:
        """Back to the start of partitions that ended before our position for some looks: the topic was made anew.

        Kafka answers such a fetch with an error, which aiokafka handles; Tansu with nothing, until the topic has grown.
        """
        ahead = {partition for partition, looks in self._ahead.items() if looks >= AHEAD_LOOKS}
        ours = ahead & consumer.assignment()
        for partition in ahead:
            del self._ahead[partition]
        if ours:
            log.warning("topic %s, group %s: made anew, reading it from its start", self._topic, self._group)
            self._reading += 1
            await consumer.seek_to_beginning(*ours)


async def _stop(consumer: AIOKafkaConsumer) -> None:
    """Leaves the group if the broker can still hear it, and closes the connections in any case.

    In a task of its own: stop can raise the CancelledError of its own tasks (aiokafka#647), or wait for a dead broker.
    """
    stopping = asyncio.create_task(consumer.stop())
    await asyncio.wait([stopping], timeout=STOP_TIMEOUT_S)
    if not stopping.done():
        stopping.cancel()
        await asyncio.wait([stopping])
    if stopping.cancelled() or stopping.exception() is not None:
        await consumer._client.close()


def plain_producer(brokers: list[str], max_request_size: int = 1_048_576) -> AIOKafkaProducer:
    """Acknowledged by every replica; not idempotent, which Tansu refuses: versions make repeats harmless."""
    return AIOKafkaProducer(
        bootstrap_servers=brokers, acks="all", enable_idempotence=False, max_request_size=max_request_size
    )


async def ensure_topic(brokers: list[str], topic: str, partitions: int = PARTITIONS) -> None:
    """Creates the topic if it is missing. Raises KafkaError."""
    admin = AIOKafkaAdminClient(bootstrap_servers=brokers, request_timeout_ms=int(REQUEST_TIMEOUT_S * 1000))
    try:
        await admin.start()
        if topic in await admin.list_topics():
            return
        replicas = min(3, len((await admin.describe_cluster())["brokers"]))
        answer = await admin.create_topics([NewTopic(topic, partitions, replicas)])
        for _, code, *_ in answer.topic_errors:  # type: ignore[attr-defined]  # generated from the protocol's schema
            if code not in (0, TopicAlreadyExistsError.errno):
                raise for_code(code)(topic)
    finally:
        await admin.close()
