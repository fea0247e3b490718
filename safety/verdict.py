"""The result of a screen. A refusal is a verdict, never an exception."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

Surface = Literal["question", "post", "answer"]


class Action(IntEnum):
    ALLOW = 0
    REWRITE = 1
    BLOCK = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """What a layer saw: `start:end` are code-point offsets into the screened text. Never holds the text itself."""

    layer: str  # "pii", "content", "bias", "screen"
    label: str  # "email", "card", "hate", ...
    start: int
    end: int
    action: Action
    score: float = 1.0
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`text` is what may leave: the text itself (ALLOW), its safe form (REWRITE), "" (BLOCK)."""

    action: Action
    text: str
    findings: tuple[Finding, ...] = ()

    @property
    def reason(self) -> str:
        """The label behind the strictest finding, for a refusal's reason; "" when allowed."""
        worst = max(self.findings, key=lambda finding: finding.action, default=None)
        return "" if worst is None or worst.action is Action.ALLOW else worst.label


def strictest(*actions: Action) -> Action:
    return max(actions, default=Action.ALLOW)
