"""The consumer door, on the real embedded broker. A two-second session, so that joining a group takes one."""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from ingest_parts import until

from ingest.broker import EmbeddedBroker
from ingest.feed import AHEAD_LOOKS, WATCH_EVERY_S, FeedBatch, FeedRecord, KafkaFeed, ensure_topic, plain_producer

SESSION_S = 2.0
READER = """
import asyncio, sys
from ingest.feed import KafkaFeed

async def main():
    async for batch in KafkaFeed(*sys.argv[1:4], session_timeout_s=2.0):
        print(len(batch.records), flush=True)  # and never commits

asyncio.run(main())
"""


def feed_of(brokers: str, topic: str, **options: Any) -> KafkaFeed:
    return KafkaFeed(brokers, topic, f"{topic}-group", session_timeout_s=SESSION_S, **options)


@asynccontextmanager
async def producing(brokers: str) -> AsyncIterator[AIOKafkaProducer]:
    producer = plain_producer([brokers])
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def consuming(brokers: str, topic: str) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=brokers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def produce(brokers: str, topic: str, values: list[bytes]) -> None:
    await ensure_topic([brokers], topic)
    async with producing(brokers) as producer:
        await asyncio.gather(*[await producer.send(topic, value, b"k" + value) for value in values])


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [str(number).encode() for number in range(start, start + count)]


async def read(feed: KafkaFeed, wanted: set[bytes], *, commit: bool = True) -> list[bytes]:
    """Values in the order of arrival, until every wanted one has come."""
    values: list[bytes] = []
    async with asyncio.timeout(30), aclosing(aiter(feed)) as batches:  # type: ignore[type-var]
        async for batch in batches:
            values += [record.value or b"" for record in batch.records]
            if commit:
                await feed.commit(batch)
            if wanted <= set(values):
                break
    return values


async def test_records_come_as_they_are_and_only_once_after_a_commit(brokers: str, topic: str) -> None:
    await ensure_topic([brokers], topic)
    async with producing(brokers) as producer:
        headers = [("op", b"upsert"), ("op", b""), ("v", b"1")]
        await producer.send_and_wait(topic, b"\xff{not json", b"k1", headers=headers, timestamp_ms=1_783_175_888_090)
        await producer.send_and_wait(topic, None, b"k2", timestamp_ms=1_783_175_888_091)
        await producer.send_and_wait(topic, b"", timestamp_ms=1_783_175_888_089)
    feed = feed_of(brokers, topic)
    records: list[FeedRecord] = []
    async for batch in feed:
        assert isinstance(batch, FeedBatch) and abs(batch.received_ms - time.time() * 1000) < 60_000
        records += batch.records
        await feed.commit(batch)
        if len(records) == 3:
            break
    by_value = {record.value: record for record in records}
    broken = by_value[b"\xff{not json"]
    assert (broken.topic, broken.key, broken.headers) == (topic, b"k1", tuple(headers))
    assert (broken.offset, broken.timestamp_ms) == (0, 1_783_175_888_090)
    assert (by_value[None].key, by_value[b""].key) == (b"k2", None)
    assert feed.newest_ms == 1_783_175_888_091 and feed.failed_commits == 0
    await feed.close()

    await produce(brokers, topic, [b"new"])
    again = feed_of(brokers, topic)
    assert await read(again, {b"new"}) == [b"new"]
    await again.close()


async def test_a_batch_that_was_not_committed_comes_again_after_a_kill(brokers: str, topic: str) -> None:
    """T8, T14."""
    await produce(brokers, topic, numbers(10))
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", READER, brokers, topic, f"{topic}-group", stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    assert int(await asyncio.wait_for(child.stdout.readline(), 30)) > 0
    child.send_signal(signal.SIGKILL)
    await child.wait()
    feed = feed_of(brokers, topic)
    assert sorted(await read(feed, set(numbers(10)))) == sorted(numbers(10))
    await feed.close()


async def test_two_members_share_the_partitions_and_a_late_commit_is_only_counted(brokers: str, topic: str) -> None:
    """T9: the first member holds a batch of partitions that it loses meanwhile."""
    await produce(brokers, topic, numbers(40))
    first, second = feed_of(brokers, topic), feed_of(brokers, topic)
    held: list[FeedBatch] = []
    of_first: list[bytes] = []

    async def run_first() -> None:
        async for batch in first:
            if held:
                await first.commit(batch)
            held.append(batch)
            of_first.extend(record.value or b"" for record in batch.records)

    running = asyncio.create_task(run_first())
    await until(lambda: of_first)
    of_second: list[bytes] = []

    async def run_second() -> None:
        async for batch in second:
            of_second.extend(record.value or b"" for record in batch.records)
            await second.commit(batch)

    other = asyncio.create_task(run_second())
    await until(lambda: of_second)  # it has partitions: they were taken from the first
    before = first.failed_commits
    await first.commit(held[0])
    assert first.failed_commits > before
    of_first.clear()
    of_second.clear()
    later = set(numbers(200, start=1000))
    await produce(brokers, topic, sorted(later))
    await until(lambda: later <= {*of_first, *of_second})
    assert later & set(of_first) and later & set(of_second)
    await first.close()
    await second.close()
    await asyncio.gather(running, other)


async def test_a_commit_without_a_partition_of_ours_is_counted_once(brokers: str, topic: str) -> None:
    """aiokafka raises a plain ValueError for a commit of nothing."""
    await produce(brokers, topic, numbers(3))
    feed = feed_of(brokers, topic)
    async with asyncio.timeout(30), aclosing(aiter(feed)) as batches:  # type: ignore[type-var]
        batch = await anext(batches)
        await feed.commit(replace(batch, next_offsets={77: 5}))
        assert feed.failed_commits == 1
        partly = {77: 5, **batch.next_offsets}
        await feed.commit(replace(batch, next_offsets=partly))
        assert feed.failed_commits == 2
        await feed.commit(replace(batch, reading=batch.reading - 1))
        assert feed.failed_commits == 3
        await feed.commit(batch)
        assert feed.failed_commits == 3
    await feed.close()


class Losing:
    """A consumer that loses partition 1 while it is asked for the ends."""

    def __init__(self, topic: str) -> None:
        self._topic, self._ours = topic, {0, 1}

    def assignment(self) -> set[TopicPartition]:
        return {TopicPartition(self._topic, partition) for partition in self._ours}

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        self._ours = {0}
        return dict.fromkeys(partitions, 10)

    def highwater(self, partition: TopicPartition) -> int:
        assert partition in self.assignment(), "Partition is not assigned"
        return 12

    async def position(self, partition: TopicPartition) -> int:
        assert partition in self.assignment()
        return 5


async def test_a_partition_revoked_while_it_is_watched_is_left_out() -> None:
    consumer: Any = Losing("posts")
    assert await KafkaFeed("127.0.0.1:1", "posts", "group")._records_behind(consumer) == 7


async def test_a_topic_made_anew_is_read_from_its_start(brokers: str, topic: str) -> None:
    """It is shorter than the position that the group still has; what was fetched before leaves no offset in it."""
    await ensure_topic([brokers], topic, partitions=1)
    await produce(brokers, topic, numbers(20))
    feed = feed_of(brokers, topic)
    values: list[bytes] = []
    old: list[FeedBatch] = []

    async def run() -> None:
        async for batch in feed:
            values.extend(record.value or b"" for record in batch.records)
            old.append(batch)
            await feed.commit(batch)

    running = asyncio.create_task(run())
    await until(lambda: len(values) == 20)
    await until(lambda: not feed.lag_records)
    admin = AIOKafkaAdminClient(bootstrap_servers=brokers)
    await admin.start()
    await admin.delete_topics([topic])
    await ensure_topic([brokers], topic, partitions=1)
    await produce(brokers, topic, [b"new 1", b"new 2"])
    await until(lambda: {b"new 1", b"new 2"} <= set(values))
    assert (feed.rebuilds, feed.fault, feed.failed_commits) == (0, "", 0)
    await feed.commit(old[0])
    assert feed.failed_commits == 1
    await feed.close()
    await running
    await admin.close()
    member = AIOKafkaConsumer(bootstrap_servers=brokers, group_id=f"{topic}-group", enable_auto_commit=False)
    await member.start()
    member.assign([TopicPartition(topic, 0)])
    assert await member.committed(TopicPartition(topic, 0)) == 2
    await member.stop()


async def test_a_quiet_topic_is_not_read_again(brokers: str, topic: str) -> None:
    """Tansu's end runs short of the position by all but one record of the last batch, for as long as nothing comes."""
    await produce(brokers, topic, numbers(40))
    feed = feed_of(brokers, topic)
    values: list[bytes] = []

    async def run() -> None:
        async for batch in feed:
            values.extend(record.value or b"" for record in batch.records)
            await feed.commit(batch)

    running = asyncio.create_task(run())
    await until(lambda: len(values) == 40)
    await asyncio.sleep((AHEAD_LOOKS + 1.5) * WATCH_EVERY_S)
    assert len(values) == 40
    await feed.close()
    await running


async def test_lag_counts_what_waits_and_what_is_in_hand(brokers: str, topic: str) -> None:
    await ensure_topic([brokers], topic)
    async with producing(brokers) as producer:
        for number in range(150):  # one by one: Tansu's end of a partition is that of its last batch's first record
            await producer.send_and_wait(topic, b"x", str(number).encode())
    feed = feed_of(brokers, topic)
    assert feed.fault == "not connected yet"
    async with asyncio.timeout(30), aclosing(aiter(feed)) as batches:  # type: ignore[type-var]
        batch = await anext(batches)
        await until(
            lambda: feed.lag_records == 150
        )  # the batch in hand, and the rest, which the watch has to see first
        assert len(batch.records) <= 64 and feed.fault == ""
        await feed.commit(batch)
        left = 150 - len(batch.records)
        while left:
            batch = await anext(batches)
            left -= len(batch.records)
            await feed.commit(batch)
        await until(lambda: feed.lag_records == 0)
    await feed.close()


async def test_goes_on_by_itself_after_the_broker_has_come_back_empty(tansu_path: Path, port: int, topic: str) -> None:
    """T10: topic, group and offsets are gone; the new topic is read from its start, whatever was committed before."""
    broker = EmbeddedBroker(tansu_path, port)
    await broker.start()
    feed = feed_of(broker.address, topic, stall_s=3.0)
    values: list[bytes] = []

    async def run() -> None:
        async for batch in feed:
            values.extend(record.value or b"" for record in batch.records)
            await feed.commit(batch)

    running = asyncio.create_task(run())
    try:
        await produce(broker.address, topic, numbers(50))
        await until(lambda: len(set(values)) == 50)
        await broker.stop()
        await until(lambda: feed.fault)
        await broker.start()
        await produce(broker.address, topic, numbers(100, start=1000))
        await until(lambda: set(numbers(100, start=1000)) <= set(values), 60)
        await until(lambda: not feed.fault)
    finally:
        await feed.close()
        await asyncio.wait([running])
        await broker.stop()
    await running


async def test_waits_for_a_broker_that_is_not_there_yet(tansu_path: Path, port: int, topic: str) -> None:
    feed = feed_of(f"127.0.0.1:{port}", topic)
    reading = asyncio.create_task(read(feed, {b"7"}))
    await until(lambda: "KafkaConnectionError" in feed.fault)
    broker = EmbeddedBroker(tansu_path, port)
    await broker.start()
    await produce(broker.address, topic, [b"7"])
    assert await reading == [b"7"]
    await feed.close()
    await broker.stop()


async def test_every_codec_is_read(brokers: str, topic: str) -> None:
    """T11."""
    await ensure_topic([brokers], topic)
    codecs = ["gzip", "snappy", "lz4", "zstd"]
    for codec in codecs:
        producer = AIOKafkaProducer(bootstrap_servers=brokers, compression_type=codec)
        await producer.start()
        await producer.send_and_wait(topic, codec.encode() * 100)
        await producer.stop()
    feed = feed_of(brokers, topic)
    assert len(await read(feed, {codec.encode() * 100 for codec in codecs})) == 4
    await feed.close()


async def test_a_record_set_aside_is_kept_with_where_it_was_and_why(brokers: str, topic: str) -> None:
    feed = feed_of(brokers, topic)
    await feed.set_aside(FeedRecord(topic, 3, 17, 5, b"key", b"\xff", (("op", b"x"),)), "utf8")
    await feed.set_aside(FeedRecord(topic, 0, 18, 5, None, None), "key")
    await feed.close()
    consumer = AIOKafkaConsumer(f"{topic}.dlq", bootstrap_servers=brokers, auto_offset_reset="earliest")
    await consumer.start()
    kept = [await asyncio.wait_for(consumer.getone(), 20) for _ in range(2)]
    await consumer.stop()
    where = (("topic", topic.encode()), ("partition", b"3"), ("offset", b"17"), ("reason", b"utf8"))
    assert (kept[0].key, kept[0].value, kept[0].headers) == (b"key", b"\xff", (("op", b"x"), *where))
    assert kept[1].value is None and ("reason", b"key") in kept[1].headers


async def test_records_are_set_aside_again_after_the_broker_has_come_back_empty(
    tansu_path: Path, port: int, topic: str
) -> None:
    feed = feed_of(f"127.0.0.1:{port}", topic)
    poison = FeedRecord(topic, 0, 17, 5, b"key", b"\xff")
    with pytest.raises(KafkaError):
        await feed.set_aside(poison, "utf8")
    broker = EmbeddedBroker(tansu_path, port)
    for _ in range(2):
        await broker.start()
        async with asyncio.timeout(60):
            while True:
                try:
                    await feed.set_aside(poison, "utf8")
                except KafkaError:
                    continue
                break
        async with consuming(broker.address, f"{topic}.dlq") as consumer:
            assert (await asyncio.wait_for(consumer.getone(), 20)).value == b"\xff"
        await broker.stop()
    await feed.close()


async def test_a_topic_that_exists_is_left_alone(brokers: str, topic: str) -> None:
    await ensure_topic([brokers], topic, partitions=1)
    await asyncio.gather(*(ensure_topic([brokers], topic, partitions=4) for _ in range(3)))
    async with producing(brokers) as producer:
        assert await producer.partitions_for(topic) == {0}
