"""Publishing through the real broker: what arrives is what the topic's rules say, and nothing bad is sent."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRecord

from ingest.payload import Refused
from ingest.post import AccountChange, Author, Malformed, Post, Record, Removal, account_of
from ingest.publish import BrokerUnreachable, Published, Publisher
from ingest.record import decode
from ingest.sources.jsonl import BadLine, Event, read_events
from ingest.versions import version_us

CREATED = "2026-07-04T14:38:06.240Z"
CREATED_US = 1_783_175_886_240_000


async def arrived(brokers: str, topic: str, count: int) -> list[ConsumerRecord[Any, Any]]:
    """Without a group, so without its delay; by offset within a partition."""
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=brokers, auto_offset_reset="earliest", fetch_max_wait_ms=50)
    await consumer.start()
    try:
        async with asyncio.timeout(20):
            return [await consumer.getone() for _ in range(count)]
    finally:
        await consumer.stop()


def as_read(record: ConsumerRecord[Any, Any]) -> Record:
    return decode(
        record.key, record.value, record.headers, timestamp_ms=record.timestamp, received_ms=record.timestamp + 1
    )


async def test_a_post_arrives_as_its_readers_expect_it(brokers: str, topic: str) -> None:
    post = Post("t:1", "t", CREATED_US, "Olá \U0001f30d", CREATED_US // 1000, 1, Author("a", "ana", "Ana"), likes=3)
    post = replace(post, account=account_of("t", "a"))
    async with Publisher(brokers, topic) as publisher:
        sent = await publisher.publish(post)
    (record,) = await arrived(brokers, topic, 1)
    assert as_read(record) == post
    assert isinstance(sent, Post) and sent.text == post.text
    assert (record.key, ("v", b"1") in record.headers) == (b"t:1", True)
    assert "\U0001f30d".encode() in record.value


async def test_deletions_arrive_as_null_values_with_their_version(brokers: str, topic: str) -> None:
    async with Publisher(brokers, topic) as publisher:
        stated = await publisher.remove("t:1", "3mptbypcq372f")
        now = await publisher.remove("t:1")
        await publisher.publish({"id": "t:1", "deleted": True, "version": CREATED})
    records = await arrived(brokers, topic, 3)
    assert [record.value for record in records] == [None] * 3
    of_object = Removal("t:1", CREATED_US, if_newer=True)
    assert [as_read(record) for record in records] == [stated, Removal("t:1", records[1].timestamp * 1000), of_object]
    assert stated == Removal("t:1", version_us("3mptbypcq372f"), if_newer=True)
    assert not now.if_newer and abs(now.version_us // 1000 - records[1].timestamp) < 60_000


async def test_records_arrive_as_they_were(brokers: str, topic: str) -> None:
    given = [
        Removal("t:1", CREATED_US + 1, "consent", if_newer=True),
        Removal("t:1", CREATED_US),  # of long ago: its place in the order is not that of its sending
        AccountChange("t", "ana", "hidden", CREATED_US, "takendown"),
        Post("t:2", "t", CREATED_US, "", CREATED_US // 1000, CREATED_US // 1000 + 5, Author(""), repost_of="t:1"),
    ]
    async with Publisher(brokers, topic) as publisher:
        sent = [await publisher.publish(record) for record in given]
    records = await arrived(brokers, topic, len(given))
    by_op = {(dict(record.headers)["op"], record.offset): as_read(record) for record in records}
    assert sent == given and set(map(repr, by_op.values())) == set(map(repr, given))
    assert {record.key for record in records} == {b"t:1", b"t:2", b"account:t:ana"}


async def test_a_removal_is_not_older_than_the_moment_it_names(brokers: str, topic: str) -> None:
    """A record's time has milliseconds: a moment between two of them is the later one."""
    async with Publisher(brokers, topic) as publisher:
        sent = await publisher.publish(Removal("t:1", CREATED_US + 1))
        ahead = await publisher.publish({"id": "t:2", "deleted": True, "edited_at": "3001-12-31T23:00:00Z"})
    assert sent == Removal("t:1", CREATED_US + 1000)
    by_key = {record.key: as_read(record) for record in await arrived(brokers, topic, 2)}
    assert by_key == {b"t:1": sent, b"t:2": ahead} and ahead == Removal("t:2", 32_566_748_400_000_000)


async def test_what_takes_a_text_away_is_sent_without_the_text(brokers: str, topic: str) -> None:
    async with Publisher(brokers, topic) as publisher:
        await publisher.publish({"id": "t:1", "text": "t", "created_at": CREATED, "consent": {"indexable": False}})
        await publisher.publish({"id": "t:1", "text": "", "created_at": CREATED})
    records = await arrived(brokers, topic, 2)
    refused, empty = map(as_read, records)
    assert [record.value for record in records] == [None, None]
    assert refused == Removal("t:1", records[0].timestamp * 1000, "consent")
    assert empty == Removal("t:1", CREATED_US, "empty", if_newer=True)


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ({"id": 5, "text": "t", "created_at": CREATED}, "id: not a string"),
        ({"id": "t:1", "text": "t"}, "field: created_at: missing"),
        ({"id": "t:1", "text": "t", "created_at": CREATED, "x": float("nan")}, "json"),
        ({"id": "t:1", "text": "x" * 1_000_000, "created_at": CREATED}, "too_large"),
    ],
)
async def test_a_bad_post_is_refused_and_not_sent(brokers: str, topic: str, value: Any, fault: str) -> None:
    async with Publisher(brokers, topic) as publisher:
        with pytest.raises(Refused, match=fault):
            await publisher.publish(value)
        await publisher.publish({"id": "t:good", "text": "t", "created_at": CREATED})
    (record,) = await arrived(brokers, topic, 1)
    assert record.key == b"t:good"


async def test_a_lone_surrogate_is_sent_as_a_replacement(brokers: str, topic: str) -> None:
    async with Publisher(brokers, topic) as publisher:
        await publisher.publish({"id": "t:1", "text": "a\ud83d", "created_at": CREATED})
    (record,) = await arrived(brokers, topic, 1)
    post = as_read(record)
    assert isinstance(post, Post) and post.text == "a\ufffd"


async def test_a_file_is_published_in_order_and_bad_lines_are_reported(brokers: str, topic: str) -> None:
    good = [f'{{"id": "t:{number}", "text": "t", "created_at": "{CREATED}"}}'.encode() for number in range(600)]
    lines = [*good[:300], b"{", b'{"id": "t:x"}', *good[300:], b'{"id": "t:0", "deleted": true}']
    seen: list[Event | BadLine] = []
    async with Publisher(brokers, topic) as publisher:
        report = await publisher.run(read_events(lines), seen.append)
    assert report == Published(600, 1, [BadLine(301, "json"), BadLine(302, "field: text: missing")])
    assert [event.number for event in seen] == list(range(1, 604))
    records = await arrived(brokers, topic, 601)
    assert len({record.key for record in records}) == 600
    of_first = [record for record in records if record.key == b"t:0"]
    assert [record.value is None for record in of_first] == [False, True]  # one key, one partition, in order


async def test_an_unfinished_source_is_acknowledged_as_it_goes(brokers: str, topic: str) -> None:
    """A live source never ends: what it has sent must not wait in a buffer for what comes next."""
    more = asyncio.Event()

    async def source() -> AsyncIterator[Event]:
        yield Event(1, None, {"id": "t:1", "text": "t", "created_at": CREATED})
        await more.wait()

    async with Publisher(brokers, topic) as publisher:
        running = asyncio.create_task(publisher.run(source()))
        (record,) = await arrived(brokers, topic, 1)
        assert not isinstance(as_read(record), Malformed) and not running.done()
        more.set()
        assert await running == Published(1, 0, [])


async def test_a_broker_that_is_not_there_is_named(port: int) -> None:
    with pytest.raises(BrokerUnreachable, match=f"127.0.0.1:{port}"):
        await Publisher(f"127.0.0.1:{port}", "posts").start()
