"""Who holds which block of the cache, and where a sequence grows. Knows no scheduling and no tensors.

Two things make a free block worth something. What it holds may be asked for again (prefix_cache.py): it is kept until
the block is taken, the longest unused first. And it may lie where a sequence is about to grow: consecutive blocks are
read in place, scattered ones are copied in every layer of every step. So a sequence reserves a stretch to grow into,
and when it cannot grow there it moves: what it shares at its beginning stays where it is, the rest is copied once.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from model_runtime.prefix_cache import PrefixCache

# What taking a block costs: 0 for nothing, less than _RESERVED for what was kept in it (the later used, the more).
_RESERVED = 1 << 60
_HELD = 1 << 62


@dataclass(slots=True, eq=False)
class BlockTable:
    """One sequence's blocks in order, and the stretch reserved for its next ones."""

    blocks: list[int] = field(default_factory=list)
    reserved: range = range(0)

    @property
    def first_run(self) -> int:
        """How many blocks lie side by side from the first on."""
        blocks = self.blocks
        return next((place for place in range(1, len(blocks)) if blocks[place] != blocks[place - 1] + 1), len(blocks))


class BlockPool:
    """`moves`: (from, to, blocks) to be copied, in this order, before anything is written to a block taken since."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.free_count = num_blocks
        self.prefixes = PrefixCache()
        self.moves: list[tuple[int, int, int]] = []
        self._references = [0] * num_blocks
        self._cost: npt.NDArray[np.int64] = np.zeros(num_blocks, dtype=np.int64)
        self._last_used: npt.NDArray[np.int64] = np.zeros(num_blocks, dtype=np.int64)
        self._clock = 0

    def references(self, block: int) -> int:
        return self._references[block]

    def share(self, table: BlockTable, blocks: Iterable[int]) -> None:
        """Appends blocks that others may hold, or that are free but were kept."""
        for block in blocks:
            if not self._references[block]:
                self._hold(block)
            self._references[block] += 1
            table.blocks.append(block)

    def grow(self, table: BlockTable, count: int, most: int) -> bool:
        """Takes blocks until there are `count`; `most`: what the sequence may come to need. False when no block is free
        any more; the table keeps what it got."""
        while len(table.blocks) < count:
            if not self.free_count:
                return False
            block = self._next(table)
            if block is None:
                self._make_room(table, count - len(table.blocks), most - len(table.blocks))
                block = self._next(table)
            assert block is not None
            self._take(block)
            table.blocks.append(block)
        return True

    def has_run(self, count: int) -> bool:
        """Whether `count` free blocks lie side by side."""
        return self._room(count, _HELD) is not None

    def take_run(self, table: BlockTable, count: int) -> bool:
        """Gives an empty table `count` blocks side by side. False when there is no such stretch."""
        first = self._room(count, _HELD)
        if first is None:
            return False
        for block in range(first, first + count):
            self._take(block)
            table.blocks.append(block)
        return True

    def clear(self, table: BlockTable) -> None:
        """The sequence needs its blocks no longer. The last ones are the first to lose their content: without its
        beginning the rest of a text is no use."""
        for block in reversed(table.blocks):
            self._drop(block)
        table.blocks.clear()
        self._release(table)

    def take_moves(self) -> tuple[tuple[int, int, int], ...]:
        moves = tuple(self.moves)
        self.moves.clear()
        return moves

    def _next(self, table: BlockTable) -> int | None:
        """The free block that is reserved for the table's next one."""
        room = table.reserved
        block = table.blocks[-1] + 1 if table.blocks and table.blocks[-1] in room else room.start
        return block if block in room and not self._references[block] else None

    def _take(self, block: int) -> None:
        self.prefixes.forget(block)
        self._hold(block)
        self._references[block] = 1

    def _hold(self, block: int) -> None:
        self.free_count -= 1
        self._cost[block] = _HELD

    def _drop(self, block: int) -> None:
        assert self._references[block] > 0, f"block {block} is not in use"
        self._references[block] -= 1
        if not self._references[block]:
            self.free_count += 1
            self._clock += 1
            self._last_used[block] = self._clock if block in self.prefixes else 0
            self._cost[block] = self._last_used[block]

    def _make_room(self, table: BlockTable, needed: int, most: int) -> None:
        """Reserves a stretch for `most` more blocks, or half or a quarter of that, `needed` at least: behind the last
        block, or elsewhere for all but the first run, which moves there. Rather where nobody else reserved."""
        self._release(table)
        first_run = table.first_run
        own = len(table.blocks) - first_run
        stolen = max(needed, min(most, len(table.blocks)))  # of what others reserved, not more than it has
        sizes = [(size, _RESERVED) for size in _halves(most, needed)]
        sizes += [(size, _HELD) for size in _halves(stolen, needed)]
        for size, limit in sizes:
            elsewhere = self._room(own + size, limit)
            if self._reserve_behind(table, size, limit, elsewhere, own + size):
                return
            if elsewhere is not None:
                self._reserve(table, elsewhere, own + size)
                self._move(table, first_run, elsewhere)
                return
        for size in _halves(stolen, 1):  # no stretch is long enough: piece by piece
            if (first := self._room(size, _HELD)) is not None:
                self._reserve(table, first, size)
                return

    def _reserve_behind(
        self, table: BlockTable, size: int, limit: int, elsewhere: int | None, size_elsewhere: int
    ) -> bool:
        """If there is room behind the last block, and taking it costs no more than moving."""
        if not table.blocks:
            return False
        first = table.blocks[-1] + 1
        cost = self._cost[first : first + size]
        if len(cost) < size or cost.max() >= limit:
            return False
        if elsewhere is not None and cost.max() > self._cost[elsewhere : elsewhere + size_elsewhere].max():
            return False
        self._reserve(table, first, size)
        return True

    def _move(self, table: BlockTable, first_run: int, target: int) -> None:
        """All blocks from place `first_run` on, to `target` and the blocks behind it."""
        for place in range(first_run, len(table.blocks)):
            source = table.blocks[place]
            self._take(target)
            self._note_move(source, target)
            if self._references[source] == 1:
                self.prefixes.rename(source, target)
            self._drop(source)
            table.blocks[place] = target
            target += 1

    def _note_move(self, source: int, target: int) -> None:
        if self.moves:
            first_source, first_target, count = self.moves[-1]
            if (source, target) == (first_source + count, first_target + count):
                self.moves[-1] = (first_source, first_target, count + 1)
                return
        self.moves.append((source, target, 1))

    def _reserve(self, table: BlockTable, first: int, size: int) -> None:
        # A reservation that is too long loses its far end first: it will be needed last, or not at all.
        self._cost[first : first + size] = _RESERVED + np.arange(size, 0, -1)
        table.reserved = range(first, first + size)

    def _release(self, table: BlockTable) -> None:
        stretch = slice(table.reserved.start, table.reserved.stop)
        cost = self._cost[stretch]
        free = (cost >= _RESERVED) & (cost < _HELD)
        cost[free] = self._last_used[stretch][free]
        table.reserved = range(0)

    def _room(self, size: int, limit: int) -> int | None:
        """Where `size` free blocks side by side cost least, counting the dearest of them; None if it is `limit`."""
        if size > self.num_blocks:
            return None
        dearest, width = self._cost, 1
        while width < size:  # dearest[i] is the maximum of `width` blocks from i on
            step = min(width, size - width)
            dearest = np.maximum(dearest[:-step], dearest[step:])
            width += step
        first = int(dearest.argmin())
        return first if dearest[first] < limit else None


def _halves(size: int, least: int) -> list[int]:
    """`size`, half of it, a quarter, ..., down to `least`."""
    return [half for shift in range(size.bit_length()) if (half := size >> shift) > least] + [least]
