"""Cuts an answer into the pieces that are screened and leave as one.

A cut is decided from the piece so far and one character after it, never from what comes later, so a text is cut at the
same places however it arrives, and a piece cut again stays whole.
"""

import regex

from safety.normalise import normalise
from safety.open_end import TAIL_CHARS, is_open, open_from
from safety.pii import identify

SOFT_CHARS = 200  # from here a space is good enough
HARD_CHARS = 240  # from here any place is, tried every STEP_CHARS
STEP_CHARS = 32
LAST_CHARS = 640  # from here the cut goes before what is open; longer than all that can be open

MARKS = frozenset(".!?\u2026\u061f\u06d4\u0964")  # ends that want a space after them; also Arabic, Urdu and Hindi ones
WIDE_MARKS = frozenset("\u3002\uff01\uff1f\uff0e\uff61")  # ends that do not: Chinese and Japanese
LABELS = (":", "\uff1a")  # what a line ends with that names the next one
CLOSERS = frozenset("\"'\u201d\u2019\u00bb)]*_\u300d\u300f\uff09\u3011\u300b")
ABBREVIATION = regex.compile(
    r"(?:^|[\s(\"'])(?:(?!I\.)\p{L}|(?:\p{L}\.)+\p{L}|mr|mrs|ms|dr|prof|st|jr|sr|vs|etc|approx|dept|gen|"
    r"gov|sen|rep|no|nos|fig|inc|ltd|"
    r"co|sra|dra|srta|ud|uds|pág|núm|hr|fr|nr|bzw|ca|usw|evtl|ggf|str|vgl)\.$",
    regex.IGNORECASE,
)
ITEM = regex.compile(r"(?:^|\n)\s*\d{1,3}\.$")


class Sentences:
    """Takes text as it comes, gives the pieces whose end is certain."""

    def __init__(self) -> None:
        self._held = ""
        self._tried = 1  # the first place that has not been tried as the end of the held piece

    def feed(self, text: str) -> list[str]:
        """The pieces that are complete now; "".join of all pieces and of `close` is the text."""
        held = self._held + text
        pieces: list[str] = []
        start, place = 0, self._tried
        while place < len(held):
            cut = _cut(held, start, place)
            if cut is None:
                place += 1
            else:
                pieces.append(held[start:cut])
                start, place = cut, cut + 1
        self._held, self._tried = held[start:], place - start
        return pieces

    def retract(self, chars: int) -> int:
        """Forgets the last `chars` characters of what is held; how many there were."""
        kept = max(0, len(self._held) - chars)
        gone = len(self._held) - kept
        self._held, self._tried = self._held[:kept], max(1, min(self._tried, kept))
        return gone

    def close(self) -> list[str]:
        """What is still held, as the last piece."""
        rest, self._held, self._tried = self._held, "", 1
        return [rest] if rest else []


def split(text: str) -> list[str]:
    """The pieces of a whole text."""
    sentences = Sentences()
    return sentences.feed(text) + sentences.close()


def _cut(held: str, start: int, place: int) -> int | None:
    """Where to end the piece held[start:...], knowing held[: place + 1], or None to go on. It is `place`, save when a
    piece became too long: then before whatever is open."""
    length = place - start
    if length < LAST_CHARS:
        if not (_is_end(held, start, place) or _is_enough(held[place - 1], length)):
            return None
        return None if is_open(held[max(start, place - TAIL_CHARS) : place], held[place]) else place
    return start + (_before_open(held[start:place], held[place]) or length)


def _is_enough(before: str, length: int) -> bool:
    if length >= HARD_CHARS:
        return (length - HARD_CHARS) % STEP_CHARS == 0
    return length >= SOFT_CHARS and before.isspace()


def _is_end(held: str, start: int, place: int) -> bool:
    """Whether a sentence or a line ends before `place`; the space after it may stand on either side of the cut."""
    before, after = held[place - 1], held[place]
    if before.isspace():
        if after.isspace():
            return False
        words = held[start:place].rstrip()
        ends_line = "\n" in held[start + len(words) : place] and not words.endswith(LABELS)
        return bool(words) and (ends_line or _ends_sentence(words))
    if before in WIDE_MARKS or (before in CLOSERS and before > "\u2fff"):
        return after not in WIDE_MARKS and after not in CLOSERS and _ends_sentence(held[start:place])
    return after.isspace() and (before in MARKS or before in CLOSERS) and _ends_sentence(held[start:place])


def _ends_sentence(words: str) -> bool:
    end = len(words)
    while end and words[end - 1] in CLOSERS:
        end -= 1
    if not end or (words[end - 1] not in MARKS and words[end - 1] not in WIDE_MARKS):
        return False
    if words[end - 1] != ".":
        return True
    return (
        ABBREVIATION.search(words, max(0, end - 16), end) is None and ITEM.search(words, max(0, end - 16), end) is None
    )


def _before_open(piece: str, after: str) -> int:
    """Where to cut a piece that never came to an end: before what is open and what that overlaps; 0: nowhere."""
    tail = max(0, len(piece) - TAIL_CHARS)
    cut = tail + open_from(piece[tail:], after)
    seen = normalise(piece)
    for found in reversed(identify(seen)):
        start, end = seen.raw_span(found.start, found.end)
        if start < cut < end:
            cut = start
    return cut
