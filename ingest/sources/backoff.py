"""How long to wait before the next try."""

import random
from collections.abc import Callable


class BackOff:
    """Waits that double from `first_s` to `most_s`, each drawn from its upper half, so that clients spread.

    `spread(least, most)` draws; tests pass one that always waits the same.
    """

    def __init__(
        self, first_s: float = 0.5, most_s: float = 60.0, spread: Callable[[float, float], float] = random.uniform
    ) -> None:
        self._first_s, self._most_s, self._spread = first_s, most_s, spread
        self._tries = 0

    def next_s(self) -> float:
        longest_s = min(self._most_s, self._first_s * 2.0 ** min(self._tries, 32))
        self._tries += 1
        return self._spread(longest_s / 2, longest_s)

    def reset(self) -> None:
        """Something worked: the next wait is the first again."""
        self._tries = 0
