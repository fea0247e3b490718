"""Paged keys and values. A block is BLOCK_TOKENS positions of one sequence, in every layer. Knows nothing of who owns
which block: that is block_pool.py."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from model_runtime.families import ModelConfig

BLOCK_TOKENS = 16
_MANY_RUNS = 8  # from here on one gather by block is quicker than a view of each run


@dataclass(frozen=True, slots=True)
class Boost:
    """Makes some experts likelier for a span: the router's probabilities for `experts` are multiplied by `factor`
    before the choice, in every layer that has experts."""

    experts: tuple[int, ...]
    factor: float


@dataclass(frozen=True, slots=True)
class Span:
    """One sequence's part of a step: `length` new tokens at positions `start`, `start + 1`, ...; the positions before
    are cached. `block_table` lists the sequence's blocks in order and covers `start + length` positions at least.
    The logits of the last `outputs` new tokens are wanted."""

    block_table: tuple[int, ...]
    start: int
    length: int
    outputs: int = 1
    boosts: tuple[Boost, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """What one forward pass computes, the same on every rank: all spans' new tokens, concatenated, and the spans.

    `moves`: (from, to, blocks) to copy before all else, in this order.
    `left_out`: (layer, expert) pairs that nobody is routed to. `guarded`: look at every expert's output; one that is
    not finite is left out of that token's mix, and reported (experts.py). That costs time: it is asked for when a step
    went wrong without it."""

    token_ids: tuple[int, ...]
    spans: tuple[Span, ...]
    left_out: tuple[tuple[int, int], ...] = ()
    guarded: bool = False
    moves: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """Where one span's queries and its keys and values lie. `runs`: (first slot, tokens) of each stretch of consecutive
    blocks, in order, `total` tokens in all. `rows` are the span's rows among the step's tokens. `blocks` is there to
    gather from when there are many runs."""

    rows: slice
    start: int
    length: int
    runs: tuple[tuple[int, int], ...]
    blocks: Tensor | None = None

    @property
    def total(self) -> int:
        return self.start + self.length


@dataclass(frozen=True, slots=True)
class Plan:
    """A step as tensors on the cache's device, made once and used by every layer. T tokens, S spans."""

    token_ids: Tensor  # [T]
    positions: Tensor  # [T]
    slots: Tensor  # [T]: where each token's key and value go
    output_rows: Tensor  # [sum of outputs]: the rows whose logits are wanted
    readings: tuple[Reading, ...]


class PagedCache:
    """The keys and values of one shard. `layers[i]` is [num_blocks * BLOCK_TOKENS, 2 * kv_heads, head_dim]: the keys
    of a position, then its values, so that one scatter stores both and consecutive blocks are one strided view."""

    def __init__(self, config: ModelConfig, num_blocks: int, dtype: torch.dtype, device: torch.device | str) -> None:
        self.num_blocks = num_blocks
        self.kv_heads = config.kv_heads
        self.dtype = dtype
        self.device = torch.device(device)
        shape = (num_blocks * BLOCK_TOKENS, 2 * config.kv_heads, config.head_dim)
        self.layers = [torch.zeros(shape, dtype=dtype, device=self.device) for _ in range(config.layers)]

    def plan(self, step: Step) -> Plan:
        """Once for each step: it also carries out the step's moves."""
        self._move(step.moves)
        positions: list[int] = []
        slots: list[int] = []
        output_rows: list[int] = []
        readings: list[Reading] = []
        for span in step.spans:
            first = len(positions)
            stop = span.start + span.length
            positions.extend(range(span.start, stop))
            readings.append(self._reading(span, slice(first, first + span.length)))
            slots.extend(_slots(span))
            output_rows.extend(range(first + span.length - span.outputs, first + span.length))
        assert len(step.token_ids) == len(positions), "token_ids and spans disagree"
        return Plan(
            token_ids=self._tensor(step.token_ids),
            positions=self._tensor(positions),
            slots=self._tensor(slots),
            output_rows=self._tensor(output_rows),
            readings=tuple(readings),
        )

    def write(self, layer: int, slots: Tensor, keys_values: Tensor) -> None:
        """`keys_values` is [T, 2 * kv_heads, head_dim]."""
        self.layers[layer].index_copy_(0, slots, keys_values)

    def read(self, layer: int, reading: Reading) -> tuple[Tensor, Tensor]:
        """Keys and values of positions 0 .. start+length-1, each [kv_heads, total, head_dim]: views where the sequence
        is one run."""
        stored = self.layers[layer]
        if reading.blocks is not None:
            by_block = stored.view(self.num_blocks, -1).index_select(0, reading.blocks)
            found = by_block.view(-1, *stored.shape[1:])[: reading.total]
        else:
            parts = [stored[first : first + count] for first, count in reading.runs]
            found = parts[0] if len(parts) == 1 else torch.cat(parts)
        heads_first = found.transpose(0, 1)
        return heads_first[: self.kv_heads], heads_first[self.kv_heads :]

    def _move(self, moves: Iterable[tuple[int, int, int]]) -> None:
        for source, target, blocks in moves:
            first, to, count = source * BLOCK_TOKENS, target * BLOCK_TOKENS, blocks * BLOCK_TOKENS
            for stored in self.layers:
                stored[to : to + count] = stored[first : first + count]

    def _reading(self, span: Span, rows: slice) -> Reading:
        total = span.start + span.length
        needed = -(-total // BLOCK_TOKENS)
        assert span.length > 0 and needed <= len(span.block_table), f"{len(span.block_table)} blocks, {needed} needed"
        table = span.block_table[:needed]
        runs = _runs(table, total)
        return Reading(rows, span.start, span.length, runs, self._tensor(table) if len(runs) > _MANY_RUNS else None)

    def _tensor(self, numbers: Iterable[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.long, device=self.device)


def _slots(span: Span) -> Iterable[int]:
    position, stop = span.start, span.start + span.length
    while position < stop:
        block, offset = divmod(position, BLOCK_TOKENS)
        count = min(BLOCK_TOKENS - offset, stop - position)
        slot = span.block_table[block] * BLOCK_TOKENS + offset
        yield from range(slot, slot + count)
        position += count


def _runs(table: tuple[int, ...], total: int) -> tuple[tuple[int, int], ...]:
    """`table` cut where the next block is not the next number, as (first slot, tokens)."""
    if table == tuple(range(table[0], table[0] + len(table))):
        return ((table[0] * BLOCK_TOKENS, total),)
    cuts = [0, *(place for place in range(1, len(table)) if table[place] != table[place - 1] + 1), len(table)]
    stretches = [(table[first] * BLOCK_TOKENS, (stop - first) * BLOCK_TOKENS) for first, stop in pairwise(cuts)]
    last_slot, _ = stretches[-1]
    return (*stretches[:-1], (last_slot, total - cuts[-2] * BLOCK_TOKENS))
