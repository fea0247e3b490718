"""The upcycled model gives the dense model's answers, and its routing is real."""

from dataclasses import replace

import pytest
import torch
from tiny_model import TINY, random_tensors

from model_runtime.kv_cache import PagedCache, Span, Step
from model_runtime.model import build_model, load_model
from model_runtime.tokenizer import Tokenizer
from model_runtime.upcycle import upcycle_dense

TEXT = (
    "The bridge at Porto Novo has been closed since 7:40 after a lorry hit the railing. Buses 14 and 22 are diverted. "
    "Police say nobody was hurt; engineers are looking at it. A ferry runs every twenty minutes until midnight. "
    "¿Cuándo abrirán el puente? Niemand weiß es. 橋はまだ通行止めです。 One lane opens at noon, says @city_works. "
    "I walked across it at six and it looked fine to me, so who knows. #portonovo #traffic https://example.org/bridge"
)


def test_it_gives_the_dense_models_logits_and_uses_every_expert(gguf_path):
    upcycled = load_model(gguf_path, dtype=torch.float32, device="cpu", upcycle=True)
    ids = Tokenizer.from_gguf(gguf_path).encode(TEXT)
    blocks = tuple(range(-(-len(ids) // 16)))
    used: list[torch.Tensor] = []
    for layer in upcycled.layers:
        layer.ffn.router.register_forward_hook(lambda _router, _inputs, output: used.append(output[1]))
    dense = load_model(gguf_path, dtype=torch.float32, device="cpu", upcycle=False)
    steps = [
        Step(tuple(ids[:-1]), (Span(blocks, 0, len(ids) - 1),)),
        Step(tuple(ids[-1:]), (Span(blocks, len(ids) - 1, 1),)),
    ]
    caches = [PagedCache(model.config, len(blocks), torch.float32, "cpu") for model in (dense, upcycled)]
    for step in steps:
        expected, logits = dense(step, caches[0]), upcycled(step, caches[1])
        assert (logits - expected).abs().max() <= 1e-5 * expected.abs().max()
    for layer, chosen in enumerate(used[: upcycled.config.layers]):
        counts = chosen.flatten().bincount(minlength=8)
        assert (counts > 0).all(), f"layer {layer} sends {len(ids)} tokens to {counts.tolist()}"
        assert (chosen[:, 0] + 4 == chosen[:, 1]).all(), "not one copy of each half"


def test_experts_are_copies_of_the_halves_in_order():
    config, tensors = TINY, random_tensors(TINY, 0)
    whole = tensors["layers.1.ffn.gate.weight"], tensors["layers.1.ffn.down.weight"]
    upcycled, tensors = upcycle_dense(config, tensors)
    assert (upcycled.num_experts, upcycled.active_experts, upcycled.expert_ffn) == (8, 2, config.ffn // 2)
    for expert in range(8):
        half = slice(0, 24) if expert < 4 else slice(24, 48)
        assert torch.equal(tensors[f"layers.1.ffn.experts.{expert}.gate.weight"], whole[0][half])
        assert torch.equal(tensors[f"layers.1.ffn.experts.{expert}.down.weight"], whole[1][:, half])
    pointers = {tensor.untyped_storage().data_ptr() for name, tensor in tensors.items() if ".experts." in name}
    assert len(pointers) == 2 * 8 * 3, "experts share memory: they are views, not copies"
    build_model(upcycled, tensors, "cpu")


def test_the_router_is_the_same_every_time():
    routers = [upcycle_dense(TINY, random_tensors(TINY, 0))[1]["layers.0.ffn.router.score.weight"] for _ in range(2)]
    assert torch.equal(*routers)
    assert routers[0].shape == (4, TINY.hidden)


def test_an_ffn_that_cannot_be_halved_is_refused():
    odd = replace(TINY, ffn=47)
    with pytest.raises(ValueError, match="47 neurons"):
        upcycle_dense(odd, random_tensors(odd, 0))
