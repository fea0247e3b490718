"""A request and its answer in the words of the OpenAI API (chat completions, streamed). Knows no HTTP."""

import json
import re
from typing import Any

from model_runtime.request import (
    Finished,
    FinishReason,
    GenerationRequest,
    Logprob,
    Sampling,
    Token,
    UnusableRequest,
)

NO_ID = -1  # the upstream tells texts, not ids
MOST_SEED = 2**31  # llama.cpp takes 32 bits
_REASONS: dict[str, FinishReason] = {
    "stop": "stop", "eos": "stop", "eos_token": "stop", "stop_sequence": "stop", "end_turn": "stop",
    "length": "length", "max_tokens": "length",
}  # fmt: skip
_LABEL = re.compile(r"[A-Za-z0-9_.\[\]-]{1,64}")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class BadAnswer(ValueError):
    """What the upstream sent is no answer, or the end of none. Holds no text of it."""


def chat_body(request: GenerationRequest, model: str, length_field: str) -> dict[str, Any]:
    """Fields that would change nothing are left out: not every server knows them. `length_field`: "max_tokens", or
    "max_completion_tokens" for those that want this one. Raises UnusableRequest for what needs the model's ids."""
    sampling = request.sampling
    _require_no_ids(sampling)
    extras = {
        "presence_penalty": sampling.presence_penalty or None,
        "frequency_penalty": sampling.frequency_penalty or None,
        "repetition_penalty": None if sampling.repetition_penalty == 1 else sampling.repetition_penalty,
        "top_p": None if sampling.top_p == 1 else sampling.top_p,
        "top_k": sampling.top_k or None,
        "min_p": sampling.min_p or None,
        "seed": sampling.seed % MOST_SEED if sampling.temperature > 0 else None,
        "stop": list(sampling.stop) or None,
        "logprobs": None if sampling.logprobs is None else True,
        "response_format": _response_format(sampling),
    }
    return {
        "model": model,
        "messages": [{"role": role, "content": text} for role, text in request.messages],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": sampling.temperature,
        length_field: sampling.max_tokens,
        **{name: value for name, value in extras.items() if value is not None},
    }


def label(error: Any) -> str:
    """What an error object says in single words (code, type, parameter): its message may repeat the prompt."""
    given = [error.get(name) for name in ("code", "type", "param")] if isinstance(error, dict) else []
    return ", ".join(str(word) for word in given if word is not None and _LABEL.fullmatch(str(word)))


class UpstreamAnswer:
    """One answer as its events come. `shown`: some of its text was given out. `done`: nothing more comes."""

    def __init__(self, request: GenerationRequest) -> None:
        self._request = request
        self._usage: dict[str, int] = {}
        self._tokens = self._cached = 0
        self.reason: FinishReason | None = None
        self.shown = self.done = False

    def take(self, data: str) -> list[Token]:
        """Raises BadAnswer. Thoughts (reasoning_content) are tokens without a text."""
        if data.strip() == "[DONE]":
            self.done, self.reason = True, self.reason or "stop"
            return []
        try:
            tokens = self._read(json.loads(data))
        except (json.JSONDecodeError, RecursionError):
            raise BadAnswer("the upstream sent an event that is no JSON") from None
        except (KeyError, TypeError, AttributeError):
            raise BadAnswer("the upstream sent an event that is no part of an answer") from None
        self._tokens += len(tokens)
        self.shown = self.shown or any(token.text for token in tokens)
        return tokens

    def finished(self) -> Finished:
        """With the upstream's own counts; where it gave none, the estimate and the number of pieces."""
        assert self.reason is not None, "the answer has not ended"
        return Finished(
            self.reason,
            self._usage.get("prompt_tokens", len(self._request.prompt_ids)),
            self._usage.get("completion_tokens", self._tokens),
            cached_tokens=self._cached,
        )

    def _read(self, chunk: dict[str, Any]) -> list[Token]:
        if chunk.get("error"):
            raise BadAnswer(f"the upstream reported an error ({label(chunk['error']) or 'unnamed'})")
        if chunk.get("usage"):
            counts = {name: chunk["usage"].get(name) for name in ("prompt_tokens", "completion_tokens")}
            self._usage = {name: count for name, count in counts.items() if isinstance(count, int)}
            self._cached = int((chunk["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
        tokens: list[Token] = []
        for choice in chunk.get("choices") or ():
            if choice.get("index", 0) != 0:
                continue
            tokens += self._tokens_of(choice)
            reason = choice.get("finish_reason")
            if reason is not None and reason not in _REASONS:
                raise BadAnswer(f"the upstream ended the answer for a reason of its own ({label({'code': reason})})")
            self.reason = self.reason or _REASONS.get(reason or "")
        return tokens

    def _tokens_of(self, choice: dict[str, Any]) -> list[Token]:
        delta = choice.get("delta") or {}
        text = delta.get("content") or delta.get("refusal") or ""
        if not isinstance(text, str):
            raise TypeError("a text that is none")
        text = _LONE_SURROGATE.sub("\ufffd", text)
        entries = (choice.get("logprobs") or {}).get("content") or ()
        if self._request.sampling.logprobs is not None and entries:
            logprobs = [Logprob(float(entry["logprob"])) for entry in entries]
            return [Token(NO_ID, "" if place else text, logprob) for place, logprob in enumerate(logprobs)]
        thinks = delta.get("reasoning_content") or delta.get("reasoning")
        return [Token(NO_ID, text)] if text or thinks else []


def _require_no_ids(sampling: Sampling) -> None:
    """Biases and stops by id, and alternatives by id, mean another vocabulary's tokens; nobody can promise that a
    server computes the same whatever else it does."""
    asked = {
        "logit_bias": sampling.logit_bias,
        "stop_ids": sampling.stop_ids,
        "logprobs with alternatives": sampling.logprobs,
        "deterministic": sampling.deterministic,
    }
    for name, wanted in asked.items():
        if wanted:
            raise UnusableRequest(f"{name} cannot be had from an upstream server")


def _response_format(sampling: Sampling) -> dict[str, Any] | None:
    if sampling.grammar is None:
        return None
    if sampling.grammar.schema is None:
        return {"type": "json_object"}
    try:
        schema = json.loads(sampling.grammar.schema)
    except json.JSONDecodeError:
        raise UnusableRequest("the JSON schema is no JSON") from None
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
