"""Which tokens the next step computes: continuous batching over a paged cache. Knows no model, no text and no ranks.

First come, first served. A request is admitted when its tokens and one more block fit beside what the running ones
still need; blocks for the answer are taken as it grows. When none is left, the latest of the running ones goes back to
the head of the line: its tokens stay, its full blocks can still be found, and it computes the rest again. So the oldest
always gets on, and what was admitted finishes.

What a prompt shares with an earlier one is not computed again, and a prompt whose beginning another one is computing
waits for it.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from model_runtime.block_pool import BlockPool
from model_runtime.kv_cache import BLOCK_TOKENS, Step
from model_runtime.request import PromptTooLong, QueueFull
from model_runtime.sequence import Sequence, blocks_for

ALONE_TOKENS = 256  # a portion of a prompt that is computed alone
WORTH_WAITING_TOKENS = 64  # less is rather computed twice
HEADROOM_TOKENS = BLOCK_TOKENS


@dataclass(frozen=True, slots=True)
class Limits:
    """`step_tokens`: the most one step computes when nobody waits for a next token; `beside_decoding`: the most prompt
    tokens in a step that also decodes, so that a long prompt does not hold up running answers. `draft_rows`: next
    tokens and guesses in one step. `max_total_tokens`: prompt and max_tokens of one request, whatever the model's
    context is."""

    running: int = 16
    waiting: int = 64
    step_tokens: int = 512
    beside_decoding: int = 128  # on two cores a step of 128 takes four times as long as one of 1, and of 512 ten times
    draft_rows: int = 8  # so many rows give the same bits each as one alone (linear.py, attention.py)
    max_total_tokens: int | None = None


CPU_LIMITS = Limits()
GPU_LIMITS = Limits(running=64, waiting=256, step_tokens=4096, beside_decoding=1024, draft_rows=128)


@dataclass(frozen=True, slots=True)
class Part:
    """One sequence's part of a step. `complete`: its logits choose the sequence's next token, else a part of its prompt
    is still to come. `draft`: the guesses computed behind its last token."""

    sequence: Sequence
    complete: bool
    draft: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """`step.spans[i]` belongs to `parts[i]`."""

    step: Step
    parts: tuple[Part, ...]


@dataclass(slots=True, eq=False)
class Scheduler:
    pool: BlockPool
    context_tokens: int
    limits: Limits = CPU_LIMITS
    waiting: deque[Sequence] = field(default_factory=deque)
    running: list[Sequence] = field(default_factory=list)  # as they came, and before all that wait
    _turn: int = 0
    _alone_last: bool = False

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.running)

    def submit(self, sequence: Sequence, *, admitted_before: bool = False) -> None:
        """Raises PromptTooLong if it could never run, QueueFull if too many wait: but what was admitted before a
        restart is never turned away."""
        limit = min(self.context_tokens, self.pool.num_blocks * BLOCK_TOKENS)
        if self.limits.max_total_tokens is not None:
            limit = min(limit, self.limits.max_total_tokens)
        if sequence.capacity > limit:
            raise PromptTooLong(sequence.capacity, limit)
        if len(self.waiting) >= self.limits.waiting and not admitted_before:
            raise QueueFull(len(self.waiting))
        assert len(sequence.token_ids) < sequence.capacity, "nothing left to generate"
        if not sequence.alone:
            self.pool.prefixes.extend(sequence.keys, sequence.token_ids, sequence.boosts)
        self.waiting.append(sequence)
        self._admit()

    def finish(self, sequence: Sequence, *, spoilt: bool = False) -> None:
        """Forgets a waiting or running sequence; its place and its blocks are free for the next step. `spoilt`: nobody
        may use what it computed."""
        if not sequence.is_running:
            self.waiting.remove(sequence)
            return
        self.running.remove(sequence)
        if spoilt:
            for block in sequence.table.blocks:
                self.pool.prefixes.forget(block)
        else:
            self._name_full_blocks([sequence])
        self._leave(sequence)

    def next_batch(self) -> Batch:
        """Counts the batch as cached: it must be computed before the next call. Empty when there is no work."""
        self._name_full_blocks(self.running)
        self._admit()
        self._turn += 1
        parts: list[tuple[Sequence, int, tuple[int, ...]]] = []
        while self.running and not parts:
            alone = [sequence for sequence in self.running if sequence.alone]
            self._alone_last = bool(alone) and not (self._alone_last and len(alone) < len(self.running))
            parts = self._one_alone(alone) if self._alone_last else self._many_together()
        return self._batch(parts)

    def forget_prefixes(self) -> None:
        """What was computed so far is not what would be computed now."""
        self.pool.prefixes.clear()
        for sequence in self.running:
            sequence.named = blocks_for(sequence.capacity)  # nor is what will build on it

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.limits.running:
            head = self.waiting[0]
            needed = sum(map(self._still_needed, [*self.running, head]))
            if self.running and (needed > self.pool.free_count or not self._has_room_alone(head)):
                return
            self.waiting.popleft()
            head.is_running = True
            self.running.append(head)

    def _has_room_alone(self, sequence: Sequence) -> bool:
        return not sequence.alone or self.pool.has_run(blocks_for(sequence.capacity))

    def _still_needed(self, sequence: Sequence) -> int:
        """Blocks to come for the tokens it has and a few more."""
        tokens = sequence.capacity
        if not sequence.alone:
            tokens = min(tokens, len(sequence.token_ids) + HEADROOM_TOKENS)
        needed = blocks_for(tokens) - len(sequence.table.blocks)
        if not sequence.is_started:
            found = self.pool.prefixes.find(sequence.shareable)
            held = sum(self.pool.references(block) > 0 for block in found)
            needed -= max(held, self._shared_with_running(sequence))
        return max(0, needed)

    def _shared_with_running(self, sequence: Sequence) -> int:
        """Blocks that it will share with one that runs and came before."""
        return max((_common(sequence, other) for other in self._before(sequence)), default=0)

    def _before(self, sequence: Sequence) -> Iterable[Sequence]:
        for other in self.running:
            if other is sequence:
                return
            if not other.alone:
                yield other

    def _preempt(self, sequence: Sequence) -> None:
        assert self.running[-1] is sequence
        self.running.pop()
        self._name_full_blocks([sequence])
        self._leave(sequence)
        self.waiting.appendleft(sequence)

    def _leave(self, sequence: Sequence) -> None:
        self.pool.clear(sequence.table)
        sequence.cached = sequence.named = sequence.found = 0
        sequence.is_running = sequence.is_started = False

    def _name_full_blocks(self, sequences: Iterable[Sequence]) -> None:
        """What was computed by now can be found by others."""
        for sequence in sequences:
            full = sequence.cached // BLOCK_TOKENS
            if full > sequence.named and not sequence.alone:
                if full > len(sequence.keys):
                    self.pool.prefixes.extend(sequence.keys, sequence.token_ids, sequence.boosts)
                for place in range(sequence.named, full):
                    self.pool.prefixes.put(sequence.keys[place], sequence.table.blocks[place])
                sequence.named = full

    def _start(self, sequence: Sequence) -> bool:
        """Takes over the beginning that is in the cache. False while another one computes much of it."""
        if sequence.is_started or sequence.alone:
            return True
        for other in self._before(sequence):
            common = _common(sequence, other) * BLOCK_TOKENS
            if other.cached < common and common - other.found >= WORTH_WAITING_TOKENS:
                return False
        found = self.pool.prefixes.find(sequence.shareable)
        self.pool.share(sequence.table, found)
        sequence.cached = sequence.found = len(found) * BLOCK_TOKENS
        sequence.named = len(found)
        if sequence.shared_tokens is None:
            sequence.shared_tokens = min(sequence.found, sequence.prompt_tokens)
        sequence.is_started = True
        return True

    def _one_alone(self, alone: list[Sequence]) -> list[tuple[Sequence, int, tuple[int, ...]]]:
        """Whatever happens beside it, it is computed in the same portions, and read from one run of blocks."""
        sequence = min(alone, key=lambda one: one.last_turn)
        sequence.last_turn = self._turn
        to_come = sequence.prompt_tokens - sequence.cached
        length = min(to_come, ALONE_TOKENS - sequence.cached % ALONE_TOKENS) if to_come > 0 else 1
        return [(sequence, length, ())] if self._grow(sequence, length) else []

    def _many_together(self) -> list[tuple[Sequence, int, tuple[int, ...]]]:
        ready = [sequence for sequence in self.running if not sequence.alone and self._start(sequence)]
        decoding = [sequence for sequence in ready if sequence.missing == 1]
        prompts = [sequence for sequence in ready if sequence.missing > 1]
        budget = self.limits.beside_decoding if decoding else self.limits.step_tokens
        lengths = {sequence: 1 for sequence in decoding if self._grow(sequence, 1)}
        for sequence in prompts:
            length = min(sequence.missing, budget)
            if length and self._grow(sequence, length):
                lengths[sequence] = length
                budget -= length
        guesses = max(0, self.limits.draft_rows // max(1, len(decoding)) - 1)
        return [
            (sequence, length, self._draft(sequence, guesses) if sequence.missing == 1 else ())
            for sequence, length in lengths.items()
            if sequence.is_running  # an older prompt may have taken its blocks
        ]

    def _grow(self, sequence: Sequence, length: int) -> bool:
        """Blocks for `length` more tokens, if need be from those who came later. False if it had to leave itself."""
        wanted, most = blocks_for(sequence.cached + length), blocks_for(sequence.capacity)
        while sequence.is_running:
            if sequence.alone and not sequence.table.blocks:
                has_grown = self.pool.take_run(sequence.table, most)
            else:
                has_grown = self.pool.grow(sequence.table, wanted, most)
            if has_grown:
                return True
            self._preempt(self.running[-1])
        return False

    def _draft(self, sequence: Sequence, most: int) -> tuple[int, ...]:
        """What fits into blocks that nobody is to give up for it."""
        if sequence.lookup is None or most == 0:
            return ()
        draft = sequence.lookup.propose(min(most, sequence.capacity - len(sequence.token_ids) - 1))
        tokens = sequence.cached + 1 + len(draft)
        if draft and self.pool.free_count > len(self.running):
            self.pool.grow(sequence.table, blocks_for(tokens), blocks_for(sequence.capacity))
        return draft[: len(sequence.table.blocks) * BLOCK_TOKENS - sequence.cached - 1]

    def _batch(self, chosen: list[tuple[Sequence, int, tuple[int, ...]]]) -> Batch:
        token_ids: list[int] = []
        spans, parts = [], []
        for sequence, length, draft in chosen:
            token_ids += sequence.token_ids[sequence.cached : sequence.cached + length]
            token_ids += draft
            spans.append(sequence.span(length + len(draft), len(draft)))
            sequence.cached += length
            parts.append(Part(sequence, sequence.missing == 0, draft))
        moves = self.pool.take_moves() if parts else ()
        return Batch(Step(tuple(token_ids), tuple(spans), moves=moves), tuple(parts))


def _common(one: Sequence, other: Sequence) -> int:
    """Full blocks that both begin with, of those that `one` need not compute. A key names all blocks before it, too."""
    low, high = 0, min(len(one.shareable), len(other.keys))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one.keys[middle - 1] == other.keys[middle - 1] else (low, middle - 1)
    return low
