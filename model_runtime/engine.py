"""Requests in, tokens out, one step at a time. Rank 0 leads; the other ranks compute what it plans. Knows no Ray.

Rank 0 alone holds requests, text and random draws. A step's plan (token ids and cache blocks) is all that the others
get, so they can never disagree about what comes next.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from model_runtime.kv_cache import BlockPool, PagedCache, Step
from model_runtime.request import (
    Finished,
    FinishReason,
    GenerationFailed,
    GenerationRequest,
    PromptTooLong,
    QueueFull,
    Token,
)
from model_runtime.sampler import Draw, choose
from model_runtime.scheduler import Batch, Limits, Scheduler, Sequence
from model_runtime.tokenizer import Tokenizer
from model_runtime.visible_text import VisibleText

logger = logging.getLogger(__name__)

HEARTBEAT_S = 1.0
IDLE = Step((), ())

Failure = PromptTooLong | QueueFull | GenerationFailed
Output = tuple[str, Token | Finished | Failure]  # the request's id, and one item of its stream


@dataclass(frozen=True, slots=True)
class Submit:
    """`generated`: tokens handed out before a restart; the stream goes on after them. `admitted_before`: it had its
    place in the line already."""

    request: GenerationRequest
    generated: tuple[int, ...] = ()
    admitted_before: bool = False


@dataclass(frozen=True, slots=True)
class Cancel:
    id: str


Command = Submit | Cancel


class Decoder(Protocol):
    def forward(self, step: Step, cache: PagedCache) -> Tensor: ...


class Ranks(Protocol):
    """The collective, as far as the engine needs it."""

    def broadcast_object(self, value: Any = None) -> Any: ...


@dataclass(slots=True, eq=False)
class _Answer:
    request: GenerationRequest
    sequence: Sequence
    text: VisibleText

    @property
    def generated(self) -> int:
        return len(self.sequence.token_ids) - len(self.request.prompt_ids)

    def finished(self, reason: FinishReason) -> Finished:
        return Finished(reason, len(self.request.prompt_ids), self.generated, self.text.finish())


class Engine:
    """`submit` and `cancel` may be called from any thread, `step` and `lead` from one."""

    def __init__(
        self, model: Decoder, cache: PagedCache, tokenizer: Tokenizer, ranks: Ranks, context_tokens: int, limits: Limits
    ) -> None:
        self._model, self._cache, self._tokenizer, self._ranks = model, cache, tokenizer, ranks
        self._scheduler = Scheduler(BlockPool(cache.num_blocks), context_tokens, limits)
        self._answers: dict[str, _Answer] = {}
        self._commands: deque[Command] = deque()
        self._wake = threading.Condition()
        self._stopping = False

    def lead(self, deliver: Callable[[list[Output]], None]) -> None:
        """Runs until `stop`. `deliver` gets the outputs of each step together, and an empty list as a heartbeat."""
        while not self._stopping:
            self._wait_for_work()
            deliver(self.step())
        self._ranks.broadcast_object(None)

    def stop(self) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify()

    def submit(self, command: Submit) -> None:
        """Refusals (PromptTooLong, QueueFull) are outputs of the next step."""
        self._order(command)

    def cancel(self, request_id: str) -> None:
        """Takes effect before the next step's plan; an unknown id is one that has ended already."""
        self._order(Cancel(request_id))

    def step(self) -> list[Output]:
        outputs = self._take_commands()
        batch = self._scheduler.next_batch()
        self._ranks.broadcast_object(batch.step)
        if batch.sequences:
            with torch.inference_mode():
                logits = self._model.forward(batch.step, self._cache)
                chosen = self._choose(batch, logits)
            for sequence, token_id in chosen:
                outputs += self._advance(self._answers[sequence.id], token_id)
        return outputs

    def _order(self, command: Command) -> None:
        with self._wake:
            self._commands.append(command)
            self._wake.notify()

    def _wait_for_work(self) -> None:
        with self._wake:
            if not (self._commands or self._scheduler.has_work or self._stopping):
                self._wake.wait(HEARTBEAT_S)

    def _take_commands(self) -> list[Output]:
        outputs: list[Output] = []
        while self._commands:
            command = self._commands.popleft()
            if isinstance(command, Submit):
                outputs += self._start(command)
            elif command.id in self._answers:
                outputs.append(self._end(self._answers[command.id], "cancelled"))
        return outputs

    def _start(self, command: Submit) -> list[Output]:
        request, generated = command.request, command.generated
        assert request.id not in self._answers, f"request {request.id} is running already"
        token_ids = [*request.prompt_ids, *generated]
        sequence = Sequence(request.id, token_ids, len(request.prompt_ids) + request.sampling.max_tokens)
        try:
            self._scheduler.submit(sequence, admitted_before=command.admitted_before)
        except (PromptTooLong, QueueFull) as refusal:
            return [(request.id, refusal)]
        answer = _Answer(request, sequence, VisibleText(self._tokenizer, request.sampling.stop))
        for token_id in generated:
            answer.text.push(token_id)  # shown before the restart
        self._answers[request.id] = answer
        return []

    def _choose(self, batch: Batch, logits: Tensor) -> list[tuple[Sequence, int | None]]:
        rows = [row for row, complete in enumerate(batch.complete) if complete]
        if not rows:
            return []
        sequences = [batch.sequences[row] for row in rows]
        answers = [self._answers[sequence.id] for sequence in sequences]
        draws = [Draw(answer.request.sampling, answer.generated, answer.sequence.token_ids) for answer in answers]
        if len(rows) < len(batch.complete):
            logits = logits[rows]
        return list(zip(sequences, choose(logits, draws), strict=True))

    def _advance(self, answer: _Answer, token_id: int | None) -> list[Output]:
        """What one more token means for its stream."""
        request_id, sampling = answer.request.id, answer.request.sampling
        if token_id is None:
            logger.error("request %s: the model's logits are not finite at token %d", request_id, answer.generated)
            self._forget(answer)
            return [(request_id, GenerationFailed("the model's output is not a number"))]
        if token_id in self._tokenizer.eos_ids:
            return [self._end(answer, "stop")]
        answer.sequence.token_ids.append(token_id)
        outputs: list[Output] = [(request_id, Token(token_id, answer.text.push(token_id)))]
        if answer.text.stopped:
            outputs.append(self._end(answer, "stop"))
        elif answer.generated == sampling.max_tokens:
            outputs.append(self._end(answer, "length"))
        return outputs

    def _end(self, answer: _Answer, reason: FinishReason) -> Output:
        self._forget(answer)
        return answer.request.id, answer.finished(reason)

    def _forget(self, answer: _Answer) -> None:
        self._scheduler.finish(answer.sequence)
        del self._answers[answer.request.id]


def follow(model: Decoder, cache: PagedCache, ranks: Ranks) -> None:
    """A rank other than 0: computes its shard of each step that rank 0 plans, until rank 0 stops."""
    with torch.inference_mode():
        while (step := ranks.broadcast_object()) is not None:
            if step.spans:
                model.forward(step, cache)
