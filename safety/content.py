"""The layer for content: threats, encouragement of self-harm, sexual content about minors, dangerous requests, hate and
orders to the model. Rules only, so that each decision can be read; they stand in the files named after what they find.
"""

import regex

from safety import hate, minors, self_harm, violence, weapons
from safety.injection import orders
from safety.layer import Flag
from safety.normalise import Normalised
from safety.rule import EXCUSES, NEGATED, Rule
from safety.verdict import Action, Finding, Surface

RULES = (*minors.RULES, *self_harm.RULES, *violence.RULES, *weapons.RULES, *hate.RULES)
ALLOW, BLOCK = Action.ALLOW, Action.BLOCK

# Posts about violence are what a crisis desk looks for: a post that asks or boasts how is kept, with its finding, and
# the answer is screened again. An answer may report that someone asked how; it may not tell how.
ACTIONS: dict[str, dict[Surface, Action]] = {
    "threat": {"question": BLOCK, "post": BLOCK, "answer": BLOCK},
    "self_harm": {"question": BLOCK, "post": BLOCK, "answer": BLOCK},
    "minors": {"question": BLOCK, "post": BLOCK, "answer": BLOCK},
    "hate": {"question": BLOCK, "post": BLOCK, "answer": BLOCK},
    "weapons": {"question": BLOCK, "post": ALLOW, "answer": ALLOW},
    "recipe": {"question": BLOCK, "post": BLOCK, "answer": BLOCK},
    "violence": {"question": BLOCK, "post": ALLOW, "answer": ALLOW},
    "injection": {"question": BLOCK, "post": BLOCK, "answer": ALLOW},
}
AROUND_CHARS = 160  # how far on either side an excuse is looked for


class Content:
    """Judges by rules in English, Spanish and German."""

    name = "content"

    def __init__(self) -> None:
        for rule in RULES:
            assert rule.compiled  # now, not when the first question waits

    def examine(self, text: Normalised, surface: Surface) -> list[Flag]:
        flags = [self._flag(text, rule.label, rule.name, found.span(), surface) for rule, found in _matches(text.line)]
        if surface != "answer":
            for order in orders(text):
                action = ACTIONS["injection"][surface] if order.certain else ALLOW
                span = text.raw_span(order.start, order.end)
                flags.append(Flag(Finding(self.name, "injection", *span, action, order.score, order.rule)))
        return flags

    def _flag(self, text: Normalised, label: str, rule: str, span: tuple[int, int], surface: Surface) -> Flag:
        return Flag(Finding(self.name, label, *text.raw_span(*span), ACTIONS[label][surface], 1.0, rule))


def _matches(line: str) -> list[tuple[Rule, regex.Match[str]]]:
    """For each rule its first match that nothing excuses."""
    found = []
    for rule in RULES:
        if rule.is_worth_trying(line):
            for match in rule.compiled.finditer(line):
                if match.end() > match.start() and not _is_excused(line, match, rule):
                    found.append((rule, match))
                    break
    return found


def _is_excused(lower: str, match: regex.Match[str], rule: Rule) -> bool:
    start, end = match.span()
    if "negated" in rule.excuses and NEGATED.search(lower[max(0, start - 48) : start]):
        return True
    around = lower[max(0, start - AROUND_CHARS) : start] + " \n " + lower[end : end + AROUND_CHARS]
    if "quoted" in rule.excuses and _is_quoted(lower, start, end):
        return True
    return any(EXCUSES[excuse].search(around) for excuse in rule.excuses if excuse in EXCUSES)


def _is_quoted(lower: str, start: int, end: int) -> bool:
    """Whether the match stands between quotation marks in a text that also has words of its own."""
    before, after = lower[max(0, start - AROUND_CHARS) : start], lower[end : end + AROUND_CHARS]
    if before.count('"') % 2 == 0 or '"' not in after:
        return False
    return len((before[: before.rfind('"')] + after[after.find('"') :]).split()) >= 3
