"""What a layer of the screen is and what it says."""

from typing import NamedTuple, Protocol

from safety.normalise import Normalised
from safety.verdict import Finding, Surface


class Flag(NamedTuple):
    """A finding (offsets into the raw text) and, when its action is REWRITE, what stands in place of its span."""

    finding: Finding
    instead: str = ""


class Layer(Protocol):
    """One kind of judgement. Pure and thread-safe: a layer keeps nothing between texts."""

    name: str

    def examine(self, text: Normalised, surface: Surface) -> list[Flag]: ...
