"""What a sequence wrote is what it reads, wherever its blocks lie."""

from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model_runtime.families import ModelConfig
from model_runtime.kv_cache import BLOCK_TOKENS, PagedCache, Span, Step

KV_HEADS, HEAD_DIM = 3, 8
TINY = ModelConfig(
    layers=2,
    hidden=32,
    heads=6,
    kv_heads=KV_HEADS,
    head_dim=HEAD_DIM,
    ffn=48,
    vocab=64,
    context_tokens=256,
    rms_eps=1e-5,
)


def scattered(runs: list[int], random: Random) -> tuple[int, ...]:
    """40 blocks as stretches of these lengths, and of one, in any order."""
    numbers, stretches = list(range(40)), []
    for length in [*runs, *[1] * 40]:
        if len(numbers) >= length:
            stretches.append([numbers.pop(0) for _ in range(length)])
    random.shuffle(stretches)
    return tuple(block for stretch in stretches for block in stretch)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_sequence_reads_what_it_wrote_in_any_blocks_and_any_portions(data):
    total = data.draw(st.integers(1, 12 * BLOCK_TOKENS))
    needed = -(-total // BLOCK_TOKENS)
    runs = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=12))
    table = scattered(runs, data.draw(st.randoms()))[:needed]
    cuts = sorted(data.draw(st.sets(st.integers(1, total), max_size=4)) | {total})
    cache = PagedCache(TINY, 40, torch.float32, "cpu")
    written = torch.randn(total, 2 * KV_HEADS, HEAD_DIM, generator=torch.Generator().manual_seed(total))
    start = 0
    for stop in cuts:
        plan = cache.plan(Step(tuple(range(start, stop)), (Span(table, start, stop - start),)))
        assert plan.positions.tolist() == list(range(start, stop)) and plan.output_rows.tolist() == [stop - start - 1]
        cache.write(1, plan.slots, written[start:stop])
        (reading,) = plan.readings
        assert sum(count for _, count in reading.runs) == stop == reading.total
        keys, values = cache.read(1, reading)
        assert torch.equal(keys, written[:stop, :KV_HEADS].transpose(0, 1))
        assert torch.equal(values, written[:stop, KV_HEADS:].transpose(0, 1))
        start = stop
    assert not cache.layers[0].any(), "another layer was written"


def test_sequences_of_one_step_do_not_touch_each_other():
    cache = PagedCache(TINY, 4, torch.float32, "cpu")
    first, second = Span((2, 0), 0, 20), Span((3,), 0, 5)
    plan = cache.plan(Step(tuple(range(25)), (first, second)))
    assert len(set(plan.slots.tolist())) == 25
    assert plan.output_rows.tolist() == [19, 24]
    cache.write(0, plan.slots, torch.arange(25.0)[:, None, None].expand(25, 2 * KV_HEADS, HEAD_DIM))
    keys, _ = cache.read(0, plan.readings[1])
    assert keys[0, :, 0].tolist() == [20, 21, 22, 23, 24]
    keys, _ = cache.read(0, plan.readings[0])
    assert keys[0, :, 0].tolist() == list(range(20))


def test_a_block_table_that_is_too_short_is_our_own_mistake():
    cache = PagedCache(TINY, 4, torch.float32, "cpu")
    with pytest.raises(AssertionError):
        cache.plan(Step((1,), (Span((0,), BLOCK_TOKENS, 1),)))


def test_neighbouring_blocks_are_one_run_and_read_in_place():
    cache = PagedCache(TINY, 8, torch.float32, "cpu")
    whole, halves = (
        cache.plan(Step(tuple(range(40)), (Span(table, 0, 40),))).readings[0] for table in ((3, 4, 5), (6, 1, 2))
    )
    assert whole.runs == ((48, 40),)
    assert cache.read(0, whole)[0].untyped_storage().data_ptr() == cache.layers[0].untyped_storage().data_ptr()
    assert halves.runs == ((96, 16), (16, 24))


def test_the_last_rows_of_a_span_are_its_outputs():
    cache = PagedCache(TINY, 4, torch.float32, "cpu")
    spans = Span((0,), 0, 5), Span((1,), 3, 4, outputs=4), Span((2,), 0, 3, outputs=0)
    assert cache.plan(Step(tuple(range(12)), spans)).output_rows.tolist() == [4, 5, 6, 7, 8]


def test_moves_are_made_in_order_in_every_layer_before_anything_is_written():
    cache = PagedCache(TINY, 6, torch.float32, "cpu")
    for stored in cache.layers:
        stored[:] = torch.arange(6.0).repeat_interleave(BLOCK_TOKENS)[:, None, None]
    plan = cache.plan(Step((1,), (Span((4,), 0, 1),), moves=((0, 2, 2), (3, 5, 1))))
    for layer, stored in enumerate(cache.layers):
        assert stored[::BLOCK_TOKENS, 0, 0].tolist() == [0, 1, 0, 1, 4, 1]
        cache.write(layer, plan.slots, torch.full((1, 2 * KV_HEADS, HEAD_DIM), 9.0))
        assert stored[4 * BLOCK_TOKENS, 0, 0] == 9
