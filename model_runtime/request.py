"""What enters and leaves the engine. Knows no torch and no Ray."""

import math
from dataclasses import dataclass, field
from typing import Literal

FinishReason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to choose the next token. `temperature` 0 is greedy; `top_k` 0 and `top_p` 1 keep the whole distribution.
    Raises ValueError when a number is outside its range."""

    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    repetition_penalty: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _require(self.max_tokens >= 1, "max_tokens", self.max_tokens, "at least 1")
        _require(0 <= self.temperature < math.inf, "temperature", self.temperature, "0 or more")
        _require(0 < self.top_p <= 1, "top_p", self.top_p, "above 0 and at most 1")
        _require(self.top_k >= 0, "top_k", self.top_k, "0 or more")
        _require(0 < self.repetition_penalty < math.inf, "repetition_penalty", self.repetition_penalty, "above 0")


def _require(holds: bool, name: str, value: float, wanted: str) -> None:
    if not holds:
        raise ValueError(f"{name} is {value}, must be {wanted}")


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """`id` is unique among the requests under way. Raises ValueError when the prompt is empty."""

    id: str
    prompt_ids: tuple[int, ...] = field(repr=False)
    sampling: Sampling = Sampling()

    def __post_init__(self) -> None:
        if not self.prompt_ids:
            raise ValueError("the prompt has no tokens")


@dataclass(frozen=True, slots=True)
class Token:
    """One generated token. `text` is what may be shown now: whole code points only, never part of a stop string, so it
    may be empty and may carry text held back from earlier tokens."""

    id: int
    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The one last item of a stream that did not fail. `text` is what was still held back."""

    reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    text: str = ""


class PromptTooLong(ValueError):
    """Prompt plus max_tokens exceed the context or the cache. Refused before any work."""

    def __init__(self, length: int, limit: int) -> None:
        super().__init__(length, limit)
        self.length, self.limit = length, limit

    def __str__(self) -> str:
        return f"prompt and max_tokens need {self.length} tokens, the limit is {self.limit}"


class QueueFull(RuntimeError):
    """The waiting line is full: refuse at admission, before any header is sent."""

    def __init__(self, waiting: int) -> None:
        super().__init__(waiting)
        self.waiting = waiting

    def __str__(self) -> str:
        return f"{self.waiting} requests are waiting already"


class GenerationFailed(RuntimeError):
    """The stream cannot go on (a shard died and the replay failed, non-finite logits, ...)."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
