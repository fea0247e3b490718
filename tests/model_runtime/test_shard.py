"""Every number of shards computes what one computes. Ranks are threads here; their sum is taken behind a barrier."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_model import greedy, tiny_model

from model_runtime.kv_cache import PagedCache, Span, Step
from model_runtime.shard import apply_sharding

EXPERTS = {"num_experts": 8, "active_experts": 2, "expert_ffn": 16}


class ThreadCollective:
    """Every rank leaves its part at the barrier and takes all parts in the order of ranks."""

    def __init__(self, rank: int, parts: list, barrier: threading.Barrier) -> None:
        self.rank, self.size = rank, len(parts)
        self._parts, self._barrier = parts, barrier
        self.sums = 0

    def all_reduce(self, x):
        self.sums += 1
        return torch.stack(self.all_gather(x)).sum(0)

    def all_gather(self, x):
        self._parts[self.rank] = x
        self._barrier.wait(timeout=30)
        gathered = [part.clone() for part in self._parts]
        self._barrier.wait(timeout=30)
        return gathered


def on_ranks(size, work):
    """work(collective) of every rank, by rank. An exception in one breaks the barrier for all."""
    barrier, parts = threading.Barrier(size), [None] * size

    def run(rank):
        try:
            return work(ThreadCollective(rank, parts, barrier))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run, range(size)))


def sharded_greedy(size, changes, prompt, count, pack=False):
    def work(collective):
        model = tiny_model(**changes)
        apply_sharding(model, collective)
        if pack:
            model.pack()
        return *greedy(model, prompt, count), model, collective

    return on_ranks(size, work)


CASES = [
    pytest.param({}, id="dense, attention replicated"),
    pytest.param({"heads": 8, "kv_heads": 4}, id="dense, heads split"),
    pytest.param(EXPERTS, id="experts, attention replicated"),
    pytest.param(EXPERTS | {"heads": 8, "kv_heads": 4}, id="experts, heads split"),
    pytest.param(EXPERTS | {"virtual_groups": 2, "routed_scaling": 2.0}, id="virtual groups"),
    pytest.param(EXPERTS | {"vocab": 63, "tied_embeddings": False}, id="a vocabulary that does not divide"),
]


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("changes", CASES)
def test_shards_compute_what_one_computes(changes, size):
    prompt = [5, 9, 33, 60, 2, 2, 17, 41, 8, 50, 3, 12, 29, 44, 6, 1, 7]
    tokens, logits = greedy(tiny_model(**changes), prompt, 6)
    for sharded_tokens, sharded_logits, _, _ in sharded_greedy(size, changes, prompt, 6, pack=size == 2):
        assert sharded_tokens == tokens
        torch.testing.assert_close(sharded_logits, logits, rtol=1e-4, atol=1e-4)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), st.data())
def test_any_number_of_experts_that_divides(size, per_shard, data):
    experts = size * per_shard
    changes = {"num_experts": experts, "active_experts": data.draw(st.integers(1, experts)), "expert_ffn": 8}
    prompt = data.draw(st.lists(st.integers(0, 63), min_size=1, max_size=20))
    _, logits = greedy(tiny_model(**changes), prompt, 2)
    for _, sharded_logits, _, _ in sharded_greedy(size, changes, prompt, 2):
        torch.testing.assert_close(sharded_logits, logits, rtol=1e-4, atol=1e-4)


def test_ranks_get_the_same_bits():
    results = sharded_greedy(4, EXPERTS, [1, 2, 3], 4)
    assert all(torch.equal(results[0][1], logits) for _, logits, _, _ in results)


def test_a_shard_holds_its_part_only_and_sums_once_a_layer():
    whole = tiny_model(**EXPERTS)
    for rank, (_, _, model, collective) in enumerate(sharded_greedy(4, EXPERTS, [1, 2, 3], 1)):
        assert collective.sums == model.config.layers, "attention is replicated: one sum for the experts"
        for mine, theirs in zip(model.layers, whole.layers, strict=True):
            assert (mine.ffn.first, len(mine.ffn.experts)) == (rank * 2, 2)
            assert torch.equal(mine.ffn.experts[1].up.weight, theirs.ffn.experts[rank * 2 + 1].up.weight)
        assert model.head.weight.shape == (16, 32) and model.head.weight.untyped_storage().nbytes() == 16 * 32 * 4


def test_heads_split_shrink_the_cache():
    changes = {"heads": 8, "kv_heads": 4}
    for _, _, model, _ in sharded_greedy(2, changes, [1, 2, 3], 1):
        assert (model.config.heads, model.config.kv_heads) == (4, 2)
        assert PagedCache(model.config, 1, torch.float32, "cpu").layers[0].shape == (16, 2 * 2, 8)


def test_several_sequences_in_one_step():
    spans = (Span((0,), 0, 5), Span((1,), 0, 3), Span((2, 3), 0, 18))
    step = Step(tuple(range(26)), spans)

    def work(collective):
        model = tiny_model(**EXPERTS)
        apply_sharding(model, collective)
        return model(step, PagedCache(model.config, 4, torch.float32, "cpu"))

    whole = tiny_model(**EXPERTS)
    alone = whole(step, PagedCache(whole.config, 4, torch.float32, "cpu"))
    for logits in on_ranks(2, work):
        torch.testing.assert_close(logits, alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_experts": 6, "active_experts": 2}, "6 experts do not divide over 4 shards"),
        ({"ffn": 50}, "50 FFN neurons"),
    ],
)
def test_what_does_not_divide_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        apply_sharding(tiny_model(**changes), ThreadCollective(0, [None] * 4, threading.Barrier(4)))
