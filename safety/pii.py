"""The layer for personal data: each identifier is replaced by a typed placeholder, on every surface."""

from collections.abc import Iterator
from itertools import chain

from safety.email import emails
from safety.identifier import Identifier
from safety.layer import Flag
from safety.national_ids import national_ids
from safety.normalise import Normalised
from safety.numbers import addresses, cards, ibans
from safety.phones import phones, plans
from safety.verdict import Action, Finding, Surface

# Letters only: "[1]" is a citation.
PLACEHOLDERS = {
    "email": "[EMAIL]",
    "iban": "[IBAN]",
    "card": "[CARD]",
    "ip": "[IP]",
    "id": "[ID]",
    "phone": "[PHONE]",
}
BY_PROOF = {label: rank for rank, label in enumerate(PLACEHOLDERS)}  # where two overlap, the surer names both


class Pii:
    """Finds e-mail, IBAN, card, IP, national id and phone."""

    name = "pii"

    def __init__(self) -> None:
        assert plans()  # read now, not when the first question waits

    def examine(self, text: Normalised, surface: Surface) -> list[Flag]:
        return [self._flag(text, found) for found in identify(text)]

    def _flag(self, text: Normalised, found: Identifier) -> Flag:
        start, end = text.raw_span(found.start, found.end)
        finding = Finding(self.name, found.label, start, end, Action.REWRITE, found.score, found.rule)
        return Flag(finding, PLACEHOLDERS[found.label])


def identify(text: Normalised) -> list[Identifier]:
    """Every identifier in order of place. Those that overlap become one that covers them all: no tail is left."""
    apart: list[Identifier] = []
    for found in sorted(_recognise(text), key=lambda one: one.start):
        if apart and found.start < apart[-1].end:
            apart[-1] = _cover(apart[-1], found)
        else:
            apart.append(found)
    return apart


def _recognise(text: Normalised) -> Iterator[Identifier]:
    """Only those recognisers whose identifiers the text has digits enough for: most posts pay for none."""
    digits = sum(map(text.text.count, "0123456789"))
    found = emails(text)
    if digits >= 4:
        found = chain(found, addresses(text))
    if digits >= 6:
        found = chain(found, ibans(text), national_ids(text))
    if digits >= 7:
        found = chain(found, phones(text))
    if digits >= 12:
        found = chain(found, cards(text))
    return found


def _cover(one: Identifier, other: Identifier) -> Identifier:
    surer = min(one, other, key=lambda each: BY_PROOF[each.label])
    start, end = min(one.start, other.start), max(one.end, other.end)
    return Identifier(surer.label, start, end, surer.rule, surer.score)
