"""No block has two owners who do not share it, none is lost, and sequences lie where they can be read in place."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from model_runtime.block_pool import BlockPool, BlockTable


def table(pool: BlockPool, count: int, most: int | None = None) -> BlockTable:
    made = BlockTable()
    assert pool.grow(made, count, most or count)
    return made


def keep(pool: BlockPool, blocks: list[int], name: str) -> list[bytes]:
    """As if each block held something that may be asked for again."""
    keys = [f"{name}{place}".encode() for place in range(len(blocks))]
    for key, block in zip(keys, blocks, strict=True):
        pool.prefixes.put(key, block)
    return keys


def runs(blocks: list[int]) -> int:
    return 1 + sum(after != before + 1 for before, after in zip(blocks, blocks[1:], strict=False))


def test_sequences_that_grow_side_by_side_lie_in_one_run_each():
    pool = BlockPool(64)
    tables = [table(pool, 2, 16) for _ in range(4)]
    for count in range(3, 17):
        for one in tables:
            assert pool.grow(one, count, 16)
    assert [runs(one.blocks) for one in tables] == [1] * 4
    assert pool.free_count == 0


def test_room_that_was_reserved_is_given_when_nothing_else_is_left_and_from_its_far_end():
    pool = BlockPool(32)
    first = table(pool, 4, 32)
    second = table(pool, 12, 12)
    assert runs(second.blocks) == 1 and min(second.blocks) == 20
    assert pool.grow(first, 20, 32) and runs(first.blocks) == 1
    assert not pool.grow(first, 21, 32) and len(first.blocks) == 20


def test_two_that_reserved_everything_leave_room_for_a_third():
    pool = BlockPool(64)
    table(pool, 2, 32), table(pool, 2, 32)
    third = table(pool, 4, 32)
    for count in range(5, 30):
        assert pool.grow(third, count, 32)
    assert runs(third.blocks) <= 2


def test_who_cannot_grow_in_place_moves_to_where_there_is_room_but_for_what_it_shares():
    pool = BlockPool(40)
    first = table(pool, 6, 6)
    keys = keep(pool, first.blocks[:4], "a")
    second = BlockTable()
    pool.share(second, first.blocks[:4])
    assert pool.grow(second, 6, 6) and pool.moves == []
    third = table(pool, 4, 30)
    own = second.blocks[4:]
    more_keys = keep(pool, own, "b")
    assert pool.grow(second, 12, 12)
    ((source, target, count),) = pool.take_moves()
    assert (source, count) == (own[0], 2) and second.blocks == [*first.blocks[:4], *range(target, target + 8)]
    assert pool.prefixes.find(keys) == first.blocks[:4] and pool.prefixes.find(more_keys) == [target, target + 1]
    assert not set(second.blocks) & set(third.blocks) and pool.moves == []
    assert [pool.references(block) for block in own] == [0, 0]


def test_what_moves_away_from_another_owner_stays_there_too():
    pool = BlockPool(40)
    first, second, third = table(pool, 3, 3), table(pool, 3, 3), table(pool, 3, 3)
    keys = keep(pool, third.blocks, "c")
    fourth = BlockTable()
    pool.share(fourth, [*first.blocks, *third.blocks])
    pool.grow(second, 12, 31)  # takes what is behind the third
    held = list(third.blocks)
    assert pool.grow(fourth, 7, 8)
    assert third.blocks == held == pool.prefixes.find(keys)
    assert [pool.references(block) for block in held] == [1] * 3 and runs(fourth.blocks) == 2


def test_a_run_is_taken_as_a_whole_or_not_at_all():
    pool = BlockPool(9)
    whole = table(pool, 9)
    pool.clear(whole)
    tables = [table(pool, 3) for _ in range(3)]
    pool.clear(tables[0])
    pool.clear(tables[2])
    run = BlockTable()
    assert pool.free_count == 6 and pool.has_run(3) and not pool.has_run(4)
    assert not pool.take_run(run, 4) and not run.blocks
    assert pool.take_run(run, 3) and runs(run.blocks) == 1 and pool.free_count == 3


def test_what_was_freed_is_kept_until_the_room_is_needed_and_the_oldest_goes_first():
    pool = BlockPool(12)
    tables = [table(pool, 4) for _ in range(3)]
    keys = [keep(pool, one.blocks, name) for one, name in zip(tables, "abc", strict=True)]
    old_blocks = list(tables[1].blocks)
    for number in (1, 2, 0):
        pool.clear(tables[number])
    assert pool.free_count == 12
    assert [len(pool.prefixes.find(key)) for key in keys] == [4, 4, 4]
    new = table(pool, 4)
    assert new.blocks == old_blocks
    assert [len(pool.prefixes.find(key)) for key in keys] == [4, 0, 4]


def test_the_end_of_a_text_goes_before_its_beginning():
    pool = BlockPool(4)
    old = table(pool, 4)
    keys = keep(pool, old.blocks, "a")
    pool.clear(old)
    table(pool, 1)
    assert len(pool.prefixes.find(keys)) == 3


def test_a_sequence_goes_on_right_behind_a_shared_beginning_where_nothing_is_lost_by_it():
    pool = BlockPool(32)
    table(pool, 5)
    first = table(pool, 6)
    keep(pool, first.blocks[:4], "a")
    shared = first.blocks[:4]
    pool.clear(first)
    second = BlockTable()
    pool.share(second, shared)
    assert pool.grow(second, 10, 12) and runs(second.blocks) == 1


def test_a_shared_block_is_free_when_the_last_owner_leaves():
    pool = BlockPool(4)
    first, second = table(pool, 2), BlockTable()
    pool.share(second, first.blocks)
    shared = list(first.blocks)
    pool.clear(first)
    assert pool.free_count == 2 and [pool.references(block) for block in shared] == [1, 1]
    pool.clear(second)
    assert pool.free_count == 4


def test_freeing_what_nobody_holds_is_our_own_mistake():
    pool = BlockPool(2)
    with pytest.raises(AssertionError):
        pool.clear(BlockTable([1]))


class Owners(RuleBasedStateMachine):
    tables = Bundle("tables")
    SIZE = 24

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(self.SIZE)
        self.open: list[BlockTable] = []
        self.kept: dict[bytes, str] = {}  # key -> what is in its block
        self.memory: dict[int, str] = {}
        self.written: dict[BlockTable, list[str]] = {}

    @rule(target=tables)
    def begin(self):
        self.open.append(BlockTable())
        self.written[self.open[-1]] = []
        return self.open[-1]

    @rule(owner=tables, more=st.integers(1, 6), beyond=st.integers(0, 10))
    def grow(self, owner, more, beyond):
        had, free = len(owner.blocks), self.pool.free_count
        assert self.pool.grow(owner, had + more, had + more + beyond) == (more <= free)
        assert len(owner.blocks) == had + min(more, free)
        self.move_and_write(owner, had)

    @rule(owner=tables, count=st.integers(1, 6))
    def take_run(self, owner, count):
        if not owner.blocks:
            assert self.pool.has_run(count) == self.pool.take_run(owner, count)
            assert not owner.blocks or owner.first_run == count
            self.move_and_write(owner, 0)

    def move_and_write(self, owner, had):
        for source, target, count in self.pool.take_moves():
            for block in range(count):
                self.memory[target + block] = self.memory.get(source + block, "not written yet")
        for block in owner.blocks[had:]:
            assert block not in self.pool.prefixes
            self.memory[block] = f"{self.open.index(owner)}.{len(self.kept)}.{block}"
            self.written[owner].append(self.memory[block])

    @rule(owner=tables)
    def name(self, owner):
        for block in owner.blocks:
            if block not in self.pool.prefixes:
                key = f"{len(self.kept)}".encode()
                self.pool.prefixes.put(key, block)
                self.kept[key] = self.memory[block]

    @rule(owner=tables, data=st.data())
    def share(self, owner, data):
        there = [block for key in self.kept for block in self.pool.prefixes.find([key]) if block not in owner.blocks]
        if there:
            shared = data.draw(st.lists(st.sampled_from(there), unique=True))
            self.pool.share(owner, shared)
            self.written[owner] += [self.memory[block] for block in shared]

    @rule(owner=consumes(tables))
    def end(self, owner):
        self.pool.clear(owner)
        self.open.remove(owner)
        del self.written[owner]
        assert not owner.blocks

    @invariant()
    def references_are_owners(self):
        owners = [block for one in self.open for block in one.blocks]
        assert all(self.pool.references(block) == owners.count(block) for block in range(self.SIZE))
        assert self.pool.free_count == self.SIZE - len(set(owners))

    @invariant()
    def what_was_written_is_there(self):
        assert all([self.memory[block] for block in one.blocks] == self.written[one] for one in self.open)
        found = {key: block for key in self.kept for block in self.pool.prefixes.find([key])}
        assert all(self.memory[block] == self.kept[key] for key, block in found.items())

    @invariant()
    def each_owner_has_a_block_once(self):
        assert all(len(set(one.blocks)) == len(one.blocks) for one in self.open)

    def teardown(self):
        for one in self.open:
            self.pool.clear(one)
        assert self.pool.free_count == self.SIZE
        assert table(self.pool, 1, self.SIZE).reserved == range(self.SIZE), "a reservation outlived its owner"


TestOwners = Owners.TestCase
TestOwners.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
