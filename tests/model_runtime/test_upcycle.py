"""The upcycled model gives the dense model's answers, and its routing is real."""

from dataclasses import replace

import pytest
import torch
from tiny_model import TINY, random_tensors

from model_runtime.kv_cache import PagedCache, Span, Step
from model_runtime.load import load_model
from model_runtime.model import build_model
from model_runtime.tokenizer import Tokenizer
from model_runtime.upcycle import upcycle_dense
from model_runtime.weights import Checkpoint, Part, Weight

TEXT = (
    "The bridge at Porto Novo has been closed since 7:40 after a lorry hit the railing. Buses 14 and 22 are diverted. "
    "Police say nobody was hurt; engineers are looking at it. A ferry runs every twenty minutes until midnight. "
    "¿Cuándo abrirán el puente? Niemand weiß es. 橋はまだ通行止めです。 One lane opens at noon, says @city_works. "
    "I walked across it at six and it looked fine to me, so who knows. #portonovo #traffic https://example.org/bridge"
)


def checkpoint(tensors, config=TINY, read=None):
    """`read` gets the name of each parameter that is read."""
    read = [] if read is None else read

    def weight(name, tensor):
        def get(part):
            read.append(name)
            return tensor if part is None else part.of(tensor)

        return Weight(tuple(tensor.shape), get)

    return Checkpoint(config, {name: weight(name, tensor) for name, tensor in tensors.items()})


def test_it_gives_the_dense_models_logits_and_uses_every_expert(gguf_path):
    upcycled = load_model(gguf_path, dtype=torch.float32, device="cpu", upcycle=True)
    ids = Tokenizer.from_checkpoint(gguf_path).encode(TEXT)
    blocks = tuple(range(-(-len(ids) // 16)))
    dense = load_model(gguf_path, dtype=torch.float32, device="cpu", upcycle=False)
    steps = [
        Step(tuple(ids[:-1]), (Span(blocks, 0, len(ids) - 1),)),
        Step(tuple(ids[-1:]), (Span(blocks, len(ids) - 1, 1),)),
    ]
    caches = [PagedCache(model.config, len(blocks), torch.float32, "cpu") for model in (dense, upcycled)]
    used = []
    for step in steps:
        expected, logits = dense(step, caches[0]), upcycled(step, caches[1])
        assert (logits - expected).abs().max() <= 1e-5 * expected.abs().max()
        used.append(upcycled.routes)
    for layer, chosen in enumerate(used[0]):
        counts = chosen.flatten().bincount(minlength=8)
        assert (counts > 0).all(), f"layer {layer} sends {len(ids)} tokens to {counts.tolist()}"
        assert (chosen[:, 0] + 4 == chosen[:, 1]).all(), "not one copy of each half"


def test_experts_are_copies_of_the_halves_in_order():
    tensors = random_tensors(TINY, 0)
    upcycled = upcycle_dense(checkpoint(tensors))
    config, weights = upcycled.config, upcycled.weights
    assert (config.num_experts, config.active_experts, config.expert_ffn) == (8, 2, TINY.ffn // 2)
    for expert in range(8):
        half = slice(0, 24) if expert < 4 else slice(24, 48)
        for name, dim in (("gate", 0), ("up", 0), ("down", 1)):
            weight, whole = (
                weights[f"layers.1.ffn.experts.{expert}.{name}.weight"],
                tensors[f"layers.1.ffn.{name}.weight"],
            )
            expected = whole[half] if dim == 0 else whole[:, half]
            assert weight.shape == expected.shape and torch.equal(weight.read(None), expected)
            assert torch.equal(weight.read(Part(dim, ((3, 20),))), expected.narrow(dim, 3, 17))
            assert torch.equal(weight.read(Part(1 - dim, ((0, 5),))), expected.narrow(1 - dim, 0, 5))
    build_model(config, {name: weight.read(None) for name, weight in weights.items()}, "cpu")


def test_a_half_is_read_once_for_its_four_copies():
    read = []
    weights = upcycle_dense(checkpoint(random_tensors(TINY, 0), read=read)).weights
    assert not read
    for expert in range(8):
        for name in ("gate", "up", "down"):
            weights[f"layers.0.ffn.experts.{expert}.{name}.weight"].read(None)
    assert sorted(read) == [f"layers.0.ffn.{name}.weight" for name in ("down", "down", "gate", "gate", "up", "up")]


def test_the_router_is_the_same_every_time():
    name = "layers.0.ffn.router.score.weight"
    routers = [upcycle_dense(checkpoint(random_tensors(TINY, 0))).weights[name].read(None) for _ in range(2)]
    assert torch.equal(*routers)
    assert routers[0].shape == (4, TINY.hidden)


def test_an_ffn_that_cannot_be_halved_is_refused():
    odd = replace(TINY, ffn=47)
    with pytest.raises(ValueError, match="47 neurons"):
        upcycle_dense(checkpoint(random_tensors(odd, 0), odd))
