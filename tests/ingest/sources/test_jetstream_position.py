"""Cursors by kind, and a position that never moves past what may still come."""

import pytest

from ingest.sources.bluesky_frame import Frame
from ingest.sources.jetstream_position import JetstreamPosition

SECOND = 1_000_000
T = 1_783_175_888_000_000


def v1():
    return JetstreamPosition(False, "host", overlap_s=5, settle_s=20)


def v2():
    return JetstreamPosition(True, "host:443", overlap_s=5, settle_s=20)


def at(time_us=None, seq=None):
    return Frame("commit", "did:plc:a", time_us, seq)


def test_a_v1_cursor_resumes_some_seconds_before():
    position = v1()
    assert position.cursor is None and position.ask(0, 600) is None
    assert position.resume(f"v1:{T}") and position.cursor == f"v1:{T}"
    assert position.ask(0, 600) == T - 5 * SECOND


def test_a_v2_cursor_resumes_at_its_number_on_its_own_server():
    position = v2()
    assert position.resume("v2:77@host:443") and position.ask(0, 600) == 77
    position.move(at(T, 79), 1)
    assert position.cursor == "v2:79@host:443" and position.ask(1, 600) == 79


@pytest.mark.parametrize(
    "cursor", [f"v1:{T}", "v2:77@other", "v2:77", "77", "", f"v2:{10**15}@host:443", "v2:-1@host:443"]
)
def test_a_v2_server_is_never_asked_for_another_kind_of_cursor(cursor):
    position = v2()
    assert not position.resume(cursor)
    assert position.ask(0, 600) is None and position.cursor is None


@pytest.mark.parametrize("cursor", ["v2:77@host", "v1:", "v1:-5", "v1:12x", str(T), "v1:" + "9" * 17, "v1:\u0663"])
def test_a_v1_server_neither(cursor):
    position = v1()
    assert not position.resume(cursor) and position.ask(0, 600) is None


def test_a_clamped_cursor_shows_in_the_first_event_only():
    position = v1()
    position.resume(f"v1:{T}")
    position.ask(0, 600)
    assert position.missed_us(at()) == 0  # says no time, so it says nothing
    assert position.missed_us(at(T + 100 * SECOND)) == 105 * SECOND
    assert position.missed_us(at(T + 900 * SECOND)) == 0


def test_the_position_follows_events_out_of_order_but_not_far_back():
    position = v1()
    for time_us in (T, T + 30 * SECOND, T + SECOND):  # live overtook the replay (jetstream-legacy#42)
        position.move(at(time_us), 0)
    assert position.cursor == f"v1:{T + SECOND}"
    position.move(at(1_400_000_000_000_000), 0)
    assert position.cursor == f"v1:{T + SECOND - 600 * SECOND}"


def test_v2_numbers_only_grow():
    position = v2()
    for seq in (5, 9, 7):
        position.move(at(T, seq), 0)
    assert position.cursor == "v2:9@host:443"


def test_the_oldest_that_a_v2_server_has_is_asked_for_by_a_time_and_is_no_cursor():
    position = v2()
    position.resume("v2:5@host:443")
    position.forget_too_old()
    assert position.ask(0, 600) == 10**15 and position.is_oldest and position.cursor is None
    position.move(at(T, 3), 0)
    assert position.cursor == "v2:3@host:443"


def test_a_quiet_connection_moves_the_position_to_where_it_opened_and_no_further():
    position = v1()
    position.move(at(T), 100)
    assert not position.settle(1000)  # this connection may have been silent for another reason
    position.ask(500, 600)
    assert position.settle(1000) and position.cursor == f"v1:{T + 380 * SECOND}"
    assert not position.settle(2000)
    position.ask(900, 600)
    assert position.settle(3000) and position.cursor == f"v1:{T + 780 * SECOND}"


def test_it_does_not_move_when_events_came_or_when_the_replay_may_be_long():
    position = v1()
    position.move(at(T), 100)
    position.ask(500, 600)
    position.move(at(T + SECOND), 501)
    assert not position.settle(1000)
    position.ask(5000, 600)
    assert not position.settle(6000)
    fresh = v1()
    fresh.resume(f"v1:{T}")  # of an earlier process: how long ago is not known
    fresh.ask(5, 600)
    assert not fresh.settle(50)
