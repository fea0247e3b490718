"""A source through the real broker: in order, and the cursor behind the acknowledgements."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from ingest_parts import until

from ingest.broker import EmbeddedBroker
from ingest.cursor import CursorFile
from ingest.kafka import stop
from ingest.outbox import Transferred
from ingest.post import Author, Malformed, Post, Record, Removal
from ingest.record import decode
from ingest.sources.arrival import Arrival, SourceEnded, SourceStats
from ingest.transfer import LOOK_EVERY_S, transfer


def post(number: int) -> Post:
    return Post(f"t:{number}", "t", number, f"text {number}", 0, 0, Author(""))


class ScriptedSource:
    """Arrivals 0, 1, 2 ... from after its cursor; then it ends, waits or fails. Knows whether it was closed."""

    name = "scripted"

    def __init__(self, count: int, at_the_end: Callable[[], Any] = lambda: None) -> None:
        self.stats = SourceStats()
        self._count, self._at_the_end = count, at_the_end
        self.asked: list[str | None] = []
        self.given = 0
        self.is_closed = False

    async def arrivals(self, cursor: str | None) -> AsyncGenerator[Arrival, None]:
        self.asked.append(cursor)
        try:
            for number in range(int(cursor or -1) + 1, self._count):
                self.given += 1
                yield Arrival((post(number),), str(number))
            if (waiting := self._at_the_end()) is not None:
                await waiting
        finally:
            self.is_closed = True


class Memory:
    def __init__(self, cursor: str | None = None) -> None:
        self.cursor, self.saves = cursor, 0

    def load(self) -> str | None:
        return self.cursor

    def save(self, cursor: str) -> None:
        self.cursor, self.saves = cursor, self.saves + 1


async def arrived(brokers: str, topic: str, count: int) -> list[Record]:
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=brokers, auto_offset_reset="earliest", fetch_max_wait_ms=50)
    await consumer.start()
    try:
        async with asyncio.timeout(20):
            records = [await consumer.getone() for _ in range(count)]
    finally:
        await stop(consumer)
    return [decode(r.key, r.value, r.headers, timestamp_ms=r.timestamp, received_ms=r.timestamp) for r in records]


async def test_a_source_that_ends_is_all_there(brokers: str, topic: str, tmp_path: Path) -> None:
    cursors = CursorFile(tmp_path / "scripted")
    source = ScriptedSource(700)
    assert await transfer(source, brokers, topic, cursors) == Transferred(700, fault="")
    assert {record.id for record in await arrived(brokers, topic, 700) if isinstance(record, Post)} == {
        f"t:{number}" for number in range(700)
    }
    assert cursors.load() == "699" and source.is_closed
    again = ScriptedSource(702)
    counts = Transferred()
    await transfer(again, brokers, topic, cursors, counts)
    assert (again.asked, counts.posts, cursors.load()) == (["699"], 2, "701")


async def test_records_of_one_key_keep_their_order(brokers: str, topic: str) -> None:
    class Edits(ScriptedSource):
        async def arrivals(self, cursor: str | None) -> AsyncGenerator[Arrival, None]:
            for version in range(200):
                edited = Post("t:1", "t", version, f"text {version}", 0, 0, Author(""))
                yield Arrival((edited, Malformed("json")), str(version))
            yield Arrival((Removal("t:1", 200, if_newer=True),), "200")

    assert await transfer(Edits(0), brokers, topic, Memory()) == Transferred(200, 1, fault="")
    records = await arrived(brokers, topic, 201)
    assert [getattr(record, "version_us", None) for record in records] == list(range(201))


async def test_a_cancelled_transfer_leaves_its_cursor(brokers: str, topic: str, tmp_path: Path) -> None:
    cursors = CursorFile(tmp_path / "scripted")
    source, counts = ScriptedSource(5, asyncio.Event().wait), Transferred()
    running = asyncio.create_task(transfer(source, brokers, topic, cursors, counts))
    await until(lambda: counts.posts == 5)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert cursors.load() == "4" and source.is_closed


async def test_a_live_source_s_cursor_is_saved_while_it_waits(brokers: str, topic: str) -> None:
    cursors = Memory()
    running = asyncio.create_task(transfer(ScriptedSource(5, asyncio.Event().wait), brokers, topic, cursors))
    await until(lambda: cursors.cursor == "4")
    await asyncio.sleep(1.2)
    assert cursors.saves <= 2  # at most once a second, and not again without news
    running.cancel()
    await asyncio.wait([running])


async def test_what_came_before_the_end_is_published_first(brokers: str, topic: str) -> None:
    async def ended() -> None:
        raise SourceEnded("scripted", "the token was refused")

    cursors = Memory()
    with pytest.raises(SourceEnded, match="the token was refused"):
        await transfer(ScriptedSource(300, ended), brokers, topic, cursors)
    assert cursors.cursor == "299" and len(await arrived(brokers, topic, 300)) == 300


async def test_a_cursor_that_cannot_be_written_ends_it(brokers: str, topic: str) -> None:
    """Going on would mean to read everything again some day."""

    class Full(Memory):
        def save(self, cursor: str) -> None:
            self.saves += 1
            if self.saves == 1:
                raise OSError(28, "No space left on device")

    source = ScriptedSource(5, asyncio.Event().wait)
    with pytest.raises(OSError, match="No space left"):
        await transfer(source, brokers, topic, Full())
    assert source.is_closed


async def test_a_broker_that_is_away_is_waited_for_and_its_topic_made_again(
    tansu_path: Path, port: int, topic: str
) -> None:
    """Tansu loses the topic when it stops, and would then acknowledge what it drops."""
    counts, cursors = Transferred(), Memory()
    more = asyncio.Event()

    class Source(ScriptedSource):
        async def arrivals(self, cursor: str | None) -> AsyncGenerator[Arrival, None]:
            yield Arrival((post(1),), "1")
            await more.wait()
            yield Arrival((post(2),), "2")
            await asyncio.Event().wait()

    running = asyncio.create_task(transfer(Source(0), f"127.0.0.1:{port}", topic, cursors, counts))
    await until(lambda: counts.fault not in ("", "not connected yet"))
    assert cursors.cursor is None
    broker = EmbeddedBroker(tansu_path, port)
    await broker.start()
    await until(lambda: counts.posts == 1)
    assert [record.id for record in await arrived(broker.address, topic, 1) if isinstance(record, Post)] == ["t:1"]
    await broker.stop()
    await broker.start()
    await asyncio.sleep(LOOK_EVERY_S + 1)
    more.set()
    assert [record.id for record in await arrived(broker.address, topic, 1) if isinstance(record, Post)] == ["t:2"]
    await until(lambda: counts.posts == 2 and not counts.fault)
    running.cancel()
    await asyncio.wait([running])
    assert cursors.cursor == "2"
    await broker.stop()
