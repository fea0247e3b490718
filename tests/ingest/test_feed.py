"""The consumer door, on the real embedded broker. A two-second session, so that joining a group takes one."""

import asyncio
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
from ingest_parts import until

from ingest.broker import EmbeddedBroker
from ingest.feed import BATCH_BYTES, BATCH_RECORDS, BUFFER_BYTES, BUFFER_RECORDS, KafkaFeed
from ingest.feed_batch import FeedBatch, FeedRecord
from ingest.kafka import ensure_topic, plain_producer
from ingest.kafka_lag import AHEAD_LOOKS
from ingest.kafka_member import POLL_RECORDS, WATCH_EVERY_S
from ingest.watchdog import GIVE_UP_STALLS, FeedStalled

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


async def committed(brokers: str, topic: str) -> dict[int, int]:
    """Partition -> the group's offset."""
    member = AIOKafkaConsumer(bootstrap_servers=brokers, group_id=f"{topic}-group", enable_auto_commit=False)
    await member.start()
    partitions = [TopicPartition(topic, number) for number in (await member.topics() and range(4))]
    member.assign(partitions)
    offsets = {partition.partition: await member.committed(partition) for partition in partitions}
    await member.stop()
    return {partition: offset for partition, offset in offsets.items() if offset is not None}


async def test_a_later_batch_is_not_committed_past_an_earlier_one(brokers: str, topic: str) -> None:
    """T8, through the broker: the loop takes batch after batch, and they finish in another order."""
    await ensure_topic([brokers], topic, partitions=1)
    feed = feed_of(brokers, topic)
    async with producing(brokers) as producer, asyncio.timeout(30), aclosing(aiter(feed)) as batches:  # type: ignore[type-var]
        taken: list[FeedBatch] = []
        for number in numbers(4):
            await producer.send_and_wait(topic, number)
            taken.append(await anext(batches))
        assert [batch.next_offsets for batch in taken] == [{0: 1}, {0: 2}, {0: 3}, {0: 4}]
        for batch, offset in ((taken[2], None), (taken[0], 1), (taken[3], 1), (taken[1], 4)):
            await feed.commit(batch)
            assert (await committed(brokers, topic)).get(0) == offset
        assert feed.failed_commits == 0
    await feed.close()


async def test_the_buffer_is_bounded_while_the_loop_waits(brokers: str, topic: str) -> None:
    """In records; nothing is lost, the place in the group is kept, and the records come when the loop goes on."""
    await ensure_topic([brokers], topic)
    values = numbers(2 * BUFFER_RECORDS)
    await produce(brokers, topic, values)
    feed = feed_of(brokers, topic, stall_s=2.0)
    seen: list[bytes] = []
    async with asyncio.timeout(60), aclosing(aiter(feed)) as batches:  # type: ignore[type-var]
        first = await anext(batches)
        await until(lambda: feed._buffer.is_full)
        await asyncio.sleep(SESSION_S + 0.5)  # the loop waits for the index, longer than a session and than a stall
        assert BUFFER_RECORDS <= len(feed._buffer) + len(first.records) < BUFFER_RECORDS + POLL_RECORDS + BATCH_RECORDS
        assert (feed.rebuilds, feed.fault) == (0, "")
        consumer = feed._member._consumer
        assert consumer is not None and consumer._subscription.fetcher_idle_time < SESSION_S  # or max_poll_interval
        batch = first
        sizes = []
        while True:
            seen += [record.value or b"" for record in batch.records]
            await feed.commit(batch)
            if len(seen) >= len(values):
                break
            batch = await anext(batches)
            sizes.append(len(batch.records))
    assert sorted(seen) == sorted(values) and (feed.failed_commits, feed.rebuilds) == (0, 0)
    assert max(sizes) == BATCH_RECORDS  # a backlog comes in large batches
    await feed.close()


async def test_the_buffer_is_bounded_in_bytes_too(brokers: str, topic: str) -> None:
    await ensure_topic([brokers], topic, partitions=1)
    record = b"x" * 900_000
    async with producing(brokers) as producer:
        for _ in range(60):
            await producer.send_and_wait(topic, record)
    feed = feed_of(brokers, topic)
    async with asyncio.timeout(60), aclosing(aiter(feed)) as batches:  # type: ignore[type-var]
        batch = await anext(batches)
        await until(lambda: feed._buffer.is_full)
        assert len(feed._buffer) * len(record) < BUFFER_BYTES + POLL_RECORDS * len(record)
        assert feed.lag_records <= 60
        seen = len(batch.records)
        while seen < 60:
            await feed.commit(batch)
            batch = await anext(batches)
            seen += len(batch.records)
            assert sum(len(entry.value or b"") for entry in batch.records) <= BATCH_BYTES
    await feed.close()


async def test_what_is_in_work_gets_a_moment_to_finish_before_the_partitions_go(brokers: str, topic: str) -> None:
    """Or a member that joins would do again what this one was about to commit. A commit must not wait for it."""
    await ensure_topic([brokers], topic, partitions=1)
    await produce(brokers, topic, numbers(600))
    feed = feed_of(brokers, topic)
    async with asyncio.timeout(30), aclosing(aiter(feed)) as batches:  # type: ignore[type-var]
        batch = await anext(batches)
        await until(lambda: len(batch.records) + len(feed._buffer) == 600)
        going = asyncio.create_task(feed._member.revoked())
        await asyncio.sleep(0.05)
        assert not going.done() and len(feed._buffer) == 0  # nothing more is begun
        await feed.commit(batch)
        await going
        end = batch.next_offsets[0]
        assert (await committed(brokers, topic), feed.failed_commits) == ({0: end}, 0)
        await feed.commit(batch)
        assert feed.failed_commits == 1  # it is somebody else's now
    await feed.close()


async def test_what_does_not_finish_is_not_waited_for(brokers: str, topic: str) -> None:
    await produce(brokers, topic, numbers(3))
    feed = feed_of(brokers, topic)
    async with asyncio.timeout(30), aclosing(aiter(feed)) as batches:  # type: ignore[type-var]
        batch = await anext(batches)
        await feed._member.revoked()
        await feed.commit(batch)
        assert (await committed(brokers, topic), feed.failed_commits) == ({}, 1)
    await feed.close()


async def test_nothing_is_lost_while_members_come_go_and_die(brokers: str, topic: str) -> None:
    """T14: two ingesters and more: joins, leaves, kills, and a loop that dies in the middle of a batch."""
    await ensure_topic([brokers], topic)
    values = numbers(3000)
    handled: set[bytes] = set()

    async def member(dies_after: int | None = None) -> None:
        feed = feed_of(brokers, topic)
        count = 0
        try:
            async for batch in feed:
                await asyncio.sleep(0.002)
                count += len(batch.records)
                if dies_after is not None and count > dies_after:
                    return  # with this batch taken and not handled
                handled.update(record.value or b"" for record in batch.records)
                await feed.commit(batch)
        finally:
            await feed.close()

    async def produce_all() -> None:
        async with producing(brokers) as producer:
            for start in range(0, len(values), 50):
                for value in values[start : start + 50]:
                    await producer.send(topic, value, b"k" + value)
                await asyncio.sleep(0.08)

    producing_all = asyncio.create_task(produce_all())
    stays = asyncio.create_task(member())
    await until(lambda: len(handled) > 50)
    leaves = asyncio.create_task(member(dies_after=150))
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", READER, brokers, topic, f"{topic}-group", stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    await asyncio.wait_for(child.stdout.readline(), 30)  # it holds partitions and records
    child.kill()
    await child.wait()
    await until(lambda: set(values) <= handled and leaves.done(), 60)
    await producing_all
    stays.cancel()
    await asyncio.wait([stays])
    leaves.result()


async def test_a_feed_that_gets_nowhere_for_long_says_so(port: int, topic: str) -> None:
    """T10: the deployment's health check fails when building anew has not helped."""
    feed = feed_of(f"127.0.0.1:{port}", topic, stall_s=0.02)
    feed.check()  # not started: nothing to complain of
    async with aclosing(aiter(feed)) as batches:  # type: ignore[type-var]
        waiting = asyncio.ensure_future(anext(batches))
        await until(lambda: feed.rebuilds)
        await asyncio.sleep(GIVE_UP_STALLS * 0.02)
        with pytest.raises(FeedStalled, match="KafkaConnectionError"):
            feed.check()
        await feed.close()
        with pytest.raises(StopAsyncIteration):
            await waiting


async def test_a_closed_feed_ends(brokers: str, topic: str) -> None:
    feed = feed_of(brokers, topic)
    await feed.close()
    assert [batch async for batch in feed] == []


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


async def test_a_position_that_goes_back_by_itself_makes_what_is_in_work_void(brokers: str, topic: str) -> None:
    """As aiokafka's does when Kafka says that it is out of range: the topic is another one, its offsets too."""
    await ensure_topic([brokers], topic, partitions=1)
    await produce(brokers, topic, numbers(5))
    feed = feed_of(brokers, topic)
    async with asyncio.timeout(30), aclosing(aiter(feed)) as batches:  # type: ignore[type-var]
        old: list[FeedBatch] = []
        while not old or old[-1].next_offsets != {0: 5}:
            old.append(await anext(batches))
        consumer = feed._member._consumer
        assert consumer is not None
        await consumer.seek_to_beginning()
        new = await anext(batches)
        assert new.records[0].offset == 0
        await feed.commit(old[-1])
        assert (await committed(brokers, topic), feed.failed_commits) == ({}, 1)
        await feed.commit(new)
        assert await committed(brokers, topic) == new.next_offsets and feed.failed_commits == 1
    await feed.close()


async def test_a_member_too_many_waits_and_one_that_was_left_out_is_built_anew(brokers: str, topic: str) -> None:
    """T10: without a partition, by right or because aiokafka has lost it."""
    await ensure_topic([brokers], topic, partitions=1)
    feeds = [feed_of(brokers, topic, stall_s=2.0) for _ in range(2)]
    members = [feed._member for feed in feeds]

    async def run(feed: KafkaFeed) -> None:
        async for batch in feed:
            await feed.commit(batch)

    running = [asyncio.create_task(run(feed)) for feed in feeds]
    await until(lambda: all(feed.fault == "" for feed in feeds))
    await asyncio.sleep(2.6)
    assert [feed.rebuilds for feed in feeds] == [0, 0]
    idle = next(member for member in members if not member._consumer.assignment())  # type: ignore[union-attr]

    async def one() -> int:
        return 1

    idle._lag._members = one  # as if it were alone in the group
    await until(lambda: idle.rebuilds)
    for feed in feeds:
        await feed.close()
    await asyncio.gather(*running)


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
        assert len(batch.records) <= BATCH_RECORDS and feed.fault == ""
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
