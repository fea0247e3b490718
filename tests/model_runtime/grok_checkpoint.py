"""A scaled Grok-1 with random weights, in the layout of HPC-AI Tech's conversion."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from tiny_checkpoint import save_random

from model_runtime.families import scaled_grok

CONFIG = scaled_grok(kv_heads=1, head_dim=16, layers=3, vocab=64)

# As HPC-AI Tech's conversion has it.
PUBLISHED = {
    "architectures": ["Grok1ModelForCausalLM"],
    "model_type": "grok-1",
    "vocab_size": 131072,
    "hidden_size": 6144,
    "intermediate_size": 32768,
    "num_hidden_layers": 64,
    "num_attention_heads": 48,
    "num_key_value_heads": 8,
    "attn_output_multiplier": 0.08838834764831845,
    "max_attn_value": 30.0,
    "max_position_embeddings": 8192,
    "embedding_multiplier_scale": 78.38367176906169,
    "output_multiplier_scale": 0.5773502691896257,
    "rms_norm_eps": 1e-5,
    "num_experts_per_tok": 2,
    "num_experts": 8,
    "pad_token_id": 0,
    "torch_dtype": "bfloat16",
}


def random_tensors() -> dict[str, torch.Tensor]:
    """Embeddings small enough for the layers to count beside them, scores of the router large enough for a cap to bite,
    and experts small enough for the epsilon of the norm behind them to count: else that norm would undo any factor
    that a token's gates have in common."""
    generator = torch.Generator().manual_seed(11)

    def normal(*shape: int, scale: float) -> torch.Tensor:
        return torch.randn(shape, generator=generator) * scale

    hidden, inner, keys = CONFIG.hidden, CONFIG.expert_ffn, CONFIG.kv_heads * CONFIG.head_dim
    tensors = {
        "model.embed_tokens.weight": normal(CONFIG.vocab, hidden, scale=0.03),
        "model.norm.scale": 6 + normal(hidden, scale=2),
    }
    for layer in range(CONFIG.layers):
        own = {name: 1 + normal(hidden, scale=0.3) for name in ("pre_attn_norm", "post_attn_norm")}
        own |= {name: 1.5 + normal(hidden, scale=0.3) for name in ("pre_moe_norm", "post_moe_norm")}
        tensors |= {f"model.layers.{layer}.{name}.scale": value for name, value in own.items()}
        shapes = {"q": (hidden, hidden), "k": (keys, hidden), "v": (keys, hidden), "o": (hidden, hidden)}
        own = {f"attn.{name}_proj": normal(*shape, scale=0.3) for name, shape in shapes.items()}
        own["moe_block.gate"] = normal(CONFIG.num_experts, hidden, scale=0.7)
        for expert in range(CONFIG.num_experts):
            own[f"moe_block.experts.{expert}.linear"] = normal(inner, hidden, scale=0.1)
            own[f"moe_block.experts.{expert}.linear_v"] = normal(inner, hidden, scale=0.1)
            own[f"moe_block.experts.{expert}.linear_1"] = normal(hidden, inner, scale=1e-4)
        tensors |= {f"model.layers.{layer}.{name}.weight": value for name, value in own.items()}
    return tensors


def save_grok(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    save_file(tensors, folder / "model.safetensors")
    scaled = {
        "vocab_size": CONFIG.vocab,
        "hidden_size": CONFIG.hidden,
        "intermediate_size": CONFIG.expert_ffn,
        "num_hidden_layers": CONFIG.layers,
        "num_attention_heads": CONFIG.heads,
        "num_key_value_heads": CONFIG.kv_heads,
        "attn_output_multiplier": CONFIG.attention_scale,
        "max_position_embeddings": CONFIG.context_tokens,
    }
    (folder / "config.json").write_text(json.dumps(PUBLISHED | scaled))


def save_families(names: Sequence[str], make_folder: Callable[[str], Path]) -> dict[str, Path]:
    """A checkpoint of each name, in a folder of its own: "grok", or one of tiny_checkpoint.CHECKPOINTS."""
    made = {name: make_folder(name) for name in names}
    for name, folder in made.items():
        if name == "grok":
            save_grok(folder, random_tensors())
        else:
            save_random(folder, name)
    return made
