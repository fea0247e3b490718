"""Requests in, tokens out, one step at a time. Rank 0 leads; the other ranks compute what it plans. Knows no Ray.

Rank 0 alone holds requests, text and random draws. A step's plan (token ids and cache blocks) is all that the others
get, so they can never disagree about what comes next.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from model_runtime.answer import Answer
from model_runtime.block_pool import BlockPool
from model_runtime.boosts import Boosts
from model_runtime.expert_watch import Computed, ExpertWatch
from model_runtime.families import ModelConfig
from model_runtime.intake import REQUEST_ERRORS, Intake
from model_runtime.kv_cache import PagedCache, Step
from model_runtime.request import (
    Finished,
    FinishReason,
    GenerationFailed,
    GenerationRequest,
    PromptTooLong,
    QueueFull,
    Token,
    UnusableRequest,
)
from model_runtime.sampler import Choice, Draw, accept, choose
from model_runtime.scheduler import Batch, Limits, Part, Scheduler
from model_runtime.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

HEARTBEAT_S = 1.0
MAX_SPOILT_STEPS = 4  # in a row

Failure = PromptTooLong | UnusableRequest | QueueFull | GenerationFailed
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


@dataclass(frozen=True, slots=True)
class _Begin:
    answer: Answer
    admitted_before: bool


_Order = _Begin | UnusableRequest | Cancel


class Decoder(Computed, Protocol):
    config: ModelConfig

    def forward(self, step: Step, cache: PagedCache) -> Tensor: ...


class Ranks(Protocol):
    """The collective, as far as the engine needs it."""

    def broadcast_object(self, value: Any = None) -> Any: ...


class ModelBroken(RuntimeError):
    """The model gives nothing but NaN."""

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.steps = steps

    def __str__(self) -> str:
        return f"{self.steps} steps in a row gave nothing but NaN"


class Engine:
    """`submit` and `cancel` may be called from any thread, `step` and `lead` from one. `experts` is None for a dense
    model."""

    def __init__(
        self,
        model: Decoder,
        cache: PagedCache,
        tokenizer: Tokenizer,
        ranks: Ranks,
        context_tokens: int,
        limits: Limits,
        boosts: Boosts | None = None,
    ) -> None:
        self._model, self._cache, self._ranks = model, cache, ranks
        self._scheduler = Scheduler(BlockPool(cache.num_blocks), context_tokens, limits)
        self._intake = Intake(tokenizer, model.config.vocab, boosts)
        self.experts = ExpertWatch(model.config) if model.config.num_experts else None
        self._answers: dict[str, Answer] = {}
        self._orders: deque[tuple[str, _Order]] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._spoilt_steps = 0

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
        """Refusals (PromptTooLong, UnusableRequest, QueueFull) are outputs of the next step. What takes time before a
        request can run, such as reading a schema, is done here, by the caller's thread."""
        try:
            order: _Order = _Begin(self._intake.answer(command.request, command.generated), command.admitted_before)
        except UnusableRequest as refusal:
            order = refusal
        self._order(command.request.id, order)

    def cancel(self, request_id: str) -> None:
        """Takes effect before the next step's plan; an unknown id is one that has ended already."""
        self._order(request_id, Cancel(request_id))

    def step(self) -> list[Output]:
        outputs = self._take_orders()
        batch = self._scheduler.next_batch()
        if not batch.parts:
            self._ranks.broadcast_object(batch.step)
            return outputs
        with torch.inference_mode():
            found = self._compute(batch)
        for part, choices in zip(batch.parts, found, strict=True):
            outputs += self._advance(part, choices)
        return outputs

    def _order(self, request_id: str, order: _Order) -> None:
        with self._wake:
            self._orders.append((request_id, order))
            self._wake.notify()

    def _wait_for_work(self) -> None:
        with self._wake:
            if not (self._orders or self._scheduler.has_work or self._stopping):
                self._wake.wait(HEARTBEAT_S)

    def _take_orders(self) -> list[Output]:
        outputs: list[Output] = []
        while self._orders:
            request_id, order = self._orders.popleft()
            if isinstance(order, _Begin):
                outputs += self._start(order)
            elif isinstance(order, UnusableRequest):
                outputs.append((request_id, order))
            elif request_id in self._answers:
                outputs.append(self._end(self._answers[request_id], "cancelled"))
        return outputs

    def _start(self, order: _Begin) -> list[Output]:
        answer, request_id = order.answer, order.answer.request.id
        assert request_id not in self._answers, f"request {request_id} is running already"
        if answer.ended is not None:  # with the last token before the restart
            return [(request_id, answer.finished(answer.ended, None))]
        try:
            self._scheduler.submit(answer.sequence, admitted_before=order.admitted_before)
        except (PromptTooLong, QueueFull) as refusal:
            return [(request_id, refusal)]
        self._answers[request_id] = answer
        return []

    def _compute(self, batch: Batch) -> list[list[Choice]]:
        """By part of the batch, the tokens that follow: none while its prompt is not complete."""
        step = self.experts.plan(batch.step) if self.experts else batch.step
        logits = self._forward(step)
        found = self._choices(batch, logits)
        if self.experts and not step.guarded and _lacks_one(found):
            step = replace(step, guarded=True, moves=())
            logits = self._forward(step)
            found = self._choices(batch, logits)
        self._count_spoilt(logits if _lacks_one(found) else None)
        if self.experts:
            self._watch(self.experts, batch, step, found)
        return found

    def _count_spoilt(self, logits: Tensor | None) -> None:
        """`logits`: those of a step after which some answer cannot go on. Raises ModelBroken when nothing but NaN has
        come for a while: loading the weights again may help, going on does not."""
        is_spoilt = logits is not None and bool(logits.isnan().any(-1).all())
        self._spoilt_steps = self._spoilt_steps + 1 if is_spoilt else 0
        if self._spoilt_steps == MAX_SPOILT_STEPS:
            raise ModelBroken(self._spoilt_steps)

    def _forward(self, step: Step) -> Tensor:
        self._ranks.broadcast_object(step)
        return self._model.forward(step, self._cache)

    def _choices(self, batch: Batch, logits: Tensor) -> list[list[Choice]]:
        """`logits` has one row for each part, and one more for each guess."""
        firsts = []
        first = 0
        for part in batch.parts:
            firsts.append(first)
            first += 1 + len(part.draft)
        single = [place for place, part in enumerate(batch.parts) if part.complete and not part.draft]
        rows = logits if len(single) == len(logits) else logits[[firsts[place] for place in single]]
        chosen = choose(rows, [self._draw(batch.parts[place]) for place in single]) if single else []
        found: list[list[Choice]] = [[] for _ in batch.parts]
        for place, choice in zip(single, chosen, strict=True):
            found[place] = [choice]
        for place, part in enumerate(batch.parts):
            first = firsts[place]
            if part.draft:
                found[place] = accept(logits[first : first + 1 + len(part.draft)], self._draw(part), part.draft)
            elif not part.complete and not bool(torch.isfinite(logits[first].sum())):
                found[place] = [Choice(None, None)]
        return found

    def _draw(self, part: Part) -> Draw:
        return self._answers[part.sequence.id].draw

    def _watch(self, experts: ExpertWatch, batch: Batch, step: Step, found: list[list[Choice]]) -> None:
        kept = [
            span.length - len(part.draft) + max(0, len(choices) - 1)
            for part, span, choices in zip(batch.parts, step.spans, found, strict=True)
        ]
        if experts.saw(step, self._model, [part.sequence.id for part in batch.parts], kept):
            self._scheduler.forget_prefixes()
        if experts.lost:
            for part in batch.parts:
                self._answers[part.sequence.id].lost |= experts.lost

    def _advance(self, part: Part, choices: list[Choice]) -> list[Output]:
        """What the tokens that follow mean for their stream."""
        answer, request_id = self._answers[part.sequence.id], part.sequence.id
        if part.draft and part.sequence.lookup is not None:
            part.sequence.lookup.learn(len(part.draft), len(choices) - 1)
        outputs: list[Output] = []
        for choice in choices:
            if choice.id is None:
                return [*outputs, self._fail(answer, answer.why_none)]
            try:
                token = answer.push(choice)
            except REQUEST_ERRORS as error:
                return [*outputs, self._fail(answer, f"{type(error).__name__} at token {choice.id}")]
            if token is not None:
                outputs.append((request_id, token))
            if answer.ended is not None:
                return [*outputs, self._end(answer, answer.ended)]
        return outputs

    def _end(self, answer: Answer, reason: FinishReason) -> Output:
        request_id = answer.request.id
        self._scheduler.finish(answer.sequence)
        del self._answers[request_id]
        use = answer.expert_use(self.experts.log.use(request_id)) if self.experts else None
        return request_id, answer.finished(reason, use)

    def _fail(self, answer: Answer, reason: str) -> Output:
        request_id = answer.request.id
        logger.error("request %s failed: %s", request_id, reason)
        self._scheduler.finish(answer.sequence, spoilt=True)
        del self._answers[request_id]
        if self.experts:
            self.experts.log.forget(request_id)
        return request_id, GenerationFailed(reason)


def _lacks_one(found: list[list[Choice]]) -> bool:
    return any(choice.id is None for choices in found for choice in choices)


def follow(model: Decoder, cache: PagedCache, ranks: Ranks) -> None:
    """A rank other than 0: computes its shard of each step that rank 0 plans, until rank 0 stops."""
    with torch.inference_mode():
        while (step := ranks.broadcast_object()) is not None:
            if step.spans:
                model.forward(step, cache)
