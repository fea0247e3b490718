"""Guessing the next tokens by looking up what followed the same words before: Saxena, "Prompt Lookup Decoding", 2023.
An answer that quotes its prompt is computed several tokens a step. Knows no model."""

from collections.abc import Sequence

_LONG, _SHORT = 4, 3  # tokens that have to match; with 2, answers that do not quote become slower
# Tokens guessed: few at first, many when the last guess came true as a whole, for then the answer quotes. On two cores
# a step of 4 rows takes 1.4 times one of 1, of 5 to 8 2.2 times and of 16 2.4 times (SmolLM2, dense).
_FEW, _MANY = 3, 15
_LONGEST_PAUSE = 16  # tokens


class PromptLookup:
    """Follows `token_ids`, the caller's own growing list. A guess that fails costs time: after some in a row it waits
    for 1, 3, 7, 15 and then always 16 tokens before the next."""

    def __init__(self, token_ids: Sequence[int]) -> None:
        self._token_ids = token_ids
        self._next: dict[tuple[int, ...], int] = {}  # where the latest continuation of these tokens begins
        self._indexed = _SHORT
        self._quotes = False
        self._misses = 0
        self._resume = 0  # no guess before there are as many tokens

    def propose(self, most: int) -> tuple[int, ...]:
        """At most `most` tokens that may come next; none when nothing like the end was there before."""
        ids = self._token_ids
        if len(ids) < self._resume or most <= 0:
            return ()
        self._index()
        long = self._next.get(tuple(ids[-_LONG:]))
        place = self._next.get(tuple(ids[-_SHORT:])) if long is None else long
        if place is None:
            return ()
        count = _MANY if self._quotes and long is not None else _FEW
        period = len(ids) - place  # beyond the end, the text goes on as it repeats itself
        return tuple(ids[place + offset % period] for offset in range(min(most, count)))

    def learn(self, proposed: int, accepted: int) -> None:
        """How many of the tokens proposed last came true."""
        self._quotes = accepted == proposed
        self._misses = 0 if accepted else self._misses + 1
        if self._misses:
            self._resume = len(self._token_ids) + min(2**self._misses - 1, _LONGEST_PAUSE)

    def _index(self) -> None:
        ids, after = self._token_ids, self._next
        for place in range(self._indexed, len(ids)):
            after[tuple(ids[place - _SHORT : place])] = place
            if place >= _LONG:
                after[tuple(ids[place - _LONG : place])] = place
        self._indexed = max(self._indexed, len(ids))
