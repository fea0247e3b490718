"""Markers in the answer <-> posts: each finished sentence is marked with the posts that support it."""

import re
from collections.abc import Awaitable, Callable, Sequence

from ingest.post import Match
from safety.open_end import TAIL_CHARS, cut_from
from safety.open_end import is_open as is_unfinished
from safety.token_window import Judge
from safety.verdict import Action, Verdict
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
    and that `still_present` (post ids -> those that exist) has just confirmed; the model's own markers are hints.

    Taking the model's markup out makes a text that the screen has not seen: `judge` sees it before it leaves.
    `blocked` is the verdict that ended the answer here; nothing leaves after it."""

    def __init__(
        self,
        citations: Sequence[Citation],
        matches: Sequence[Match],
        embed: Embed,
        still_present: StillPresent,
        judge: Judge,
    ) -> None:
        assert [one.post_id for one in citations] == [one.post_id for one in matches], "a citation for each match"
        assert [one.number for one in citations] == list(range(1, len(citations) + 1)), "numbered from 1"
        self._citations = tuple(citations)
        self._urls = frozenset(one.url for one in citations if one.url)
        self._support = Support([_evidence(match) for match in matches], embed)
        self._still_present = still_present
        self._judge = judge
        self._held = ""
        self._tail = ""  # of what was shown, without our markers
        self._altered = False  # whether the last sentence is not as the screen first saw it
        self._length = 0
        self._last = ""
        self._marked: set[int] = set()
        self.unsupported_sentences = 0
        self.blocked: Verdict | None = None

    async def write(self, piece: str) -> list[Delta]:
        """What can be shown now. A piece that does not end a sentence is held until one does."""
        self._held += piece
        shown, _ = clean(self._held, self._urls)
        if _ENDED.search(shown) and not is_open(shown):
            return await self._release(len(self._held))
        if len(self._held) > MAX_HELD_CHARS:
            return await self._release(self._part_end())
        return []

    def retract(self, chars: int) -> None:
        """Drops the last `chars` characters of what is held."""
        self._held = self._held[: max(0, len(self._held) - chars)]

    async def finish(self, cut_by: Sequence[str] | None = None) -> list[Delta]:
        """The rest, whether or not it ends a sentence. `cut_by` as for TokenWindow.finish."""
        return await self._release(len(self._held), cut_by)

    async def attribute(self, sentence: str, named: Sequence[int] = ()) -> list[int]:
        """Numbers of the posts that support `sentence`, best first. `named`: those the model named itself."""
        return [place + 1 for place in await self._support.of(sentence, [number - 1 for number in named])]

    def cited(self) -> tuple[Citation, ...]:
        """Those whose marker is in the answer, by number."""
        return tuple(self._citations[number - 1] for number in sorted(self._marked))

    async def check_present(self) -> tuple[tuple[Citation, ...], tuple[int, ...]]:
        """The cited posts that still exist, and the numbers of all posts, cited or not, that no longer do."""
        present = await self._still_present([one.post_id for one in self._citations]) if self._citations else set()
        kept = tuple(one for one in self.cited() if one.post_id in present)
        return kept, tuple(one.number for one in self._citations if one.post_id not in present)

    def _part_end(self) -> int:
        """Where to part what is held: after the last space that no identifier may reach over once it is cleaned."""
        end = len(self._held)
        while (end := self._held.rfind(" ", 0, end)) > 0:
            shown = clean(self._held[:end], self._urls)[0].rstrip() + " "
            if not is_unfinished(shown[-TAIL_CHARS:], "+"):  # goes on with a row of digits, and with nothing else
                return end + 1
        return len(self._held)

    async def _release(self, end: int, cut_by: Sequence[str] | None = None) -> list[Delta]:
        ready, self._held = self._held[:end], self._held[end:]
        altered = is_open(clean(ready, self._urls)[0])  # what is shown and what comes could make a link or a marker
        sentences = _sentences(without_openings(ready) if altered else ready)
        deltas: list[Delta] = []
        for place, sentence in enumerate(sentences, 1):
            shown, named = await self._screened(sentence, altered, cut_by if place == len(sentences) else None)
            if self.blocked is not None:
                break
            deltas.append(await self._delta(shown, named))
        return [delta for delta in deltas if delta.text]

    async def _screened(self, sentence: str, altered: bool, cut_by: Sequence[str] | None) -> tuple[str, list[int]]:
        """A sentence without the model's markup, as the screen lets it go; and the numbers that its markers named."""
        shown, named = clean(sentence, self._urls)
        joined, _ = clean(sentence, self._urls, seam="")
        altered = altered or shown != sentence
        if altered:
            # Without a seam too: it hides an address from the screen, and not from a reader.
            verdict = await self._judge.check(joined, "answer")
            if verdict.action is Action.ALLOW and joined != shown:
                verdict = await self._judge.check(shown, "answer")
            if verdict.action is Action.BLOCK:
                self.blocked = verdict
                return "", []
            shown = verdict.text if verdict.action is Action.REWRITE else shown
            again, _ = clean(shown, self._urls)
            if again != shown:  # a placeholder made a link of what stands beside it
                shown, more = await self._screened(again, True, cut_by)
                return shown, named + more
        if altered or self._altered:
            shown = await self._after_what_is_shown(shown, cut_by)
        self._altered = altered
        self._tail = (self._tail + shown)[-TAIL_CHARS:]
        return shown, named

    async def _after_what_is_shown(self, shown: str, cut_by: Sequence[str] | None) -> str:
        """`shown` without what the screen finds in it, or reaching into it, when it reads what left before it too; and
        without an identifier that may have gone on where the answer was cut."""
        if self._tail:
            seen, at = self._tail + shown, len(self._tail)
            found = [one for one in (await self._judge.check(seen, "answer")).findings if one.action > Action.ALLOW]
            places = (place for place in range(at, len(seen)) if not any(one.start <= place < one.end for one in found))
            shown = "".join(seen[place] for place in places)
        if cut_by is None:
            return shown
        return shown[: max(0, cut_from(self._tail + shown, cut_by) - len(self._tail))]

    async def _delta(self, shown: str, named: Sequence[int]) -> Delta:
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
