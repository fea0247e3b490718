"""Records that are no posts, kept on `<topic>.dlq` as they came, with where they were and why; from there they can be
listed and sent again."""

from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, KafkaTimeoutError, MessageSizeTooLargeError, RecordListTooLargeError
from aiokafka.structs import ConsumerRecord

from ingest.feed_batch import FeedRecord
from ingest.kafka import FETCH_WAIT_MS, ensure_topic, plain_producer, stop
from ingest.publish import BrokerUnreachable

MAX_BYTES = 32_000_000
MARK_EVERY = 100  # replayed letters
READ_MS, READ_TIMEOUT_S = 100, 30.0
REPLAYS = "replays"  # header of a record that was sent again: how often
_MARK = "replayed"  # the header of a record on the dead-letter topic that is no letter: which have been sent again
# After the record's own headers, in this order. `timestamp` is the record's own; its partition may be any.
_WHERE = ("topic", "partition", "offset", "timestamp", "bytes", "reason", "detail")

Origin = tuple[int, int, int]  # partition, offset and timestamp on the topic: after a crash it may be set aside twice


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """`record` is as it came, except that one too large to keep has lost its value, or all but where it was."""

    set_aside_ms: int
    reason: str
    detail: str
    bytes: int  # of the value as it came, -1 for null
    record: FeedRecord

    @property
    def origin(self) -> Origin:
        return self.record.partition, self.record.offset, self.record.timestamp_ms

    @property
    def is_whole(self) -> bool:
        return (-1 if self.record.value is None else len(self.record.value)) == self.bytes

    @property
    def replays(self) -> int:
        """How often it had been sent again before it failed this time."""
        counts = [content for name, content in self.record.headers if name == REPLAYS and content]
        return int(counts[-1]) if counts and counts[-1].isdigit() and len(counts[-1]) < 10 else 0


def dead_letter_topic(topic: str) -> str:
    return f"{topic}.dlq"


class DeadLetterWriter:
    def __init__(self, brokers: str, topic: str) -> None:
        self._brokers, self._topic = brokers.split(","), dead_letter_topic(topic)
        self._producer: AIOKafkaProducer | None = None

    async def add(self, record: FeedRecord, reason: str, detail: str) -> None:
        """Raises KafkaError, also when the broker has lost the topic: the next try makes it again."""
        size = -1 if record.value is None else len(record.value)
        where = (record.topic, record.partition, record.offset, record.timestamp_ms, size, reason, detail)
        ours = [(name, str(content).encode()) for name, content in zip(_WHERE, where, strict=True)]
        key = record.key if record.key is not None or record.value is not None else b""
        try:
            # Each time: Tansu acknowledges what is sent to a topic that it has lost, and drops it.
            await ensure_topic(self._brokers, self._topic, partitions=1)
            if self._producer is None:
                self._producer = plain_producer(self._brokers, max_request_size=MAX_BYTES)
                await self._producer.start()
            for tried in (record.value, key, record.headers), (b"", key, record.headers), (b"", b"", ()):
                with suppress(MessageSizeTooLargeError, RecordListTooLargeError):  # the broker's limit, or our own
                    await self._producer.send_and_wait(self._topic, tried[0], tried[1], headers=[*tried[2], *ours])
                    return
            raise MessageSizeTooLargeError("not even where it was could be kept")
        except KafkaError:
            await self.close()
            raise

    async def close(self) -> None:
        """What is still unsent has been reported as failed, so that a broker that is gone is not waited for."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await stop(producer)


@dataclass(frozen=True, slots=True)
class Replayed:
    sent: int = 0
    cut: int = 0  # not sent: their values were too large to be kept


class DeadLetters:
    """A record is listed once, and not any more after it was sent again. Every method raises BrokerUnreachable."""

    def __init__(self, brokers: str, topic: str) -> None:
        self._brokers, self._topic = brokers, topic

    async def newest(self, wanted: Callable[[DeadLetter], bool], limit: int, since_ms: int = 0) -> list[DeadLetter]:
        """The newest that are wanted, oldest first."""
        kept: deque[DeadLetter] = deque(maxlen=limit)
        with self._reached():
            async with aclosing(self._letters(since_ms)) as letters:
                async for letter in letters:
                    if wanted(letter):
                        kept.append(letter)
        return list(kept)

    async def count(self, since_ms: int = 0) -> Counter[str]:
        """By reason."""
        with self._reached():
            async with aclosing(self._letters(since_ms)) as letters:
                return Counter([letter.reason async for letter in letters])

    async def replay(
        self,
        wanted: Callable[[DeadLetter], bool],
        since_ms: int = 0,
        mended: Callable[[FeedRecord], FeedRecord] = lambda record: record,
    ) -> Replayed:
        """Sends what is wanted to the topic again, each record once, as it came or as `mended` makes of it.

        What fails again becomes a new letter that says how often it was tried; it is no part of this replay. A crash
        in between may send up to MARK_EVERY records twice, which versions make harmless.
        """
        producer = plain_producer(self._brokers.split(","), max_request_size=MAX_BYTES)
        try:
            with self._reached():
                await producer.start()
                return await self._replay(producer, wanted, since_ms, mended)
        finally:
            await stop(producer)

    async def _replay(
        self,
        producer: AIOKafkaProducer,
        wanted: Callable[[DeadLetter], bool],
        since_ms: int,
        mended: Callable[[FeedRecord], FeedRecord],
    ) -> Replayed:
        sent = cut = 0
        marks: list[Origin] = []
        async with aclosing(self._letters(since_ms)) as letters:
            async for letter in letters:
                if not wanted(letter):
                    continue
                record = mended(letter.record)
                if record is letter.record and not letter.is_whole:
                    cut += 1
                    continue
                await self._send(producer, record, letter.replays + 1)
                marks.append(letter.origin)
                sent += 1
                if len(marks) == MARK_EVERY:
                    await self._mark(producer, marks)
        await self._mark(producer, marks)
        return Replayed(sent, cut)

    async def _send(self, producer: AIOKafkaProducer, record: FeedRecord, replays: int) -> None:
        headers = [*((name, content) for name, content in record.headers if name != REPLAYS)]
        headers.append((REPLAYS, str(replays).encode()))
        timestamp_ms = record.timestamp_ms if record.timestamp_ms > 0 else None  # a deletion's place in the order
        await producer.send_and_wait(self._topic, record.value, record.key, headers=headers, timestamp_ms=timestamp_ms)

    async def _mark(self, producer: AIOKafkaProducer, origins: list[Origin]) -> None:
        if origins:
            content = ",".join(":".join(map(str, origin)) for origin in origins).encode()
            await producer.send_and_wait(dead_letter_topic(self._topic), b"", b"", headers=[(_MARK, content)])
            origins.clear()

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except (KafkaError, OSError) as error:
            raise BrokerUnreachable(self._brokers, type(error).__name__) from error

    async def _letters(self, since_ms: int) -> AsyncGenerator[DeadLetter, None]:
        """What was set aside since then and not sent again, up to now. Read twice: marks come after what they mark."""
        past: set[Origin] = set()
        async with aclosing(self._records(since_ms)) as records:
            async for record in records:
                past.update(_marked(record))
        async with aclosing(self._records(since_ms)) as records:
            async for record in records:
                letter = _letter(record)
                if letter is not None and letter.set_aside_ms >= since_ms and letter.origin not in past:
                    past.add(letter.origin)
                    yield letter

    async def _records(self, since_ms: int) -> AsyncGenerator[ConsumerRecord[bytes, bytes], None]:
        """To the end of the topic, as it is now; none if there is no such topic."""
        topic = dead_letter_topic(self._topic)
        consumer = AIOKafkaConsumer(bootstrap_servers=self._brokers, fetch_max_wait_ms=FETCH_WAIT_MS)
        try:
            await consumer.start()
            if topic not in await consumer.topics():
                return
            left = {TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()}
            consumer.assign(list(left))
            ends = await consumer.end_offsets(list(left))
            starts = await consumer.offsets_for_times(dict.fromkeys(left, since_ms))
            for partition in left:
                start = starts[partition]
                consumer.seek(partition, ends[partition] if start is None else start.offset)
            waited_s = 0.0
            while left:
                fetched = await consumer.getmany(*left, timeout_ms=READ_MS)
                for record in (record for records in fetched.values() for record in records):
                    yield record
                for partition in list(left):
                    # Tansu's end misses all but one record of the last batch; what a fetch has seen is right.
                    seen = consumer.highwater(partition)
                    if seen is not None and await consumer.position(partition) >= max(ends[partition], seen):
                        left.remove(partition)
                waited_s = 0.0 if fetched else waited_s + READ_MS / 1000
                if waited_s > READ_TIMEOUT_S:
                    raise KafkaTimeoutError(f"{topic} ends before its end")
        finally:
            await stop(consumer)


def _letter(record: ConsumerRecord[bytes, bytes]) -> DeadLetter | None:
    """None for what is no letter of ours: a mark, or a record that somebody else put there."""
    ours = record.headers[-len(_WHERE) :]
    if tuple(name for name, _ in ours) != _WHERE:
        return None
    topic, partition, offset, timestamp, size, reason, detail = (
        (content or b"").decode("utf-8", "replace") for _, content in ours
    )
    try:
        number, at, timestamp_ms, length = (int(text) for text in (partition, offset, timestamp, size))
    except ValueError:
        return None
    headers = tuple(record.headers[: -len(_WHERE)])
    as_it_came = FeedRecord(topic, number, at, timestamp_ms, record.key, record.value, headers)
    return DeadLetter(record.timestamp, reason, detail, length, as_it_came)


def _marked(record: ConsumerRecord[bytes, bytes]) -> Iterable[Origin]:
    if len(record.headers) != 1 or record.headers[0][0] != _MARK:
        return
    for origin in (record.headers[0][1] or b"").split(b","):
        with suppress(ValueError):
            partition, offset, timestamp_ms = (int(number) for number in origin.split(b":"))
            yield partition, offset, timestamp_ms
