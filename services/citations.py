"""Markers in the answer <-> posts: each finished sentence is marked with the posts that support it."""

import re
from collections.abc import Awaitable, Callable, Sequence

from ingest.post import Match
from services.events import Citation, Delta, Marked
from services.markup import clean, is_open, without_openings
from services.support import Embed, Evidence, Support, is_claim

StillPresent = Callable[[Sequence[str]], Awaitable[set[str]]]

MAX_MARKERS = 2  # of one sentence
MAX_HELD_CHARS = 600  # a sentence longer than this is marked in parts

_CLOSERS = "\"'\u2019\u201d\u00bb)*_\u300d\u300f\uff09\\]"
_WIDE_END = "[\u3002\uff01\uff1f]"
_ENDED = re.compile(rf"(?:[.!?\u2026\u061f\u06d4\u0964][{_CLOSERS}]*|{_WIDE_END}[{_CLOSERS}]*|\n)\s*$")
# Between sentences of one piece. A marker belongs to the sentence before it; a small letter goes on with its
# sentence: "at 6 p.m. on Friday".
_MARKERS = r"(?:\s*[\[\u3010][^\[\]\u3011\n]{1,20}[\]\u3011])*"
_BETWEEN = re.compile(
    rf"[.!?\u2026\u061f\u06d4\u0964][{_CLOSERS}]*{_MARKERS}\s+(?=[^\sa-z\[\u3010])"
    rf"|{_WIDE_END}[{_CLOSERS}]*{_MARKERS}\s*(?=[^\s\[\u3010])|\n\s*(?=\S)"
)
_WRITTEN_CLOSE = re.compile("[\u3001\u3002\uff01\uff0c\uff1f\u300d\u300f\uff09\u3040-\u30ff\u3400-\u9fff]$")


class Citer:
    """Marks one answer. Feed it every screened piece with `write`, then `finish`; concatenated, the deltas' texts are
    the answer, and marks count code points in it. `[n]` appears only for posts given here that support the sentence
    and that `still_present` (post ids -> those that exist) has just confirmed; the model's own markers are hints."""

    def __init__(
        self, citations: Sequence[Citation], matches: Sequence[Match], embed: Embed, still_present: StillPresent
    ) -> None:
        assert [one.post_id for one in citations] == [one.post_id for one in matches], "a citation for each match"
        assert [one.number for one in citations] == list(range(1, len(citations) + 1)), "numbered from 1"
        self._citations = tuple(citations)
        self._urls = frozenset(one.url for one in citations if one.url)
        self._support = Support([_evidence(match) for match in matches], embed)
        self._still_present = still_present
        self._held = ""
        self._length = 0
        self._last = ""
        self._marked: set[int] = set()
        self.unsupported_sentences = 0

    async def write(self, piece: str) -> list[Delta]:
        """What can be shown now. A piece that does not end a sentence is held until one does."""
        self._held += piece
        shown, _ = clean(self._held, self._urls)
        if _ENDED.search(shown) and not is_open(shown):
            return await self._release(len(self._held))
        if len(self._held) > MAX_HELD_CHARS:
            return await self._release(self._held.rfind(" ") + 1 or len(self._held))
        return []

    async def finish(self) -> list[Delta]:
        """The rest, whether or not it ends a sentence."""
        return await self._release(len(self._held))

    async def attribute(self, sentence: str, named: Sequence[int] = ()) -> list[int]:
        """Numbers of the posts that support `sentence`, best first. `named`: those the model named itself."""
        return [place + 1 for place in await self._support.of(sentence, [number - 1 for number in named])]

    def cited(self) -> tuple[Citation, ...]:
        """Those whose marker is in the answer, by number."""
        return tuple(self._citations[number - 1] for number in sorted(self._marked))

    async def check_cited(self) -> tuple[tuple[Citation, ...], tuple[Citation, ...]]:
        """The cited posts that still exist, and those that were removed since they were marked."""
        cited = self.cited()
        present = await self._still_present([one.post_id for one in cited]) if cited else set()
        kept = tuple(one for one in cited if one.post_id in present)
        return kept, tuple(one for one in cited if one.post_id not in present)

    async def _release(self, end: int) -> list[Delta]:
        ready, self._held = self._held[:end], self._held[end:]
        if is_open(clean(ready, self._urls)[0]):  # what is shown now and what comes could make a link or a marker
            ready = without_openings(ready)
        deltas = [await self._delta(sentence) for sentence in _sentences(ready)]
        return [delta for delta in deltas if delta.text]

    async def _delta(self, sentence: str) -> Delta:
        shown, named = clean(sentence, self._urls)
        if named and (not self._last or self._last.isspace()):
            shown = shown.lstrip(" ")  # stood after a marker that is gone
        if shown and self._last + shown[0] in _JOINS:
            shown = " " + shown
        body = shown.rstrip()
        numbers = await self._numbers(body, named)
        markers = "".join(f"[{number}]" for number in numbers)
        space = "" if not markers or _WRITTEN_CLOSE.search(body) else " "
        start = self._length + len(body) + len(space)
        marks = []
        for number in numbers:
            marks.append(Marked(self._citations[number - 1], start, start + len(f"[{number}]")))
            start = marks[-1].end
        text = body + space + markers + shown[len(body) :]
        self._length += len(text)
        self._last = text[-1:] or self._last
        return Delta(text, tuple(marks))

    async def _numbers(self, sentence: str, named: Sequence[int]) -> list[int]:
        numbers = await self.attribute(sentence, named)
        if numbers:
            present = await self._still_present([self._citations[number - 1].post_id for number in numbers])
            numbers = [number for number in numbers if self._citations[number - 1].post_id in present][:MAX_MARKERS]
        if not numbers and is_claim(sentence):
            self.unsupported_sentences += 1
        self._marked.update(numbers)
        return numbers


# Two pieces that must not touch: together they would open an image or a link.
_JOINS = frozenset({"![", "](", "][", "]:", "!\u3010"})


def _evidence(match: Match) -> Evidence:
    return Evidence(match.text, match.author_handle, match.author_name, match.vector)


def _sentences(text: str) -> list[str]:
    """Sentences with the whitespace after them, none parted inside a link or a marker."""
    sentences: list[str] = []
    start = 0
    for end in [*(found.end() for found in _BETWEEN.finditer(text)), len(text)]:
        if end > start and (end == len(text) or not is_open(text[start:end])):
            sentences.append(text[start:end])
            start = end
    return sentences
