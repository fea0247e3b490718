"""Tiny random checkpoints, made and saved by transformers: the oracle of test_families and test_safetensors.
And how those run our model."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from model_runtime.kv_cache import BLOCK_TOKENS, PagedCache, Span, Step
from model_runtime.model import Model

_SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 256,
    "eos_token_id": 2,
}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
_LOCAL_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 10000.0}
_LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}

# name -> (model_type, what its config says besides _SIZES). Windows of 5 are shorter than the prompts of the tests.
CHECKPOINTS: dict[str, tuple[str, dict[str, object]]] = {
    "llama": ("llama", {}),
    "llama-biased-tied": ("llama", {"attention_bias": True, "tie_word_embeddings": True, "head_dim": 16}),
    "llama-multi-head": ("llama", {"num_key_value_heads": None, "hidden_act": "gelu_pytorch_tanh"}),
    "llama-linear": ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 5000.0}}),
    "llama-yarn": ("llama", {"rope_parameters": _YARN}),
    "llama-yarn-length": ("llama", {"rope_parameters": _YARN | {"attention_factor": 1.7, "truncate": False}}),
    "llama-yarn-mscale": ("llama", {"rope_parameters": _YARN | {"mscale": 1.3, "mscale_all_dim": 0.6}}),
    "llama-llama3": (
        "llama",
        {"rope_parameters": _LLAMA3 | {"original_max_position_embeddings": 32, "rope_theta": 500.0}, "head_dim": 16},
    ),
    "qwen2": ("qwen2", {}),
    "qwen2-windows": ("qwen2", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}),
    "qwen3": ("qwen3", {"head_dim": 16, "attention_bias": True}),
    "qwen3-windows": (
        "qwen3",
        {
            "head_dim": 8,
            "use_sliding_window": True,
            "sliding_window": 5,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "mixtral": ("mixtral", _LOCAL_EXPERTS),
    "mixtral-windows": ("mixtral", _LOCAL_EXPERTS | {"sliding_window": 5, "tie_word_embeddings": True}),
    "olmoe": ("olmoe", _EXPERTS | {"clip_qkv": 0.8}),
    "olmoe-renormalised": ("olmoe", _EXPERTS | {"norm_topk_prob": True, "attention_bias": True}),
    "qwen2_moe": (
        "qwen2_moe",
        _EXPERTS | {"moe_intermediate_size": 24, "shared_expert_intermediate_size": 40, "decoder_sparse_step": 2},
    ),
    "qwen2_moe-windows": (
        "qwen2_moe",
        _EXPERTS
        | {"moe_intermediate_size": 24, "shared_expert_intermediate_size": 40, "norm_topk_prob": True}
        | {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 2, "qkv_bias": False},
    ),
    "qwen3_moe": ("qwen3_moe", _EXPERTS | {"moe_intermediate_size": 24, "head_dim": 16, "mlp_only_layers": [1]}),
    "qwen3_moe-windows": (
        "qwen3_moe",
        _EXPERTS
        | {"moe_intermediate_size": 24, "head_dim": 8, "norm_topk_prob": True, "attention_bias": True}
        | {"use_sliding_window": True, "sliding_window": 5},
    ),
    "granitemoe": (
        "granitemoe",
        _LOCAL_EXPERTS
        | {"embedding_multiplier": 3.0, "logits_scaling": 2.5, "residual_multiplier": 0.4, "attention_multiplier": 0.2}
        | {"attention_bias": True},
    ),
    "gpt_oss": (
        "gpt_oss",
        _LOCAL_EXPERTS | {"head_dim": 8, "sliding_window": 5, "rope_parameters": _YARN | {"truncate": False}},
    ),
    "gpt_oss-clamped": ("gpt_oss", _LOCAL_EXPERTS | {"head_dim": 16, "sliding_window": 5, "swiglu_limit": 0.5}),
}


def random_model(name: str, dtype: torch.dtype = torch.float32, **changes: object) -> PreTrainedModel:
    """transformers' model of CHECKPOINTS[name], every weight random, norms and biases too."""
    model_type, described = CHECKPOINTS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = AutoConfig.for_model(model_type, **(_SIZES | described | changes))
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            values = torch.randn(parameter.shape, generator=generator)
            if parameter_name.endswith("norm.weight"):
                values = 1 + 0.3 * values
            elif parameter.dim() > 1 and "embed_tokens" not in parameter_name:
                by_column = model_type == "gpt_oss" and "experts" in parameter_name and parameter.dim() == 3
                values *= 1.5 * parameter.shape[1 if by_column else -1] ** -0.5
            elif parameter.dim() == 1:
                values *= 0.5
            parameter.copy_(values)
    return model.to(dtype)


def save_random(folder: Path, name: str, dtype: torch.dtype = torch.float32, **changes: object) -> PreTrainedModel:
    model = random_model(name, dtype, **changes)
    model.save_pretrained(folder)
    return model


def run_in_pieces(model: Model, ids: Sequence[int], cuts: Sequence[int]) -> Tensor:
    """The logits of every token [T, V], computed from each cut to the next."""
    blocks = tuple(range(-(-len(ids) // BLOCK_TOKENS)))
    cache = PagedCache(model.config, len(blocks), model.embedding.dtype, model.embedding.device)
    steps = [
        Step(tuple(ids[start:stop]), (Span(blocks, start, stop - start, outputs=stop - start),))
        for start, stop in zip(cuts, cuts[1:], strict=False)
    ]
    return torch.cat([model(step, cache) for step in steps])
