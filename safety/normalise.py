"""Text as the layers read it: one alphabet, nothing invisible, and the way back to the raw offsets.

Each code point is mapped by itself and nothing is composed, so `normalise(a + b)` is `normalise(a)` followed by
`normalise(b)`: a stream may be cut anywhere.
"""

import unicodedata
from dataclasses import dataclass, field
from functools import lru_cache

TAG_SPACE, TAG_TILDE, TAG_CANCEL = 0xE0020, 0xE007E, 0xE007F
BLACK_FLAG = "\U0001f3f4"

# Dashes and quotation marks that NFKC leaves alone.
PLAIN = {
    **dict.fromkeys(map(chr, (*range(0x2010, 0x2016), 0x2212)), "-"),
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u02bc\u00b4", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb", '"'),
}
SPACES = dict.fromkeys(map(ord, "\n\r\t\v\f\u2028\u2029"), " ")
# Characters that are not drawn but are no format characters (category Cf): fillers, joiners, variation selectors.
UNDRAWN = frozenset(map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0, *range(0xFE00, 0xFE10))))


@dataclass(frozen=True, slots=True)
class Normalised:
    """`text` is what patterns see and `lower` the same in lower case, offset by offset. `hidden` counts the letters
    that came from Unicode tag characters outside a flag emoji: text that only a machine reads."""

    raw: str = field(repr=False)
    text: str = field(repr=False)
    lower: str = field(repr=False)
    hidden: int = 0
    _origins: tuple[int, ...] | None = field(default=None, repr=False)  # raw offset of each character; None: the same

    @property
    def line(self) -> str:
        """`lower` on one line, for what must be seen however its lines are broken."""
        return self.lower if self.lower.isprintable() else self.lower.translate(SPACES)

    def raw_span(self, start: int, end: int) -> tuple[int, int]:
        """The raw characters behind text[start:end], with the undrawn ones between them."""
        assert 0 <= start < end <= len(self.text)
        if self._origins is None:
            return start, end
        return self._origins[start], self._origins[end - 1] + 1


def normalise(raw: str) -> Normalised:
    """NFKC by code point; ASCII digits, dashes and quotes; undrawn characters dropped, tags decoded."""
    if raw.isascii():
        return Normalised(raw, raw, raw.lower())
    if all(char < "\x80" or _seen(char) == char for char in set(raw)):
        return Normalised(raw, raw, _lower(raw))
    pieces: list[str] = []
    origins: list[int] = []
    hidden = 0
    in_flag = False
    for offset, char in enumerate(raw):
        code = ord(char)
        is_tag = TAG_SPACE <= code <= TAG_CANCEL
        if is_tag and not in_flag and code != TAG_CANCEL:
            hidden += 1
        in_flag = char == BLACK_FLAG or (in_flag and is_tag and code != TAG_CANCEL)
        seen = char if char < "\x80" else _seen(char)
        pieces.append(seen)
        origins.extend([offset] * len(seen))
    text = "".join(pieces)
    return Normalised(raw, text, _lower(text), hidden, tuple(origins))


@lru_cache(maxsize=8192)
def _seen(char: str) -> str:
    code = ord(char)
    if TAG_SPACE <= code <= TAG_TILDE:
        return chr(code - 0xE0000)
    if char in UNDRAWN or unicodedata.category(char) == "Cf":
        return ""
    digit = unicodedata.decimal(char, None)
    if digit is not None:
        return str(digit)
    return PLAIN.get(char) or unicodedata.normalize("NFKC", char)


def _lower(text: str) -> str:
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(low if len(low := char.lower()) == 1 else char for char in text)
