"""Bounded in records and bytes; nothing is lost and nothing changes its order."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from ingest.buffer import Buffer
from ingest.feed_batch import FeedRecord


def record(offset: int, size: int = 10, partition: int = 0) -> FeedRecord:
    return FeedRecord("posts", partition, offset, -1, None, b"x" * size)


def test_it_is_full_at_either_limit_and_has_room_at_half_of_both() -> None:
    by_number = Buffer(max_records=4, max_bytes=1000)
    by_number.put([record(0), record(1), record(2)])
    assert not by_number.is_full
    by_number.put([record(3)])
    assert by_number.is_full
    by_number.take(1, 1000)
    assert by_number.is_full  # or it would be paused and resumed for every record
    by_number.take(1, 1000)
    assert not by_number.is_full
    by_size = Buffer(max_records=100, max_bytes=1000)
    by_size.put([record(0, 400), record(1, 600)])
    assert by_size.is_full
    by_size.take(1, 10_000)
    assert by_size.is_full and len(by_size) == 1
    by_size.take(1, 10_000)
    assert not by_size.is_full


def test_keys_and_headers_have_a_size_too() -> None:
    full = Buffer(max_records=100, max_bytes=1000)
    full.put([FeedRecord("posts", 0, 0, -1, b"k" * 500, None, (("h" * 200, b"x" * 300), ("h", None)))])
    assert full.is_full


def test_a_batch_keeps_both_limits_and_a_large_record_comes_alone() -> None:
    buffer = Buffer(max_records=100, max_bytes=10_000)
    buffer.put([record(offset, size) for offset, size in enumerate((10, 10, 95, 500, 10, 10))])
    taken = [[entry.offset for entry in buffer.take(3, 100)] for _ in range(5)]
    assert taken == [[0, 1], [2], [3], [4, 5], []]


def test_what_is_dropped_makes_room() -> None:
    buffer = Buffer(max_records=2, max_bytes=1000)
    buffer.put([record(0), record(1)])
    buffer.clear()
    assert not buffer.is_full and buffer.take(9, 9) == []


async def test_a_waiter_sees_records_room_and_the_end() -> None:
    buffer = Buffer(max_records=2, max_bytes=1000)
    filled = asyncio.create_task(buffer.filled())
    await asyncio.sleep(0)
    buffer.put([record(0), record(1)])
    buffer.clear()  # before its waiter runs: there is nothing to take
    await asyncio.sleep(0.01)
    assert not filled.done()
    buffer.put([record(0), record(1)])
    assert await filled
    room = asyncio.create_task(buffer.room())
    await asyncio.sleep(0)
    assert not room.done()
    buffer.take(2, 1000)
    await room
    ended = asyncio.create_task(buffer.filled())
    await asyncio.sleep(0)
    buffer.end()
    assert not await ended


@given(
    st.lists(st.lists(st.integers(0, 50), max_size=5), max_size=10), st.integers(1, 4), st.integers(1, 100), st.data()
)
def test_all_of_it_comes_out_in_order(puts: list[list[int]], most: int, most_bytes: int, data: st.DataObject) -> None:
    buffer = Buffer(max_records=8, max_bytes=100)
    given_in: list[FeedRecord] = []
    out: list[FeedRecord] = []
    for sizes in puts:
        fresh = [record(len(given_in) + number, size) for number, size in enumerate(sizes)]
        given_in += fresh
        buffer.put(fresh)
        for _ in range(data.draw(st.integers(0, 2))):
            taken = buffer.take(most, most_bytes)
            assert len(taken) <= most and (len(taken) <= 1 or sum(entry.size for entry in taken) <= most_bytes)
            out += taken
    while len(buffer):
        out += buffer.take(most, most_bytes)
    assert out == given_in and not buffer.is_full
