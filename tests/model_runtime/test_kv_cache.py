"""Blocks are conserved and never shared; what a sequence wrote is what it reads, wherever its blocks lie."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_model import TINY

from model_runtime.kv_cache import BLOCK_TOKENS, BlockPool, PagedCache, Span, Step

KV_HEADS, HEAD_DIM = TINY.kv_heads, TINY.head_dim


@given(st.integers(0, 12), st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=40))
def test_blocks_are_conserved_and_never_handed_out_twice(size, orders):
    pool, held = BlockPool(size), []
    for take, number in orders:
        if take and pool.can_allocate(number):
            held.append(pool.allocate(number))
            assert len(held[-1]) == number
        elif not take and held:
            pool.free(held.pop(number % len(held)))
        in_use = [block for blocks in held for block in blocks]
        assert len(set(in_use)) == len(in_use) == size - pool.free_count
        assert set(in_use) <= set(range(size))
        assert pool.can_allocate(pool.free_count) and not pool.can_allocate(pool.free_count + 1)


def test_freeing_twice_or_taking_too_much_is_our_own_mistake():
    pool = BlockPool(2)
    blocks = pool.allocate(2)
    with pytest.raises(AssertionError):
        pool.allocate(1)
    pool.free(blocks)
    with pytest.raises(AssertionError):
        pool.free(blocks[:1])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_sequence_reads_what_it_wrote_in_any_blocks_and_any_portions(data):
    total = data.draw(st.integers(1, 4 * BLOCK_TOKENS))
    needed = -(-total // BLOCK_TOKENS)
    table = tuple(data.draw(st.permutations(range(6)))[:needed])
    cuts = sorted(data.draw(st.sets(st.integers(1, total), max_size=4)) | {total})
    cache = PagedCache(TINY, 6, torch.float32, "cpu")
    written = torch.randn(total, 2 * KV_HEADS, HEAD_DIM, generator=torch.Generator().manual_seed(total))
    start = 0
    for stop in cuts:
        plan = cache.plan(Step(tuple(range(start, stop)), (Span(table, start, stop - start),)))
        assert plan.positions.tolist() == list(range(start, stop)) and plan.last_rows.tolist() == [stop - start - 1]
        cache.write(1, plan.slots, written[start:stop])
        keys, values = cache.read(1, plan.readings[0])
        assert torch.equal(keys, written[:stop, :KV_HEADS].transpose(0, 1))
        assert torch.equal(values, written[:stop, KV_HEADS:].transpose(0, 1))
        start = stop
    assert not cache.layers[0].any(), "another layer was written"


def test_sequences_of_one_step_do_not_touch_each_other():
    cache = PagedCache(TINY, 4, torch.float32, "cpu")
    first, second = Span((2, 0), 0, 20), Span((3,), 0, 5)
    plan = cache.plan(Step(tuple(range(25)), (first, second)))
    assert len(set(plan.slots.tolist())) == 25
    assert plan.last_rows.tolist() == [19, 24]
    cache.write(0, plan.slots, torch.arange(25.0)[:, None, None].expand(25, 2 * KV_HEADS, HEAD_DIM))
    keys, _ = cache.read(0, plan.readings[1])
    assert keys[0, :, 0].tolist() == [20, 21, 22, 23, 24]
    keys, _ = cache.read(0, plan.readings[0])
    assert keys[0, :, 0].tolist() == list(range(20))


def test_a_block_table_that_is_too_short_is_our_own_mistake():
    cache = PagedCache(TINY, 4, torch.float32, "cpu")
    with pytest.raises(AssertionError):
        cache.plan(Step((1,), (Span((0,), BLOCK_TOKENS, 1),)))
