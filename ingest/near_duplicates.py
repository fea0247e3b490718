"""Texts that say the same in nearly the same words: a copy with a word added, a mark changed, the end cut off.

By how many runs of four letters they share, counted: of 60 posts in 5 ms beside other work, where MinHash (datasketch,
64 hashes) takes 24 ms to guess at it. Vectors are no help: "PSI is 73 at 6pm" and "PSI is 77 at 7pm" have a cosine of
.99. What separates such texts is what decides here: numbers and negations must be the same.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import regex

SAME = 0.75  # of all the runs that two texts have, both have as many
CONTAINED, AND_SAME = 0.95, 0.5  # nearly all of the shorter text's: "this > RT @ana: Bridge closed, avoid the quay"
CONTAINED_RUNS = 30  # of the shorter text at least: tags alone are in many texts
RUN = 4
NUMBER = regex.compile(r"(?<!\p{L})\p{N}+(?:[.,:]\p{N}+)*")
NEGATION = regex.compile(
    r"\b(?:not?|never|none|nobody|nothing|without|cannot|\w+n['\u2019]t|sin|nunca|nadie|nada|ningun\w*|tampoco|nicht|nie|"
    r"niemals|niemand|nichts|kein\w*|ohne|pas|jamais|aucun\w*|sans|n\u00e3o|non|mai|false|falso|fake|falsch|untrue|rumou?r)\b"
    r"|[\u4e0d\u6ca1\u6c92\u672a\u65e0\u7121\u975e\u5426]"
)
MENTION = regex.compile(r"(?<!\w)@[\w.@-]+|https?://\S+|www\.\S+|(?<!\w)(?:rt|via|v\u00eda)(?!\w)")
IS_CUT = regex.compile(r"(?:\u2026|\.\.\.?)\s*$")


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a text is compared."""

    runs: frozenset[str]
    numbers: frozenset[str]
    negations: frozenset[str]
    is_cut: bool

    @classmethod
    def of(cls, text: str) -> "Shape":
        bare = MENTION.sub(" ", text.casefold())
        letters = "".join(filter(str.isalpha, bare))
        runs = frozenset(letters[i : i + RUN] for i in range(max(1, len(letters) - RUN + 1)))
        numbers = frozenset("".join(filter(str.isalnum, number)) for number in NUMBER.findall(bare))  # 1,000 is 1000
        return cls(runs, numbers, frozenset(NEGATION.findall(bare)), bool(IS_CUT.search(bare)))

    def says_as(self, other: "Shape") -> bool:
        """Numbers and negations agree; a text whose end is cut off may have lost some."""
        return all(
            (mine == theirs or (self.is_cut and mine < theirs) or (other.is_cut and theirs < mine))
            for mine, theirs in ((self.numbers, other.numbers), (self.negations, other.negations))
        )


def near_duplicates(texts: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of positions, the smaller first. Texts without letters are near to nothing."""
    shapes = [Shape.of(text) for text in texts]
    shared = _shared(shapes)
    sizes = np.array([len(shape.runs) for shape in shapes], dtype=np.float32)
    fewer = np.minimum(sizes[:, None], sizes[None, :])
    alike = shared / np.maximum(sizes[:, None] + sizes[None, :] - shared, 1)
    is_near = alike >= SAME
    is_near |= (shared >= CONTAINED * fewer) & (alike >= AND_SAME) & (fewer >= CONTAINED_RUNS)
    pairs = np.argwhere(np.triu(is_near, k=1))
    return [(int(i), int(j)) for i, j in pairs if shapes[i].says_as(shapes[j]) and "" not in shapes[i].runs]


def _shared(shapes: Sequence[Shape]) -> np.ndarray:
    """[n, n] how many runs each two have in common; not on the diagonal.

    A run that only one has takes no column: 400 long posts of random letters would fill 700 MB, for half a minute.
    """
    texts_with = Counter(run for shape in shapes for run in shape.runs)
    number_of = {run: number for number, run in enumerate(run for run, count in texts_with.items() if count > 1)}
    has = np.zeros((len(shapes), len(number_of)), dtype=np.float32)
    for row, shape in enumerate(shapes):
        has[row, [number_of[run] for run in shape.runs if run in number_of]] = 1
    return has @ has.T
