"""How many a second, over the last while."""

from collections import deque

REMEMBERED_S = 60


class Rate:
    """Counts by the second and remembers a minute. Times are monotonic seconds, given by the caller."""

    def __init__(self, started_s: float) -> None:
        self._started_s = started_s
        self._seconds: deque[tuple[int, int]] = deque()  # (second, count), the oldest first

    def add(self, count: int, now_s: float) -> None:
        second = int(now_s)
        if self._seconds and self._seconds[-1][0] == second:
            count += self._seconds.pop()[1]
        self._seconds.append((second, count))
        while self._seconds[0][0] < second - REMEMBERED_S:
            self._seconds.popleft()

    def per_s(self, window_s: int, now_s: float) -> float:
        """Over the last `window_s` whole seconds and the one that runs, or since the start if that is nearer."""
        assert 0 < window_s <= REMEMBERED_S
        first = int(now_s) - window_s
        counted = sum(count for second, count in self._seconds if second >= first)
        return counted / max(1.0, min(now_s - first, now_s - self._started_s))
