"""Waits double, are spread, have an end, and begin again."""

from ingest.sources.backoff import BackOff


def test_waits_double_up_to_the_longest_and_begin_again():
    backoff = BackOff(1, 10, spread=lambda least, most: most)
    assert [backoff.next_s() for _ in range(6)] == [1, 2, 4, 8, 10, 10]
    backoff.reset()
    assert backoff.next_s() == 1


def test_waits_are_spread_over_the_upper_half_and_never_overflow():
    backoff = BackOff(1, 60)
    waits = [backoff.next_s() for _ in range(2000)]
    assert len(set(waits[6:])) > 1000 and all(30 <= wait <= 60 for wait in waits[6:])
