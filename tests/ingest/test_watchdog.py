"""T10: a consumer that seems alive and gets nowhere."""

import pickle

import pytest

from ingest.watchdog import GIVE_UP_STALLS, FeedStalled, Watchdog


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize("sign", ["answered", "moved"])
def test_both_signs_have_to_go_on(sign: str) -> None:
    clock = Clock()
    watchdog = Watchdog(20.0, clock)
    for _ in range(30):
        clock.now_s += 1
        getattr(watchdog, sign)()
    assert watchdog.is_stuck
    watchdog.answered()
    watchdog.moved()
    assert not watchdog.is_stuck
    clock.now_s += 19.9
    assert not watchdog.is_stuck


def test_a_new_consumer_has_its_own_time() -> None:
    clock = Clock()
    watchdog = Watchdog(20.0, clock)
    clock.now_s += 21
    assert watchdog.is_stuck and watchdog.silent_s == 21
    watchdog.built()
    assert not watchdog.is_stuck and watchdog.silent_s == 0
    clock.now_s += 20
    assert watchdog.is_stuck


def test_rebuilding_for_long_without_effect_is_a_stall() -> None:
    clock = Clock()
    watchdog = Watchdog(20.0, clock)
    for _ in range(GIVE_UP_STALLS - 1):
        clock.now_s += 20
        watchdog.built()
        watchdog.answered()
        watchdog.check("records wait")
    clock.now_s += 20
    with pytest.raises(FeedStalled, match="not moved for 300 s: records wait"):
        watchdog.check("records wait")
    watchdog.moved()
    watchdog.answered()
    watchdog.check("records wait")


def test_the_error_crosses_a_process() -> None:
    error = pickle.loads(pickle.dumps(FeedStalled("records wait", 300.0)))
    assert str(error) == str(FeedStalled("records wait", 300.0))
