"""Records that are no posts: kept as they came, listed, sent again, on the real embedded broker."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRecord
from aiokafka.errors import KafkaError

from ingest.broker import EmbeddedBroker
from ingest.dead_letters import MAX_BYTES, DeadLetter, DeadLetters, DeadLetterWriter, Replayed
from ingest.feed_batch import FeedRecord
from ingest.kafka import ensure_topic, plain_producer, stop
from ingest.publish import BrokerUnreachable

PAST_MS = 1_783_175_888_090


@asynccontextmanager
async def writing(brokers: str, topic: str) -> AsyncIterator[DeadLetterWriter]:
    writer = DeadLetterWriter(brokers, topic)
    try:
        yield writer
    finally:
        await writer.close()


async def records_of(brokers: str, topic: str, count: int) -> list[ConsumerRecord[Any, Any]]:
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=brokers, auto_offset_reset="earliest", fetch_max_wait_ms=50)
    await consumer.start()
    try:
        async with asyncio.timeout(20):
            return [await consumer.getone() for _ in range(count)]
    finally:
        await stop(consumer)


def poison(topic: str, offset: int, value: bytes | None = b"\xff", **rest: Any) -> FeedRecord:
    return FeedRecord(topic, 3, offset, PAST_MS, b"key", value, **rest)


def every(letter: DeadLetter) -> bool:
    return True


async def test_a_record_is_kept_with_where_it_was_and_why(brokers: str, topic: str) -> None:
    """T1."""
    headers = (("op", b"x"), ("op", None), ("reason", b"its own"))
    async with writing(brokers, topic) as writer:
        await writer.add(poison(topic, 17, headers=headers), "utf8", "at byte 0")
        await writer.add(FeedRecord(topic, 0, 18, -1, None, None), "key", "")
    first, second = await records_of(brokers, f"{topic}.dlq", 2)
    where = {
        "topic": topic.encode(), "partition": b"3", "offset": b"17", "timestamp": str(PAST_MS).encode(), "bytes": b"1",
        "reason": b"utf8", "detail": b"at byte 0",
    }  # fmt: skip
    assert (first.key, first.value, first.headers) == (b"key", b"\xff", (*headers, *where.items()))
    assert second.value is None and ("reason", b"key") in second.headers
    kept = await DeadLetters(brokers, topic).newest(every, 10)
    assert [letter.record for letter in kept] == [
        poison(topic, 17, headers=headers),
        FeedRecord(topic, 0, 18, -1, b"", None),
    ]
    assert [(letter.reason, letter.detail, letter.bytes) for letter in kept] == [
        ("utf8", "at byte 0", 1),
        ("key", "", -1),
    ]
    assert all(letter.is_whole for letter in kept)
    assert [letter.set_aside_ms for letter in kept] == [first.timestamp, second.timestamp]


async def test_what_the_broker_will_not_keep_leaves_where_it_was(brokers: str, topic: str) -> None:
    """Larger than any request: first the value goes, then key and headers."""
    huge = b"x" * (MAX_BYTES + 1)
    async with writing(brokers, topic) as writer:
        await writer.add(poison(topic, 1, huge, headers=(("op", b"x"),)), "too_large", "")
        await writer.add(poison(topic, 2, b"small", headers=(("op", huge),)), "too_large", "")
    letters = DeadLetters(brokers, topic)
    valueless, bare = await letters.newest(every, 10)
    assert valueless.record == poison(topic, 1, b"", headers=(("op", b"x"),))
    assert (valueless.bytes, valueless.is_whole, valueless.reason) == (len(huge), False, "too_large")
    assert bare.record == FeedRecord(topic, 3, 2, PAST_MS, b"", b"") and not bare.is_whole
    await ensure_topic([brokers], topic)
    assert await letters.replay(every) == Replayed(0, cut=2)
    assert len(await letters.newest(every, 10)) == 2


async def test_they_are_listed_by_reason_time_and_number(brokers: str, topic: str) -> None:
    letters = DeadLetters(brokers, topic)
    assert await letters.newest(every, 10) == [] and await letters.count() == Counter()  # no such topic
    async with writing(brokers, topic) as writer:
        for number in range(10):
            await writer.add(poison(topic, number), "utf8" if number % 2 else "json", "")
    kept = await letters.newest(every, 3)
    assert [letter.record.offset for letter in kept] == [7, 8, 9]
    of_reason = await letters.newest(lambda letter: letter.reason == "json", 2)
    assert [letter.record.offset for letter in of_reason] == [6, 8]
    assert await letters.count() == Counter(json=5, utf8=5)
    middle = (await letters.newest(every, 100))[5]
    since = await letters.newest(every, 100, since_ms=middle.set_aside_ms)
    assert [letter.record.offset for letter in since][-5:] == [5, 6, 7, 8, 9]
    assert all(letter.set_aside_ms >= middle.set_aside_ms for letter in since)
    assert await letters.newest(every, 100, since_ms=kept[-1].set_aside_ms + 60_000) == []


async def test_they_are_sent_again_once_and_as_they_came(brokers: str, topic: str) -> None:
    await ensure_topic([brokers], topic, partitions=1)
    letters = DeadLetters(brokers, topic)
    headers = (("op", b"upsert"), ("x", None))
    async with writing(brokers, topic) as writer:
        await writer.add(poison(topic, 1, b"one", headers=headers), "json", "")
        await writer.add(poison(topic, 2, None), "key", "")
        await writer.add(poison(topic, 3, b"three"), "utf8", "")
        await writer.add(poison(topic, 1, b"one", headers=headers), "json", "")  # again, after a crash
    assert await letters.count() == Counter(json=1, key=1, utf8=1)
    assert await letters.replay(lambda letter: letter.reason != "utf8") == Replayed(2)
    one, two = await records_of(brokers, topic, 2)
    assert (one.key, one.value, one.timestamp, one.headers) == (b"key", b"one", PAST_MS, (*headers, ("replays", b"1")))
    assert (two.key, two.value, two.timestamp) == (b"key", None, PAST_MS)
    assert await letters.count() == Counter(utf8=1)  # what was sent again is dealt with
    assert await letters.replay(lambda letter: letter.reason != "utf8") == Replayed()
    assert await letters.replay(every) == Replayed(1)
    assert await letters.newest(every, 10) == [] and await letters.replay(every) == Replayed()


async def test_one_that_fails_again_says_how_often_it_was_tried(brokers: str, topic: str) -> None:
    await ensure_topic([brokers], topic, partitions=1)
    letters = DeadLetters(brokers, topic)
    async with writing(brokers, topic) as writer:
        await writer.add(poison(topic, 1, headers=(("replays", b"many"),)), "utf8", "")
        for tries in range(3):
            (letter,) = await letters.newest(every, 10)
            assert letter.replays == tries
            assert await letters.replay(every) == Replayed(1)
            *_, again = await records_of(brokers, topic, tries + 1)
            assert [content for name, content in again.headers if name == "replays"] == [str(tries + 1).encode()]
            failed = FeedRecord(topic, 0, again.offset, again.timestamp, again.key, again.value, again.headers)
            await writer.add(failed, "utf8", "")


async def test_a_record_can_be_mended(brokers: str, topic: str) -> None:
    await ensure_topic([brokers], topic, partitions=1)
    letters = DeadLetters(brokers, topic)
    async with writing(brokers, topic) as writer:
        await writer.add(poison(topic, 1, b"x" * (MAX_BYTES + 1)), "too_large", "")
    sent = await letters.replay(every, mended=lambda record: replace(record, value=b"shorter"))
    assert sent == Replayed(1)
    (record,) = await records_of(brokers, topic, 1)
    assert (record.key, record.value) == (b"key", b"shorter")


async def test_what_others_put_there_is_no_letter(brokers: str, topic: str) -> None:
    await ensure_topic([brokers], f"{topic}.dlq", partitions=2)
    names = ("topic", "partition", "offset", "timestamp", "bytes", "reason", "detail")
    producer = plain_producer([brokers])
    await producer.start()
    await producer.send_and_wait(f"{topic}.dlq", b"x")
    for headers in (
        [(name, b"x") for name in names],
        [(name, None) for name in names],
        [("replayed", b"x")],
        [("replayed", None)],
        [("replayed", b"3:1:a,,3:2")],
        [("replayed", f"3:5:{PAST_MS}".encode()), ("x", b"")],
    ):
        await producer.send_and_wait(f"{topic}.dlq", b"x", headers=headers)
    await stop(producer)
    letters = DeadLetters(brokers, topic)
    assert await letters.newest(every, 10) == []
    async with writing(brokers, topic) as writer:
        await writer.add(poison(topic, 5), "utf8", "")
    assert len(await letters.newest(every, 10)) == 1


async def test_records_are_set_aside_again_after_the_broker_has_come_back_empty(
    tansu_path: Path, port: int, topic: str
) -> None:
    writer = DeadLetterWriter(f"127.0.0.1:{port}", topic)
    with pytest.raises(KafkaError):
        await writer.add(poison(topic, 17), "utf8", "")
    letters = DeadLetters(f"127.0.0.1:{port}", topic)
    for asked in (letters.newest(every, 1), letters.count(), letters.replay(every)):
        with pytest.raises(BrokerUnreachable, match=f"127.0.0.1:{port}"):
            await asked
    broker = EmbeddedBroker(tansu_path, port)
    for _ in range(2):
        await broker.start()
        async with asyncio.timeout(60):
            while True:
                try:
                    await writer.add(poison(topic, 17), "utf8", "")
                except KafkaError:
                    continue
                break
        (record,) = await records_of(broker.address, f"{topic}.dlq", 1)
        assert record.value == b"\xff"
        await broker.stop()
    await writer.close()
