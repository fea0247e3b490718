"""What enters and leaves the engine. Knows no torch and no Ray."""

import hashlib
import math
from dataclasses import dataclass, field, replace
from typing import Literal

FinishReason = Literal["stop", "length", "cancelled"]
MOST_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class Grammar:
    """What the answer must look like: any JSON value, or one that a JSON schema allows (its text)."""

    schema: str | None = None


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to choose the next token. `temperature` 0 is greedy; `top_k` 0, `top_p` 1 and `min_p` 0 keep the whole
    distribution. Penalties: `repetition_penalty` counts the prompt too, the other two only what was generated, as in
    the OpenAI API. `logprobs`: how many alternatives each token carries; None: no log-probabilities at all.
    `deterministic`: the same tokens whatever else the engine computes at the time; costs throughput.
    Raises ValueError when a number is outside its range."""

    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int = 0
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    logprobs: int | None = None
    grammar: Grammar | None = None
    deterministic: bool = False

    def __post_init__(self) -> None:
        _require(self.max_tokens >= 1, "max_tokens", self.max_tokens, "at least 1")
        _require(0 <= self.temperature < math.inf, "temperature", self.temperature, "0 or more")
        _require(0 < self.top_p <= 1, "top_p", self.top_p, "above 0 and at most 1")
        _require(self.top_k >= 0, "top_k", self.top_k, "0 or more")
        _require(0 <= self.min_p <= 1, "min_p", self.min_p, "from 0 to 1")
        _require(-2 <= self.presence_penalty <= 2, "presence_penalty", self.presence_penalty, "from -2 to 2")
        _require(-2 <= self.frequency_penalty <= 2, "frequency_penalty", self.frequency_penalty, "from -2 to 2")
        _require(0 < self.repetition_penalty < math.inf, "repetition_penalty", self.repetition_penalty, "above 0")
        for token_id, bias in self.logit_bias:
            _require(token_id >= 0, "logit_bias", token_id, "token ids of 0 or more")
            _require(-100 <= bias <= 100, "logit_bias", bias, "from -100 to 100")
        wanted = 0 if self.logprobs is None else self.logprobs
        _require(0 <= wanted <= MOST_LOGPROBS, "logprobs", wanted, f"from 0 to {MOST_LOGPROBS}")


def _require(holds: bool, name: str, value: float, wanted: str) -> None:
    if not holds:
        raise ValueError(f"{name} is {value}, must be {wanted}")


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """`id` is unique among the requests under way. `messages`: the prompt as turns of (role, text), for a server with a
    template of its own (upstream.py); `prompt_ids` stand for their length then. Raises ValueError when the prompt is
    empty."""

    id: str
    prompt_ids: tuple[int, ...] = field(repr=False)
    sampling: Sampling = Sampling()
    messages: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not self.prompt_ids:
            raise ValueError("the prompt has no tokens")


def choices(request: GenerationRequest, n: int) -> tuple[GenerationRequest, ...]:
    """`n` answers to one prompt, as requests of their own: "id#0", "id#1", ... The first has the request's seed, the
    others seeds derived from it. What they share of the prompt is computed once."""
    return tuple(
        replace(request, id=f"{request.id}#{number}", sampling=replace(request.sampling, seed=seed))
        for number, seed in enumerate(_seeds(request.sampling.seed, n))
    )


def _seeds(seed: int, n: int) -> list[int]:
    digests = (hashlib.blake2b(f"{seed}#{number}".encode(), digest_size=8).digest() for number in range(1, n))
    return [seed, *(int.from_bytes(digest, "big") >> 1 for digest in digests)][:n]


@dataclass(frozen=True, slots=True)
class Logprob:
    """Natural logarithms of the model's own probabilities: before temperature, penalties and biases. `top`: the most
    probable (id, logprob), best first."""

    chosen: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Token:
    """One generated token. `text` is what may be shown now: whole code points only, never part of a stop string, so it
    may be empty and may carry text held back from earlier tokens."""

    id: int
    text: str
    logprob: Logprob | None = None


@dataclass(frozen=True, slots=True)
class ExpertUse:
    """What the experts did for one answer. `tokens[i][e]`: how many of its tokens (prompt and answer) expert e of the
    i-th layer that has experts computed. `boosts`: names of the rules that steered its routing. `left_out`: experts
    (layer, expert) that failed during the answer and were left out of the mix."""

    tokens: tuple[tuple[int, ...], ...]
    boosts: tuple[str, ...] = ()
    left_out: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The one last item of a stream that did not fail. `text` is what was still held back. `cached_tokens`: how many
    of the prompt's were in the cache already. `experts` is None for a dense model."""

    reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    text: str = ""
    cached_tokens: int = 0
    experts: ExpertUse | None = None


class PromptTooLong(ValueError):
    """Prompt plus max_tokens exceed the context or the cache. Refused before any work."""

    def __init__(self, length: int, limit: int) -> None:
        super().__init__(length, limit)
        self.length, self.limit = length, limit

    def __str__(self) -> str:
        return f"prompt and max_tokens need {self.length} tokens, the limit is {self.limit}"


class UnusableRequest(ValueError):
    """The request asks for what cannot be: ids outside the vocabulary, a schema that is none. Refused before any
    work."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


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
