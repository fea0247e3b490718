"""The ingest loop over a real broker."""

import asyncio
import gc
import json
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from ingest_parts import FakeEmbedder, FakeIndex, FakeLanguages, FakeScreen, until
from running_loop import post

from ingest.feed import KafkaFeed
from ingest.loop import IngestLoop
from ingest.publish import Publisher, plain_producer


async def test_through_the_broker(brokers: str, topic: str, tmp_path: Path) -> None:
    """Poison, posts, edits out of order and deletions from a topic; the poison is kept on the dead-letter topic."""
    index = FakeIndex()
    feed = KafkaFeed(brokers, topic, topic, session_timeout_s=2.0)
    loop = IngestLoop(feed, FakeScreen(), FakeEmbedder(), index, FakeLanguages())
    running = asyncio.create_task(loop.run())
    poison = [b"", b"null", b"{", b"\xff\xfe", b"[1]", b'{"id": 7}', b"[" * 5000, b'{"id": "t:p", "text": 1}']
    async with Publisher(brokers, topic) as publisher:
        for number in range(20):
            await publisher.publish(post(f"t:{number}", f"text {number}", 1))
        producer = plain_producer([brokers])
        await producer.start()
        for value in poison:
            await producer.send_and_wait(topic, value, b"poison")
        await producer.send_and_wait(topic, json.dumps(post("t:1", "late", 0)).encode(), b"t:1")
        await producer.stop()
        await publisher.publish(post("t:2", "edited", 2))
        await publisher.remove("t:0")
        await publisher.publish(post("t:0", "late", 1))
        await publisher.publish(post("t:end", "end"))
    wanted = {f"t:{number}": f"text {number}" for number in range(1, 20)} | {"t:2": "edited", "t:end": "end"}
    await until(lambda: running.done() or (index.texts == wanted and not loop.stats().lag_records))
    await feed.close()
    await running
    assert index.texts == wanted
    assert sum(loop.stats().malformed.values()) == len(poison)
    consumer = AIOKafkaConsumer(f"{topic}.dlq", bootstrap_servers=brokers, auto_offset_reset="earliest")
    await consumer.start()
    kept = [await asyncio.wait_for(consumer.getone(), 20) for _ in poison]
    await consumer.stop()
    assert [record.value for record in kept] == poison
    assert dict(kept[3].headers)["reason"] == b"utf8"


async def test_a_cancelled_loop_leaves_the_group_and_no_connection_behind(brokers: str, topic: str) -> None:
    """An unclosed connection is a warning, and so a failure, when it is collected."""
    index = FakeIndex(failures=10**9)
    feed = KafkaFeed(brokers, topic, topic, session_timeout_s=2.0)
    loop = IngestLoop(feed, FakeScreen(), FakeEmbedder(), index, FakeLanguages())
    async with Publisher(brokers, topic) as publisher:
        await publisher.publish(post("t:1", "one"))
    running = asyncio.create_task(loop.run())
    await until(lambda: loop.stats().retries)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not loop.stats().healthy
    del running
    gc.collect()

    index.failures = 0
    feed = KafkaFeed(brokers, topic, topic, session_timeout_s=2.0)
    again = IngestLoop(feed, FakeScreen(), FakeEmbedder(), index, FakeLanguages())
    running = asyncio.create_task(again.run())
    await until(lambda: index.texts == {"t:1": "one"})  # it was not committed, so it comes again
    await feed.close()
    await running
