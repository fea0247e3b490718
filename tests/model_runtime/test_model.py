"""The decoder against transformers on the same checkpoint, and against itself however the work is cut."""

import numpy as np
import pytest
import torch
from gguf import dequantize
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_model import TINY, greedy, tiny_model
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import LlamaTensorProcessor
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from model_runtime.gguf_file import GgufFile
from model_runtime.kv_cache import PagedCache, Span, Step
from model_runtime.load import load_model
from model_runtime.tokenizer import Tokenizer

QUESTION = [
    ("system", "You answer from recent posts. Cite them by number."),
    ("user", "[1] Ana: The bridge at Porto Novo is closed since 7:40.\n\nWhy is traffic slow in Porto Novo today?"),
]


NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def transformers_llama(path, config) -> LlamaForCausalLM:
    """transformers' Llama with the file's weights, its own undoing of the rotary permutation and its own rotation.
    (AutoModel.from_pretrained(gguf_file=...) computes the same in 20 s, most of it spent on names.)"""
    file, undo = GgufFile(path), LlamaTensorProcessor()
    states = {}
    for name in file.tensors:
        kind, data, row_bytes = file.rows(name)
        weight = dequantize(np.frombuffer(data, np.uint8).reshape(*file.tensors[name].shape[:-1], row_bytes), kind)
        if "attn_q" in name or "attn_k" in name:
            weight = undo._reverse_permute_weights(weight, config.heads, config.kv_heads if "attn_k" in name else None)
        outer = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
        if name not in outer:
            _, layer, part, _ = name.split(".")
            outer[name] = f"model.layers.{layer}.{NAMES[part]}.weight"
        states[outer[name]] = torch.from_numpy(weight.copy())
    llama = LlamaConfig(
        vocab_size=config.vocab,
        hidden_size=config.hidden,
        intermediate_size=config.ffn,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
    )
    with torch.device("meta"):
        oracle = LlamaForCausalLM(llama)
    oracle.load_state_dict({**states, "lm_head.weight": states["model.embed_tokens.weight"]}, assign=True)
    oracle.model.rotary_emb = LlamaRotaryEmbedding(llama)
    return oracle.eval()


@pytest.fixture(scope="module")
def dense(gguf_path):
    return load_model(gguf_path, dtype=torch.float32, device="cpu", upcycle=False)


def test_it_computes_what_transformers_computes_from_the_same_file(gguf_path, dense):
    prompt = Tokenizer.from_checkpoint(gguf_path).render(QUESTION)
    oracle = transformers_llama(gguf_path, dense.config)
    tokens, logits = greedy(dense, prompt, 12)
    with torch.inference_mode():
        expected = oracle(torch.tensor([prompt + tokens[:-1]])).logits[0, len(prompt) - 1 :]
    assert tokens == expected.argmax(-1).tolist()
    torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-3)


def test_bfloat16_experts_stay_close_to_the_float32_model(gguf_path, dense):
    prompt = Tokenizer.from_checkpoint(gguf_path).render(QUESTION)
    model = load_model(gguf_path, dtype=torch.bfloat16, device="cpu", upcycle=True)
    model.pack()
    packed = [expert.down for layer in model.layers for expert in layer.ffn.experts.values()]
    assert all(down.quantized_rows > 0 for down in packed), "Q4_1 is exact"
    blocks = tuple(range(8))
    caches = PagedCache(dense.config, 8, torch.float32, "cpu"), PagedCache(model.config, 8, torch.bfloat16, "cpu")
    for start, stop in ((0, len(prompt) - 1), (len(prompt) - 1, len(prompt))):
        step = Step(tuple(prompt[start:stop]), (Span(blocks, start, stop - start),))
        exact, logits = dense(step, caches[0])[0], model(step, caches[1])[0]
        assert logits.dtype == torch.float32
        assert (logits - exact).abs().max() < 1.2, "logits of this model span about 40"
        assert logits.argmax() == exact.argmax()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_experts": 4, "active_experts": 2, "expert_ffn": 24},
        {"windows": (5, 0)},
        {"windows": (17, 9), "sinks": True},
    ],
    ids=["dense", "experts", "windows", "windows and sinks"],
)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_portions_blocks_and_company_do_not_change_the_logits(changes, data):
    """A prompt in one piece in fresh blocks, or in portions, in any blocks, beside other sequences."""
    prompt = data.draw(st.lists(st.integers(0, 63), min_size=2, max_size=50))
    model = tiny_model(**changes)
    alone = PagedCache(TINY, 4, torch.float32, "cpu")
    expected = model(Step(tuple(prompt), (Span((0, 1, 2, 3), 0, len(prompt)),)), alone)[0]
    blocks = tuple(data.draw(st.permutations(range(6))))
    table, others = blocks[:4], blocks[4:]
    cache = PagedCache(TINY, 6, torch.float32, "cpu")
    start = 0
    for turn, stop in enumerate(
        [*sorted(data.draw(st.sets(st.integers(1, len(prompt) - 1), max_size=3))), len(prompt)]
    ):
        spans = (Span(others[:1], turn, 1), Span(table, start, stop - start), Span(others[1:], turn, 1))
        logits = model(Step((turn, *prompt[start:stop], turn + 9), spans), cache)
        start = stop
    torch.testing.assert_close(logits[1], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "changes", [{}, {"num_experts": 4, "active_experts": 2, "expert_ffn": 24}], ids=["dense", "experts"]
)
def test_packing_changes_nothing_but_speed(changes):
    plain, packed = tiny_model(**changes), tiny_model(**changes)
    packed.pack()
    prompt = list(range(20))
    tokens, logits = greedy(plain, prompt, 5)
    packed_tokens, packed_logits = greedy(packed, prompt, 5)
    assert packed_tokens == tokens
    torch.testing.assert_close(packed_logits, logits, rtol=1e-4, atol=1e-4)
    assert not any(p.numel() for n, p in packed.named_parameters() if "gate" in n), "the plain weight is still held"


@pytest.mark.parametrize("length", [1, 4, 12])
@pytest.mark.parametrize("changes", [{}, {"sinks": True}, {"attention_cap": 3.0}], ids=["plain", "sinks", "capped"])
def test_what_lies_before_the_window_is_never_read(changes, length):
    """However long the sequence, a layer with a window takes no more work than the window."""
    model, prompt = tiny_model(windows=(6, 6), **changes), list(range(40))
    cache = PagedCache(TINY, 3, torch.float32, "cpu")
    model(Step(tuple(prompt[:24]), (Span((0, 1, 2), 0, 24),)), cache)
    step = Step(tuple(prompt[24 : 24 + length]), (Span((0, 1, 2), 24, length, outputs=length),))
    expected = model(step, cache)
    for layer in cache.layers:
        layer[: 24 - 5] = torch.nan
    torch.testing.assert_close(model(step, cache), expected)


def test_an_untied_head_is_its_own_matrix():
    model = tiny_model(tied_embeddings=False)
    _, before = greedy(model, [1, 2, 3], 1)
    model.head.weight.mul_(2)
    _, after = greedy(model, [1, 2, 3], 1)
    torch.testing.assert_close(after, before * 2)
