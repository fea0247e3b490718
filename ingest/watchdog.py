"""Whether a consumer that seems alive gets anywhere (aiokafka#1154). Knows no broker."""

import time
from collections.abc import Callable

GIVE_UP_STALLS = 15  # rebuilds that did not help


class FeedStalled(RuntimeError):
    """Records wait, or the broker is silent, and building the consumer anew has not helped."""

    def __init__(self, reason: str, seconds: float) -> None:
        super().__init__(reason, seconds)
        self.reason, self.seconds = reason, seconds

    def __str__(self) -> str:
        return f"the feed has not moved for {self.seconds:.0f} s: {self.reason}"


class Watchdog:
    """Told that the broker answered, and that records moved or none waited. Both have to go on happening."""

    def __init__(self, stall_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self._stall_s, self._now_s = stall_s, now_s
        self._answered_s = self._moved_s = self._built_s = now_s()

    def built(self) -> None:
        """A new consumer starts with a clean slate, except for `check`."""
        self._built_s = self._now_s()

    def answered(self) -> None:
        self._answered_s = self._now_s()

    def moved(self) -> None:
        self._moved_s = self._now_s()

    @property
    def silent_s(self) -> float:
        return self._now_s() - max(self._answered_s, self._built_s)

    @property
    def is_stuck(self) -> bool:
        """Nothing came of this consumer for `stall_s`."""
        return self._now_s() - max(self._still_since_s, self._built_s) >= self._stall_s

    def check(self, reason: str) -> None:
        """Raises FeedStalled after the time of GIVE_UP_STALLS rebuilds."""
        still_s = self._now_s() - self._still_since_s
        if still_s >= GIVE_UP_STALLS * self._stall_s:
            raise FeedStalled(reason, still_s)

    @property
    def _still_since_s(self) -> float:
        return min(self._answered_s, self._moved_s)
