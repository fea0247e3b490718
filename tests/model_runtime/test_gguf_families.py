"""Each architecture of GGUF against transformers: the same weights in the file, the same logits."""

import numpy as np
import pytest
import torch
from gguf_writing import header_of, tensors_of, write_gguf
from grok_checkpoint import CONFIG, random_tensors
from reference_grok import grok_logits
from tiny_checkpoint import random_model, run_in_pieces

from model_runtime.gguf import open_gguf
from model_runtime.model import build_model
from model_runtime.weights import CheckpointError

IDS = torch.randint(3, 64, (30,), generator=torch.Generator().manual_seed(2)).tolist()
PIECES = (0, 7, 20, *range(21, 31))  # prefill in portions, then one token a step
_YARN = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 64,
}
_WIDTH = {"expert_feed_forward_length": 24}
_SCALES = {"embedding_scale": 3.0, "logit_scale": 2.5, "residual_scale": 0.4, "attention.scale": 0.2}

# name -> (architecture, what the header says besides header_of, how the model differs from the one in tiny_checkpoint)
FILES = {
    "llama": ("llama", {}, {}),
    "llama-biased-tied": ("llama", {"rope.dimension_count": 16}, {}),
    "llama-linear": ("llama", {"rope.scaling.type": "linear", "rope.scaling.factor": 3.0}, {}),
    "llama-yarn": ("llama", _YARN, {}),
    "mixtral": ("llama", {}, {}),
    "mixtral-windows": ("llama", {"attention.sliding_window": 5}, {}),
    "qwen2": ("qwen2", {}, {}),
    "qwen3": ("qwen3", {}, {"attention_bias": False}),
    "qwen2_moe": (
        "qwen2moe",
        _WIDTH | {"expert_shared_feed_forward_length": 40},
        {"decoder_sparse_step": 1},
    ),
    "qwen3_moe": ("qwen3moe", _WIDTH, {"mlp_only_layers": [], "norm_topk_prob": True}),
    "olmoe": ("olmoe", {}, {"clip_qkv": None}),
    "granitemoe": ("granitemoe", _SCALES, {}),
    "gpt_oss": ("gpt-oss", _YARN | {"attention.sliding_window": 5, "expert_feed_forward_length": 48}, {}),
}


def loaded(path):
    checkpoint = open_gguf(path)
    parameters = {name: weight.read(None).float() for name, weight in checkpoint.weights.items()}
    return build_model(checkpoint.config, parameters, "cpu")


def logits_of(model):
    with torch.inference_mode():
        return model(torch.tensor([IDS])).logits[0]


@pytest.mark.parametrize("name", FILES)
def test_the_logits_are_those_of_transformers(tmp_path, name):
    architecture, keys, changes = FILES[name]
    oracle = random_model(name, **changes)
    header, tensors = header_of(oracle.config) | keys, tensors_of(oracle, architecture)
    ours = loaded(write_gguf(tmp_path / "tiny.gguf", architecture, header, tensors))
    torch.testing.assert_close(run_in_pieces(ours, IDS, PIECES), logits_of(oracle), rtol=0, atol=1e-4)


def test_llama3s_frequency_factors(tmp_path):
    """In GGUF, a tensor says what each frequency is divided by."""
    oracle = random_model("llama-llama3")
    rotary = oracle.model.rotary_emb
    plain = 500.0 ** -(torch.arange(0, 16, 2, dtype=torch.float64) / 16)
    factors = (plain / rotary.inv_freq.double()).float().numpy()
    tensors = tensors_of(oracle, "llama") | {"rope_freqs.weight": factors}
    path = write_gguf(tmp_path / "tiny.gguf", "llama", header_of(oracle.config), tensors)
    expected = logits_of(oracle)
    torch.testing.assert_close(run_in_pieces(loaded(path), IDS, PIECES), expected, rtol=0, atol=1e-4)
    del tensors["rope_freqs.weight"]
    without = loaded(write_gguf(tmp_path / "without.gguf", "llama", header_of(oracle.config), tensors))
    assert (run_in_pieces(without, IDS, PIECES) - expected).abs().max() > 0.01


def test_experts_in_tensors_of_their_own(tmp_path):
    """As converters wrote Mixtral until the spring of 2024."""
    oracle = random_model("mixtral")
    tensors = {}
    for name, tensor in tensors_of(oracle, "llama").items():
        stem, merged, kind = name.partition("_exps.")
        tensors |= {f"{stem}.{e}.{kind}": part for e, part in enumerate(tensor)} if merged else {name: tensor}
    assert "blk.2.ffn_up.3.weight" in tensors
    path = write_gguf(tmp_path / "tiny.gguf", "llama", header_of(oracle.config), tensors)
    torch.testing.assert_close(run_in_pieces(loaded(path), IDS, PIECES), logits_of(oracle), rtol=0, atol=1e-4)


@pytest.mark.parametrize("last_norm", ["layer_output_norm", "post_ffw_norm"])
def test_grok_1_is_computed_as_published(tmp_path, last_norm):
    """Whatever the converter notes about the router: see test_grok for what another engine makes of it."""
    names = {
        "model.layers.": "blk.",
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.scale": "output_norm.weight",
        "pre_attn_norm.scale": "attn_norm.weight",
        "post_attn_norm.scale": "attn_output_norm.weight",
        "pre_moe_norm.scale": "ffn_norm.weight",
        "post_moe_norm.scale": f"{last_norm}.weight",
        "attn.q_proj": "attn_q",
        "attn.k_proj": "attn_k",
        "attn.v_proj": "attn_v",
        "attn.o_proj": "attn_output",
        "moe_block.gate": "ffn_gate_inp",
    }
    published = {name: tensor.double().numpy() for name, tensor in random_tensors().items()}
    tensors = {}
    for parameter, tensor in published.items():
        name = parameter
        for theirs, ours in names.items():
            name = name.replace(theirs, ours)
        if ".experts." not in name:
            tensors[name] = tensor.astype(np.float32)
    for layer in range(CONFIG.layers):
        for theirs, ours in {"linear": "gate", "linear_v": "up", "linear_1": "down"}.items():
            stem = f"model.layers.{layer}.moe_block.experts"
            experts = [published[f"{stem}.{expert}.{theirs}.weight"] for expert in range(8)]
            tensors[f"blk.{layer}.ffn_{ours}_exps.weight"] = np.stack(experts).astype(np.float32)
    header = {
        "block_count": CONFIG.layers,
        "context_length": CONFIG.context_tokens,
        "embedding_length": CONFIG.hidden,
        "feed_forward_length": CONFIG.ffn,
        "attention.head_count": CONFIG.heads,
        "attention.head_count_kv": CONFIG.kv_heads,
        "attention.layer_norm_rms_epsilon": CONFIG.rms_eps,
        "attention.output_scale": CONFIG.attention_scale,
        "expert_count": 8,
        "expert_used_count": 2,
        "router_logit_softcapping": 30.0,
    }
    ours = loaded(write_gguf(tmp_path / "grok.gguf", "grok", header, tensors))
    expected = torch.from_numpy(grok_logits(published, CONFIG, IDS)).float()
    torch.testing.assert_close(run_in_pieces(ours, IDS, PIECES), expected, rtol=0, atol=1e-4)
    with pytest.raises(CheckpointError, match="grok.final_logit_softcapping is 50.0: model.py does not compute that"):
        open_gguf(write_gguf(tmp_path / "2.gguf", "grok", header | {"final_logit_softcapping": 50.0}, tensors))
