"""Files of events, and their replay with times moved to now. No real time passes here."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.sources.jsonl import BadLine, Event, read_events
from ingest.sources.replay import Shift, replay
from ingest.versions import time_us, version_us

NOW_US = 1_800_000_000_000_000
START = "2026-01-01T12:00:00.000Z"
START_US = time_us(START)


class Clock:
    """Time that passes only in `sleep`."""

    def __init__(self) -> None:
        self.us = NOW_US
        self.slept: list[float] = []

    def __call__(self) -> int:
        return self.us

    async def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.slept.append(seconds)
        self.us += round(seconds * 1_000_000)


def at(seconds: float) -> str:
    return f"2026-01-01T12:{int(seconds) // 60:02d}:{seconds % 60:06.3f}Z"


def line(seconds: float, post_id: str = "t:1", **fields: Any) -> dict[str, Any]:
    return {"id": post_id, "text": "text", "created_at": at(seconds)} | fields


async def played(items: Iterable[bytes | Mapping[str, Any]], **options: Any) -> tuple[list[tuple[int, Any]], Clock]:
    """[(when it came, in seconds from now; the event)]"""
    clock = Clock()
    come = []
    async for event in replay(read_events(items), clock=clock, sleep=clock.sleep, **options):
        come.append(((clock.us - NOW_US) / 1_000_000, event))
    return come, clock


async def test_posts_come_at_their_own_pace_with_their_times_moved_to_now() -> None:
    come, clock = await played([line(0), line(5), line(5), line(12.5)])
    assert [when for when, _ in come] == [0, 5, 5, 12.5]
    assert clock.slept == [5, 7.5]
    for when, event in come:
        assert time_us(event.value["created_at"]) == NOW_US + round(when * 1_000_000) == event.at_us
        assert event.value["text"] == "text" and "edited_at" not in event.value and "version" not in event.value


async def test_speed_shortens_the_pauses_and_the_times_alike() -> None:
    come, clock = await played([line(0), line(50)], speed=10)
    assert clock.slept == [5]
    assert time_us(come[1][1].value["created_at"]) == NOW_US + 5_000_000


async def test_what_lies_before_the_present_comes_at_once_in_the_past() -> None:
    come, clock = await played([line(0), line(30), line(61)], present_us=time_us(at(60)))
    assert [when for when, _ in come] == [0, 0, 1] and clock.slept == [1]
    assert [time_us(event.value["created_at"]) - NOW_US for _, event in come] == [-60_000_000, -30_000_000, 1_000_000]


async def test_an_edit_comes_when_it_was_made_and_keeps_its_creation() -> None:
    items = [line(0), line(0, edited_at=at(40)), line(20, "t:2")]
    come, clock = await played(items)
    assert [when for when, _ in come] == [0, 40, 40]  # in the file's order: the late line is overdue, and comes at once
    edit = come[1][1].value
    assert time_us(edit["created_at"]) == NOW_US and time_us(edit["edited_at"]) == NOW_US + 40_000_000


@pytest.mark.parametrize("version", ["3mptbypcq372f", "1767268800000", "1767268800000000", "2026-01-01T12:00:00Z"])
async def test_versions_move_like_the_times(version: str) -> None:
    come, _ = await played([line(0, version=version)])
    moved = come[0][1].value["version"]
    assert version_us(moved) - version_us(version) == pytest.approx(NOW_US - START_US, abs=1000)
    assert len(moved) == len(version) or version.endswith("Z")


async def test_events_carry_edits_and_deletions() -> None:
    post = line(0, "t:1")
    items: list[Any] = [
        {"at": at(0), "id": "t:1", "post": post},
        {"at": at(10), "id": "t:1", "post": {**post, "text": "edited", "edited_at": at(9)}},
        {"at": at(20), "id": "t:1", "post": None},
        {"at": at(30), "id": "t:2", "deleted": True},
    ]
    come, _ = await played(items)
    assert [when for when, _ in come] == [0, 10, 20, 30]
    assert come[1][1].value["text"] == "edited" and "at" not in come[1][1].value
    assert [event.value.get("deleted") for _, event in come] == [None, None, True, True]
    for when, event in come[2:]:
        assert version_us(event.value["version"]) == NOW_US + round(when * 1_000_000)
    assert come[3][1].value["id"] == "t:2"


async def test_bad_lines_are_reported_by_number_and_the_others_go_on() -> None:
    good = json.dumps(line(0)).encode()
    come, _ = await played(
        [good, b"", b"{", b"\xff", b'{"id": "t:1", "at": 5}', b'{"at": "soon", "id": "t:1", "post": null}',
         b'{"id": "t:1", "post": 5}', b'{"id": "t:1", "post": {"id": "t:2"}}', b"null", good]
    )  # fmt: skip
    assert [event.number for _, event in come] == [1, 3, 4, 5, 6, 7, 8, 9, 10]
    bad = {event.number: event.reason for _, event in come if isinstance(event, BadLine)}
    assert {number: reason.split(":")[0] for number, reason in bad.items()} == {
        3: "json", 4: "utf8", 5: "at", 6: "at", 7: "post", 8: "id", 9: "null",
    }  # fmt: skip
    assert all(isinstance(come[index][1], Event) for index in (0, 8))


async def test_an_event_without_a_time_comes_at_once() -> None:
    come, clock = await played([line(0), {"id": "t:1", "deleted": True}, line(3)])
    assert [when for when, _ in come] == [0, 0, 3] and clock.slept == [3]
    assert come[1][1].value == {"id": "t:1", "deleted": True}


@pytest.mark.parametrize("speed", [0, -1, float("nan")])
async def test_speed_is_above_zero(speed: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        await played([line(0)], speed=speed)


@given(
    st.lists(st.integers(0, 10**13), min_size=2, max_size=5),
    st.floats(0.01, 1000),
    st.integers(0, 2 * 10**15),
)
def test_order_is_kept_by_every_shift(times: list[int], speed: float, now_us: int) -> None:
    shift = Shift(times[0], now_us, speed)
    assert shift(times[0]) == now_us
    moved = [shift(us) for us in sorted(times)]
    assert moved == sorted(moved)


def test_the_sample_feed_is_made_of_readable_events() -> None:
    from ingest.sources.sample import sample_records

    events = list(read_events(sample_records()))
    assert not [event for event in events if isinstance(event, BadLine)]
    assert len(events) >= 2000 and any(event.value.get("deleted") for event in events if isinstance(event, Event))
