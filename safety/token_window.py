"""Screens one answer while it streams: text leaves in sentences, each judged before a character of it goes."""

from collections.abc import Sequence
from typing import Protocol

from safety.open_end import cut_from
from safety.sentences import Sentences
from safety.verdict import Action, Surface, Verdict


class Judge(Protocol):
    """A screen that may be far away."""

    async def check(self, text: str, surface: Surface) -> Verdict: ...


class TokenWindow:
    """Holds the text of one answer until its sentences are judged. For one task: pushes must not overlap.

    However the text is cut into pushes, what leaves is the same. `blocked` is the verdict that ended the answer:
    nothing leaves after it, nor after a judge that raised or was cancelled.
    """

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._sentences = Sentences()
        self._open = True
        self.blocked: Verdict | None = None

    async def push(self, text: str) -> list[str]:
        """The screened sentences that may leave now, white space included; raises what the judge raises."""
        if not self._open:
            return []
        return await self._screened(self._sentences.feed(text))

    def retract(self, chars: int) -> int:
        """Drops the last `chars` characters of what is held; how many there were to drop."""
        return self._sentences.retract(chars)

    async def finish(self, cut_by: Sequence[str] | None = None) -> list[str]:
        """The rest, screened. Nothing can be pushed after it.

        `cut_by` None: the text ended by itself. Else it was cut, by one of these stop strings or, where there are none,
        anywhere: an identifier that may have gone on is dropped, for its front would pass for harmless."""
        if not self._open:
            return []
        held = self._sentences.close()
        if cut_by is not None:
            held = [kept for piece in held if (kept := piece[: cut_from(piece, cut_by)])]
        rest = await self._screened(held)
        self._open = False
        return rest

    async def _screened(self, sentences: list[str]) -> list[str]:
        safe: list[str] = []
        for sentence in sentences:
            self._open = False  # until the verdict is here, so that a fault leaves the window shut
            verdict = await self._judge.check(sentence, "answer")
            if verdict.action is Action.BLOCK:
                self.blocked = verdict
                return safe
            self._open = True
            safe.append(verdict.text)
        return safe
