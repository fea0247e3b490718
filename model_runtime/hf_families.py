"""How Hugging Face checkpoints of each supported `model_type` are written: keys of config.json, names of tensors. Data
only: config_json.py and safetensors_checkpoint.py read by it. Names and defaults as in transformers 5."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

_ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh"}


@dataclass(frozen=True, slots=True)
class ExpertNames:
    """How a layer's router and experts are named, after the layer's prefix. Either each expert has tensors of its own
    (`{expert}` is its number), or one tensor holds all of them: `gate_up` [E, 2F, D], gate rows before up rows, and
    `down` [E, D, F]; `by_column`: [E, D, 2F], gate and up columns by turns, and [E, F, D]."""

    router: str
    down: str
    gate: str = ""
    up: str = ""
    gate_up: str = ""
    by_column: bool = False
    router_bias: str = ""
    gate_up_bias: str = ""
    down_bias: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """How one `model_type` of Hugging Face's config.json writes down a decoder. Rotary pairs are stored as
    (i, i + head_dim / 2).

    `keys` and `inverted`: fields of ModelConfig -> the keys of config.json that hold them or their reciprocals, the
    first that is there; `defaults`: what an absent or null key means; `fixed`: what config.json does not say.
    `layer`: parameters of a layer but for its experts -> the tensors that are stacked into them by rows."""

    layer: Mapping[str, tuple[str, ...]]
    keys: Mapping[str, tuple[str, ...]]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    inverted: Mapping[str, str] = field(default_factory=dict)
    experts: tuple[ExpertNames, ...] = ()  # layouts in use; a checkpoint has one of them
    activations: Mapping[str, str] = field(default_factory=_ACTIVATIONS.copy)  # hidden_act -> ModelConfig.activation
    hidden_act: str = "silu"  # if config.json has none
    rope_base: float = 10_000.0  # likewise
    rope_scaling: Mapping[str, Any] = field(default_factory=dict)  # likewise
    windows: Literal["none", "all", "late", "early_even", "even"] = "none"  # layers with a window, without layer_types
    window_switch: bool = False  # only if use_sliding_window
    sparse_layers: bool = False  # decoder_sparse_step and mlp_only_layers say which layers have experts
    embedding: str = "model.embed_tokens.weight"
    final_norm: str = "model.norm.weight"
    head: str = "lm_head.weight"
    prefix: str = "model.layers.{layer}."


_KEYS = {
    "layers": ("num_hidden_layers",),
    "hidden": ("hidden_size",),
    "heads": ("num_attention_heads",),
    "kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "ffn": ("intermediate_size",),
    "vocab": ("vocab_size",),
    "context_tokens": ("max_position_embeddings",),
    "rms_eps": ("rms_norm_eps",),
    "tied_embeddings": ("tie_word_embeddings",),
}
_BIASES = {"qkv_bias": ("attention_bias",), "out_bias": ("attention_bias",)}
_EXPERTS = {"num_experts": ("num_local_experts", "num_experts"), "active_experts": ("num_experts_per_tok",)}
_MOE_FFN = {"expert_ffn": ("moe_intermediate_size",), "renormalised": ("norm_topk_prob",)}
_LAYER = {
    "attention_norm.weight": ("input_layernorm.weight",),
    "ffn_norm.weight": ("post_attention_layernorm.weight",),
    "attention.qkv.weight": ("self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"),
    "attention.qkv.bias": ("self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"),
    "attention.out.weight": ("self_attn.o_proj.weight",),
    "attention.out.bias": ("self_attn.o_proj.bias",),
    "attention.query_norm.weight": ("self_attn.q_norm.weight",),
    "attention.key_norm.weight": ("self_attn.k_norm.weight",),
    "attention.sinks": ("self_attn.sinks",),
    "ffn.gate.weight": ("mlp.gate_proj.weight",),
    "ffn.up.weight": ("mlp.up_proj.weight",),
    "ffn.down.weight": ("mlp.down_proj.weight",),
    "ffn.shared.gate.weight": ("mlp.shared_expert.gate_proj.weight",),
    "ffn.shared.up.weight": ("mlp.shared_expert.up_proj.weight",),
    "ffn.shared.down.weight": ("mlp.shared_expert.down_proj.weight",),
    "ffn.shared_gate.weight": ("mlp.shared_expert_gate.weight",),
}
_SEPARATE = ExpertNames(
    router="mlp.gate.weight",
    gate="mlp.experts.{expert}.gate_proj.weight",
    up="mlp.experts.{expert}.up_proj.weight",
    down="mlp.experts.{expert}.down_proj.weight",
)
# transformers 5 holds the experts of a layer in one tensor; save_pretrained(save_original_format=False) stores it so.
_FUSED = ExpertNames("mlp.gate.weight", "mlp.experts.down_proj", gate_up="mlp.experts.gate_up_proj")
_MIXTRAL = ExpertNames(
    router="block_sparse_moe.gate.weight",
    gate="block_sparse_moe.experts.{expert}.w1.weight",
    up="block_sparse_moe.experts.{expert}.w3.weight",
    down="block_sparse_moe.experts.{expert}.w2.weight",
)
_GRANITE = ExpertNames(
    router="block_sparse_moe.router.layer.weight",
    gate_up="block_sparse_moe.input_linear.weight",
    down="block_sparse_moe.output_linear.weight",
)
_GRANITE_FUSED = ExpertNames(
    router="block_sparse_moe.router.weight",
    gate_up="block_sparse_moe.experts.gate_up_proj",
    down="block_sparse_moe.experts.down_proj",
)
_GPT_OSS = ExpertNames(
    router="mlp.router.weight",
    router_bias="mlp.router.bias",
    gate_up="mlp.experts.gate_up_proj",
    gate_up_bias="mlp.experts.gate_up_proj_bias",
    down="mlp.experts.down_proj",
    down_bias="mlp.experts.down_proj_bias",
    by_column=True,
)

# The published JAX checkpoint of Grok-1 is a pickle. Its conversions by HPC-AI Tech, which vLLM reads too, use these.
_GROK = Family(
    keys=_KEYS
    | _EXPERTS
    | {
        "num_experts": ("num_experts", "num_local_experts"),
        "expert_ffn": ("intermediate_size",),
        "embedding_scale": ("embedding_multiplier_scale",),
        "logit_scale": ("output_multiplier_scale",),
        "attention_scale": ("attn_output_multiplier",),
        "attention_cap": ("max_attn_value",),
    },
    defaults={"tied_embeddings": True, "attention_cap": 30.0},
    fixed={"post_norms": True, "renormalised": False, "float32_router": True},
    activations={"gelu": "gelu_tanh", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"},  # jax.nn.gelu's
    hidden_act="gelu",
    layer={
        "attention_norm.weight": ("pre_attn_norm.scale",),
        "attention_post_norm.weight": ("post_attn_norm.scale",),
        "ffn_norm.weight": ("pre_moe_norm.scale",),
        "ffn_post_norm.weight": ("post_moe_norm.scale",),
        "attention.qkv.weight": ("attn.q_proj.weight", "attn.k_proj.weight", "attn.v_proj.weight"),
        "attention.out.weight": ("attn.o_proj.weight",),
    },
    experts=(
        ExpertNames(
            router="moe_block.gate.weight",
            gate="moe_block.experts.{expert}.linear.weight",
            up="moe_block.experts.{expert}.linear_v.weight",
            down="moe_block.experts.{expert}.linear_1.weight",
        ),
    ),
    final_norm="model.norm.scale",
)

FAMILIES: Mapping[str, Family] = {
    "llama": Family(_LAYER, _KEYS | _BIASES),
    "qwen2": Family(_LAYER, _KEYS, fixed={"qkv_bias": True}, windows="late", window_switch=True),
    "qwen3": Family(
        _LAYER,
        _KEYS | _BIASES,
        fixed={"qk_norm": "head"},
        defaults={"head_dim": 128},
        windows="late",
        window_switch=True,
    ),
    "mixtral": Family(
        _LAYER,
        _KEYS | _EXPERTS | {"expert_ffn": ("intermediate_size",)},
        rope_base=1e6,
        windows="all",
        experts=(_MIXTRAL, _FUSED),
    ),
    "olmoe": Family(
        _LAYER,
        _KEYS
        | _BIASES
        | _EXPERTS
        | {"expert_ffn": ("intermediate_size",), "renormalised": ("norm_topk_prob",), "qkv_clip": ("clip_qkv",)},
        fixed={"qk_norm": "width"},
        defaults={"renormalised": False, "qkv_clip": 0.0},
        experts=(_SEPARATE, _FUSED),
    ),
    "qwen2_moe": Family(
        _LAYER,
        _KEYS | _EXPERTS | _MOE_FFN | {"qkv_bias": ("qkv_bias",), "shared_ffn": ("shared_expert_intermediate_size",)},
        defaults={"renormalised": False, "qkv_bias": True},
        windows="early_even",
        window_switch=True,
        sparse_layers=True,
        experts=(_SEPARATE, _FUSED),
    ),
    "qwen3_moe": Family(
        _LAYER,
        _KEYS | _BIASES | _EXPERTS | _MOE_FFN,
        fixed={"qk_norm": "head"},
        defaults={"renormalised": False},
        windows="all",
        window_switch=True,
        sparse_layers=True,
        experts=(_SEPARATE, _FUSED),
    ),
    "granitemoe": Family(
        _LAYER,
        _KEYS
        | _BIASES
        | _EXPERTS
        | {
            "expert_ffn": ("intermediate_size",),
            "embedding_scale": ("embedding_multiplier",),
            "residual_scale": ("residual_multiplier",),
            "attention_scale": ("attention_multiplier",),
        },
        defaults={"embedding_scale": 1.0, "residual_scale": 1.0, "attention_scale": 1.0},
        inverted={"logit_scale": "logits_scaling"},
        experts=(_GRANITE, _GRANITE_FUSED),
    ),
    "gpt_oss": Family(
        _LAYER,
        _KEYS | _BIASES | _EXPERTS | {"expert_ffn": ("intermediate_size",), "swiglu_limit": ("swiglu_limit",)},
        fixed={"sinks": True, "router_bias": True, "expert_bias": True},
        defaults={"head_dim": 64, "qkv_bias": True, "out_bias": True, "swiglu_limit": 7.0},
        activations={"silu": "clamped_swiglu"},
        rope_base=150_000.0,
        rope_scaling={"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False},
        windows="even",
        experts=(_GPT_OSS,),
    ),
    "grok-1": _GROK,
    "grok1": _GROK,
}
