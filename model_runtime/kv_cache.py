"""Paged keys and values. A block is BLOCK_TOKENS positions of one sequence, in every layer. Knows no scheduling."""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from model_runtime.families import ModelConfig

BLOCK_TOKENS = 16


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

    `left_out`: (layer, expert) pairs that nobody is routed to. `guarded`: look at every expert's output; one that is
    not finite is left out of that token's mix, and reported (experts.py). That costs time: it is asked for when a step
    went wrong without it."""

    token_ids: tuple[int, ...]
    spans: tuple[Span, ...]
    left_out: tuple[tuple[int, int], ...] = ()
    guarded: bool = False


class BlockPool:
    """Which blocks are free. Hands out the lowest numbers first, so that a sequence's blocks tend to lie side by side:
    such a run is read in place, without a gather (see Plan)."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks))  # a heap
        self._used: set[int] = set()

    @property
    def free_count(self) -> int:
        return len(self._free)

    def can_allocate(self, count: int) -> bool:
        return count <= len(self._free)

    def allocate(self, count: int) -> list[int]:
        """The caller asks can_allocate first."""
        assert 0 <= count <= len(self._free), f"{count} blocks asked, {len(self._free)} free"
        blocks = [heapq.heappop(self._free) for _ in range(count)]
        self._used.update(blocks)
        return blocks

    def free(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            assert block in self._used, f"block {block} is not in use"
            self._used.remove(block)
            heapq.heappush(self._free, block)


@dataclass(frozen=True, slots=True)
class Reading:
    """Where one span's queries and its keys and values lie. `run` (first slot) when its blocks are consecutive, else
    `blocks` to gather. `rows` are the span's rows among the step's tokens."""

    rows: slice
    start: int
    length: int
    run: int | None
    blocks: Tensor | None

    @property
    def total(self) -> int:
        return self.start + self.length


@dataclass(frozen=True, slots=True)
class Plan:
    """A step as tensors on the cache's device, made once and used by every layer. T tokens, S spans."""

    token_ids: Tensor  # [T]
    positions: Tensor  # [T]
    slots: Tensor  # [T]: where each token's key and value go
    last_rows: Tensor  # [S]
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
        positions: list[int] = []
        slots: list[int] = []
        last_rows: list[int] = []
        readings: list[Reading] = []
        for span in step.spans:
            first = len(positions)
            stop = span.start + span.length
            positions.extend(range(span.start, stop))
            readings.append(self._reading(span, slice(first, first + span.length)))
            slots.extend(_slots(span))
            last_rows.append(first + span.length - 1)
        assert len(step.token_ids) == len(positions), "token_ids and spans disagree"
        return Plan(
            token_ids=self._tensor(step.token_ids),
            positions=self._tensor(positions),
            slots=self._tensor(slots),
            last_rows=self._tensor(last_rows),
            readings=tuple(readings),
        )

    def write(self, layer: int, slots: Tensor, keys_values: Tensor) -> None:
        """`keys_values` is [T, 2 * kv_heads, head_dim]."""
        self.layers[layer].index_copy_(0, slots, keys_values)

    def read(self, layer: int, reading: Reading) -> tuple[Tensor, Tensor]:
        """Keys and values of positions 0 .. start+length-1, each [kv_heads, total, head_dim]."""
        stored = self.layers[layer]
        if reading.run is not None:
            found = stored[reading.run : reading.run + reading.total]
        else:
            assert reading.blocks is not None
            by_block = stored.view(self.num_blocks, -1).index_select(0, reading.blocks)
            found = by_block.view(-1, *stored.shape[1:])[: reading.total]
        heads_first = found.transpose(0, 1)
        return heads_first[: self.kv_heads], heads_first[self.kv_heads :]

    def _reading(self, span: Span, rows: slice) -> Reading:
        needed = -(-(span.start + span.length) // BLOCK_TOKENS)
        assert span.length > 0 and needed <= len(span.block_table), f"{len(span.block_table)} blocks, {needed} needed"
        table = span.block_table[:needed]
        if table == tuple(range(table[0], table[0] + needed)):
            return Reading(rows, span.start, span.length, run=table[0] * BLOCK_TOKENS, blocks=None)
        return Reading(rows, span.start, span.length, run=None, blocks=self._tensor(table))

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
