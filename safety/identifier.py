"""What the recognisers of personal data find, and the words to its left that they may look at."""

from dataclasses import dataclass
from functools import lru_cache

import regex

# How far to its left a recogniser looks for a word such as "card". Only to the left: a stream has no right.
CONTEXT_CHARS = 48


@dataclass(frozen=True, slots=True)
class Identifier:
    """One personal identifier at `start:end` of a normalised text. `rule` says how it was recognised."""

    label: str
    start: int
    end: int
    rule: str
    score: float = 1.0


def has_word_before(lower: str, start: int, words: str) -> bool:
    """Whether one of `words` (a regex alternation) stands within CONTEXT_CHARS before `start`: in the same line, or in
    the line above when nothing else precedes ("Phone:" and the number below it)."""
    left = lower[max(0, start - CONTEXT_CHARS) : start].rstrip()
    return _word(words).search(left[left.rfind("\n") + 1 :]) is not None


@lru_cache(maxsize=64)
def _word(words: str) -> regex.Pattern[str]:
    return regex.compile(rf"(?a)(?<![^\W_])(?:{words})(?![^\W_])")
