"""Runs an ordered list of layers over a text and merges what they say into one verdict. Fails closed."""

import logging
from collections.abc import Sequence

from safety.layer import Flag, Layer
from safety.normalise import normalise
from safety.sentences import split
from safety.verdict import Action, Finding, Surface, Verdict, strictest

__all__ = ["Flag", "Layer", "Screen"]

logger = logging.getLogger(__name__)


class Screen:
    """Judges texts by its layers; pure CPU, thread-safe.

    A question or a post is judged whole. An answer is judged in the pieces in which it leaves (safety.sentences), so
    that the verdict is the same for a whole answer and for one that streams.
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        assert layers, "a screen without layers lets everything through"
        self._layers = tuple(layers)

    def check(self, text: str, surface: Surface) -> Verdict:
        """The verdict; of a blocked answer it holds the findings up to the blocked piece. Never raises for a text."""
        if surface != "answer":
            return self._judge(text, surface, 0)
        verdicts: list[Verdict] = []
        offset = 0
        for piece in split(text):
            verdicts.append(self._judge(piece, surface, offset))
            offset += len(piece)
            if verdicts[-1].action is Action.BLOCK:
                break
        return _join(verdicts)

    def check_many(self, texts: Sequence[str], surface: Surface) -> list[Verdict]:
        return [self.check(text, surface) for text in texts]

    def _judge(self, text: str, surface: Surface, offset: int) -> Verdict:
        flags: list[Flag] = []
        layer_name = "screen"
        try:
            seen = normalise(text)
            for layer in self._layers:
                layer_name = layer.name
                flags += layer.examine(seen, surface)
        except Exception as fault:  # noqa: BLE001  whatever a layer raises: nothing unjudged leaves
            _log(layer_name, fault)
            finding = Finding("screen", "safety_unavailable", offset, offset + len(text), Action.BLOCK)
            return Verdict(Action.BLOCK, "", (finding,))
        action = strictest(*(flag.finding.action for flag in flags))
        findings = tuple(_shifted(flag.finding, offset) for flag in flags)
        return Verdict(action, "" if action is Action.BLOCK else _rewrite(text, flags), findings)


def _log(layer_name: str, fault: Exception) -> None:
    """Type and place only: a message may quote the text."""
    trace = fault.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else "?"
    logger.error("layer %s failed, text blocked: %s at %s", layer_name, type(fault).__name__, place)


def _join(verdicts: list[Verdict]) -> Verdict:
    action = strictest(*(verdict.action for verdict in verdicts))
    text = "" if action is Action.BLOCK else "".join(verdict.text for verdict in verdicts)
    return Verdict(action, text, tuple(finding for verdict in verdicts for finding in verdict.findings))


def _shifted(finding: Finding, offset: int) -> Finding:
    if not offset:
        return finding
    start, end = finding.start + offset, finding.end + offset
    return Finding(finding.layer, finding.label, start, end, finding.action, finding.score, finding.rule)


def _rewrite(text: str, flags: Sequence[Flag]) -> str:
    """The text with every rewritten span replaced; spans that overlap are one, named by the longest of them."""
    changes = sorted(
        (
            (flag.finding.start, flag.finding.end, flag.instead)
            for flag in flags
            if flag.finding.action is Action.REWRITE
        ),
        key=lambda change: (change[0], -change[1]),
    )
    merged: list[tuple[int, int, int, str]] = []  # start, end, length of the longest, what stands for it
    for start, end, instead in changes:
        if merged and start < merged[-1][1]:
            first, last, longest, kept = merged[-1]
            wins = end - start > longest
            merged[-1] = (first, max(last, end), max(longest, end - start), instead if wins else kept)
        else:
            merged.append((start, end, end - start, instead))
    pieces: list[str] = []
    done = 0
    for start, end, _, instead in merged:
        pieces += [text[done:start], instead]
        done = end
    return "".join([*pieces, text[done:]])
