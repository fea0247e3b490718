"""Tiny GGUF files, written by the gguf package: as they come, or from transformers' models as llama.cpp's converter
names and arranges them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor

TOKENS = [f"t{number}" for number in range(60)] + ["a", "b", "ab", "<|im_end|>"]

Tensors = dict[str, np.ndarray]


def write_gguf(path: Path, architecture: str, header: Mapping[str, Any], tensors: Tensors) -> Path:
    """Keys of the header without the architecture in front; those that are None are left out."""
    writer = gguf.GGUFWriter(path, architecture)
    for name, value in header.items():
        if value is not None:
            adders = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
            adders[type(value)](f"{architecture}.{name}", value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([1] * (len(TOKENS) - 1) + [3])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(len(TOKENS) - 1)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def header_of(config: Any) -> dict[str, Any]:
    """What every decoder has, from transformers' config."""
    return {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": getattr(config, "head_dim", None),
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.freq_base": float(config.rope_parameters["rope_theta"]),
        "expert_used_count": getattr(config, "num_experts_per_tok", None),
        "expert_count": getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None),
    }


_NAMES = {
    "model.embed_tokens.": "token_embd.",
    "model.norm.": "output_norm.",
    "lm_head.": "output.",
    "model.layers.": "blk.",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.sinks": "attn_sinks.weight",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "block_sparse_moe.": "mlp.",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate.": "ffn_gate_inp.",
    "mlp.router.": "ffn_gate_inp.",
    "mlp.experts.down_proj_bias": "ffn_down_exps.bias",
    "mlp.experts.down_proj": "ffn_down_exps.weight",
    "mlp.experts.gate_up_proj_bias": "ffn_gate_up_exps.bias",
    "mlp.experts.gate_up_proj": "ffn_gate_up_exps.weight",
}


def tensors_of(model: torch.nn.Module, architecture: str) -> Tensors:
    found: dict[str, Tensor] = {}
    for parameter, tensor in model.named_parameters():
        name = parameter
        for theirs, ours in _NAMES.items():
            name = name.replace(theirs, ours)
        if architecture == "gpt-oss":
            name = name.replace("ffn_norm", "post_attention_norm")
        if architecture in ("llama", "granitemoe") and ("attn_q." in name or "attn_k." in name):
            heads = model.config.num_attention_heads if "attn_q" in name else model.config.num_key_value_heads
            tensor = tensor.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)
        found |= _separated(name, tensor.detach(), by_column=architecture == "gpt-oss")
    return {name: tensor.contiguous().numpy() for name, tensor in found.items()}


def _separated(name: str, tensor: Tensor, by_column: bool) -> list[tuple[str, Tensor]]:
    if "_exps.weight" in name and by_column:
        tensor = tensor.transpose(1, 2)
    if "gate_up" not in name:
        return [(name, tensor)]
    parts = (tensor[:, ::2], tensor[:, 1::2]) if by_column else tensor.chunk(2, dim=1)
    return [(name.replace("gate_up", part), values) for part, values in zip(("gate", "up"), parts, strict=True)]
