"""Which tokens the next step computes: continuous batching over a paged cache. Knows no model, no text and no ranks.

A request is admitted when the blocks for its prompt and all its max_tokens are free, and holds them to its end. So an
admitted request always finishes: nothing is preempted and computed twice, and its blocks lie side by side. The price,
blocks reserved for answers that end early, is small beside the cache.
"""

from collections import deque
from dataclasses import dataclass, field

from model_runtime.kv_cache import BLOCK_TOKENS, BlockPool, Span, Step
from model_runtime.request import PromptTooLong, QueueFull


@dataclass(frozen=True, slots=True)
class Limits:
    """`step_tokens`: the most one step computes when nobody waits for a next token; `beside_decoding`: the most prompt
    tokens in a step that also decodes, so that a long prompt does not hold up running answers."""

    running: int = 16
    waiting: int = 64
    step_tokens: int = 512
    beside_decoding: int = 128  # on two cores a step of 128 takes four times as long as one of 1, and of 512 ten times


CPU_LIMITS = Limits()
GPU_LIMITS = Limits(running=64, waiting=256, step_tokens=4096, beside_decoding=1024)


@dataclass(slots=True, eq=False)
class Sequence:
    """One request's tokens: the prompt, then what was generated. The first `cached` are in the cache."""

    id: str
    token_ids: list[int]
    capacity: int  # tokens at most: prompt and max_tokens
    cached: int = 0
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """`step.spans[i]` belongs to `sequences[i]`; `complete[i]`: its logits choose the sequence's next token, else
    a part of its prompt is still to come."""

    step: Step
    sequences: tuple[Sequence, ...]
    complete: tuple[bool, ...]


@dataclass(slots=True, eq=False)
class Scheduler:
    """First come, first served: nobody overtakes the head of the waiting line, however small."""

    pool: BlockPool
    context_tokens: int
    limits: Limits = CPU_LIMITS
    waiting: deque[Sequence] = field(default_factory=deque)
    running: list[Sequence] = field(default_factory=list)

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.running)

    def submit(self, sequence: Sequence, *, admitted_before: bool = False) -> None:
        """Raises PromptTooLong if it could never run, QueueFull if too many wait: but what was admitted before a
        restart is never turned away."""
        limit = min(self.context_tokens, self.pool.num_blocks * BLOCK_TOKENS)
        if sequence.capacity > limit:
            raise PromptTooLong(sequence.capacity, limit)
        if len(self.waiting) >= self.limits.waiting and not admitted_before:
            raise QueueFull(len(self.waiting))
        assert len(sequence.token_ids) < sequence.capacity, "nothing left to generate"
        self.waiting.append(sequence)
        self._admit()

    def finish(self, sequence: Sequence) -> None:
        """Forgets a waiting or running sequence; its slot and its blocks are free for the next step."""
        if sequence in self.running:
            self.running.remove(sequence)
            self.pool.free(sequence.blocks)
            sequence.blocks = ()
        else:
            self.waiting.remove(sequence)

    def next_batch(self) -> Batch:
        """Counts the batch as cached: it must be computed before the next call. Empty when there is no work."""
        self._admit()
        lengths = [(sequence, self._chunk(sequence)) for sequence in self.running]
        decoding = [(sequence, length) for sequence, length in lengths if length == 1]
        prompts = [(sequence, length) for sequence, length in lengths if length > 1]
        budget = self.limits.beside_decoding if decoding else self.limits.step_tokens
        chosen = decoding
        for sequence, length in prompts:
            if budget > 0:
                chosen.append((sequence, min(length, budget)))
                budget -= length
        return self._batch(chosen)

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.limits.running:
            blocks = -(-self.waiting[0].capacity // BLOCK_TOKENS)
            if not self.pool.can_allocate(blocks):
                return
            sequence = self.waiting.popleft()
            sequence.blocks = tuple(self.pool.allocate(blocks))
            self.running.append(sequence)

    @staticmethod
    def _chunk(sequence: Sequence) -> int:
        return len(sequence.token_ids) - sequence.cached

    @staticmethod
    def _batch(chosen: list[tuple[Sequence, int]]) -> Batch:
        token_ids: list[int] = []
        spans: list[Span] = []
        for sequence, length in chosen:
            token_ids += sequence.token_ids[sequence.cached : sequence.cached + length]
            spans.append(Span(sequence.blocks, sequence.cached, length))
            sequence.cached += length
        return Batch(
            Step(tuple(token_ids), tuple(spans)),
            tuple(sequence for sequence, _ in chosen),
            tuple(sequence.cached == len(sequence.token_ids) for sequence, _ in chosen),
        )
