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
    pytest.param({"heads": 5, "kv_heads": 1}, id="dense, attention replicated"),
    pytest.param({"heads": 8, "kv_heads": 4}, id="dense, as many key-value heads as ranks or more"),
    pytest.param({}, id="dense, three key-value heads"),
    pytest.param({"heads": 8, "kv_heads": 2}, id="dense, ranks share a key-value head"),
    pytest.param({"ffn": 50, "vocab": 62}, id="neurons and a vocabulary that do not divide"),
    pytest.param({"ffn": 96}, id="neurons in blocks"),
    pytest.param({"vocab": 61, "tied_embeddings": False}, id="a head of its own that does not divide"),
    pytest.param({"qkv_bias": True, "out_bias": True}, id="biases"),
    pytest.param({"qk_norm": "head"}, id="norms by head"),
    pytest.param({"qk_norm": "width", "qkv_clip": 1.0}, id="norms over all heads"),
    pytest.param({"sinks": True, "windows": (4, 0)}, id="sinks and a window"),
    pytest.param({"post_norms": True, "attention_cap": 3.0, "attention_scale": 0.2}, id="post norms and capped scores"),
    pytest.param({"embedding_scale": 3.0, "residual_scale": 0.5, "logit_scale": 0.2}, id="scales"),
    pytest.param(EXPERTS, id="experts"),
    pytest.param(EXPERTS | {"virtual_groups": 2, "routed_scaling": 2.0}, id="virtual groups"),
    pytest.param(EXPERTS | {"renormalised": False, "activation": "gelu_tanh"}, id="gates as they are"),
    pytest.param(EXPERTS | {"shared_ffn": 40}, id="a shared expert"),
    pytest.param(EXPERTS | {"dense_layers": (0,)}, id="a dense layer among experts"),
    pytest.param(
        EXPERTS
        | {"router_bias": True, "expert_bias": True, "out_bias": True, "sinks": True}
        | {"activation": "clamped_swiglu", "swiglu_limit": 0.5},
        id="biases everywhere",
    ),
]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("changes", CASES)
def test_shards_compute_what_one_computes(changes, size):
    if "num_experts" in changes:
        changes = changes | {"num_experts": 12 if size == 3 else 8}
    prompt = [5, 9, 33, 60, 2, 2, 17, 41, 8, 50, 3, 12, 29, 44, 6, 1, 7]
    tokens, logits = greedy(tiny_model(**changes), prompt, 4)
    for sharded_tokens, sharded_logits, _, _ in sharded_greedy(size, changes, prompt, 4, pack=size == 2):
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


def test_a_shard_holds_its_part_only_and_sums_once_a_block():
    whole = tiny_model(**EXPERTS)
    for rank, (_, _, model, collective) in enumerate(sharded_greedy(4, EXPERTS, [1, 2, 3], 1)):
        assert collective.sums == model.config.layers, "attention is replicated: one sum for the experts"
        for mine, theirs in zip(model.layers, whole.layers, strict=True):
            assert list(mine.ffn.experts) == [str(rank * 2), str(rank * 2 + 1)]
            held = mine.ffn.experts[str(rank * 2 + 1)].up.weight
            assert torch.equal(held, theirs.ffn.experts[str(rank * 2 + 1)].up.weight)
        assert model.head.weight.shape == (16, 32) and model.head.weight.untyped_storage().nbytes() == 16 * 32 * 4
    for _, _, model, collective in sharded_greedy(2, EXPERTS | {"shared_ffn": 40}, [1, 2, 3], 1):
        assert collective.sums == 2 * model.config.layers, "one for attention, one for the experts and the shared one"


@pytest.mark.parametrize(
    ("heads", "kv_heads", "size", "held"),
    [
        (8, 4, 2, [(4, 2), (4, 2)]),
        (6, 3, 2, [(2, 1), (4, 2)]),
        (8, 2, 4, [(2, 1)] * 4),
        (6, 1, 4, [(6, 1)] * 4),  # six query heads do not divide over four ranks
        (8, 2, 3, [(8, 2)] * 3),  # nor three ranks over two key-value heads
    ],
)
def test_which_heads_a_rank_holds_and_caches(heads, kv_heads, size, held):
    results = sharded_greedy(size, {"heads": heads, "kv_heads": kv_heads}, [1, 2, 3], 1)
    for (_, _, model, _), expected in zip(results, held, strict=True):
        assert (model.config.heads, model.config.kv_heads) == expected
        assert PagedCache(model.config, 1, torch.float32, "cpu").layers[0].shape == (16, 2 * expected[1], 8)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_parts_that_are_returned_are_what_is_left(size):
    """On a model without values too, as a checkpoint is loaded."""
    changes = EXPERTS | {
        "heads": 8,
        "kv_heads": 4,
        "num_experts": 12,
        "qkv_bias": True,
        "out_bias": True,
        "sinks": True,
        "shared_ffn": 40,
    }
    whole = dict(tiny_model(**changes).named_parameters())

    def work(collective):
        model, empty = tiny_model(**changes), tiny_model(**changes).to("meta")
        parts = apply_sharding(model, collective)
        assert apply_sharding(empty, collective) == parts
        held = dict(model.named_parameters())
        assert {n: p.shape for n, p in empty.named_parameters()} == {n: p.shape for n, p in held.items()}
        for name, parameter in held.items():
            part = parts.get(name)
            assert torch.equal(parameter, whole[name] if part is None else part.of(whole[name])), name
        return held

    shards = on_ranks(size, work)
    assert sum("layers.0.attention.out.bias" in held for held in shards) == 1
    assert sum(sum(".experts." in name for name in held) for held in shards) == 2 * 12 * 3


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


def test_what_goes_wrong_on_one_rank_is_left_out_on_all():
    prompt = list(range(1, 20))
    step = Step(tuple(prompt), (Span((0, 1), 0, len(prompt)),), guarded=True)

    def damaged(collective=None):
        model = tiny_model(**EXPERTS)
        model.layers[1].ffn.experts["6"].up.weight[3] = torch.nan
        if collective is not None:
            apply_sharding(model, collective)
        logits = model(step, PagedCache(model.config, 2, torch.float32, "cpu"))
        return logits, model.faults

    logits, faults = damaged()
    assert set(faults) == {(1, 6)} and logits.isfinite().all()
    for sharded_logits, sharded_faults in on_ranks(2, damaged):
        assert sharded_faults == faults
        torch.testing.assert_close(sharded_logits, logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_experts": 6, "active_experts": 2}, "6 experts do not divide over 4 shards"),
        ({"ffn": 3}, "3 FFN neurons"),
    ],
)
def test_what_does_not_divide_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        apply_sharding(tiny_model(**changes), ThreadCollective(0, [None] * 4, threading.Barrier(4)))
