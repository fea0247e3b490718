"""Model families as data: what a checkpoint's names mean to the one decoder in model.py. Knows no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position embedding. `scaling` stretches it to contexts longer than `original_context_tokens`, as
    transformers defines each kind (modeling_rope_utils); only the fields of that kind count."""

    base: float = 10_000.0
    scaling: Literal["none", "linear", "dynamic", "yarn", "llama3"] = "none"
    factor: float = 1.0
    original_context_tokens: int = 0
    beta_fast: float = 32.0  # yarn
    beta_slow: float = 1.0  # yarn
    truncate: bool = True  # yarn: whole dimensions as bounds of the ramp
    attention_factor: float = 1.0  # yarn: length of the rotated queries and keys
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0  # llama3


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder as numbers. model.py computes exactly what this says and knows no family by name.

    `ffn` is the inner width of a dense FFN, `expert_ffn` that of one expert; `num_experts` 0 means dense throughout.
    What a shard holds of it is in its modules (shard.py), not here."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context_tokens: int
    rms_eps: float
    rope: Rope = Rope()
    tied_embeddings: bool = False

    # attention
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: Literal["none", "head", "width"] = "none"  # RMS norm of queries and keys: per head, or over all heads
    qkv_clip: float = 0.0  # OLMoE: queries, keys and values are cut off at +-this; 0: not
    attention_scale: float = 0.0  # of the scores; 0: head_dim ** -0.5
    attention_cap: float = 0.0  # Grok-1: scores become cap * tanh(score / cap); 0: not
    sinks: bool = False  # gpt-oss: one learned score per head that takes part in the softmax and has no value
    windows: tuple[int, ...] = ()  # by layer: how many positions a token sees, itself included; 0: all. Empty: all 0

    # around the blocks
    post_norms: bool = False  # Grok-1: norms after attention and FFN too, before they are added
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0

    # FFN and experts
    activation: Literal["silu", "gelu_tanh", "clamped_swiglu"] = "silu"  # clamped_swiglu: gpt-oss, alpha 1.702
    swiglu_limit: float = 0.0
    num_experts: int = 0
    active_experts: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0  # Qwen2-MoE: an FFN of this width beside the experts, times sigmoid(shared_gate(x)); 0: none
    dense_layers: tuple[int, ...] = ()  # layers of a mixture that have a dense FFN instead
    router_bias: bool = False
    expert_bias: bool = False
    renormalised: bool = True  # gates: softmax over the chosen (True), or of all, as they are (False)
    float32_router: bool = False  # Grok-1: scores in float32 whatever the model's type
    virtual_groups: int = 1  # the router scores num_experts / virtual_groups copies; a choice takes one of each group
    routed_scaling: float = 1.0

    def window(self, layer: int) -> int:
        return self.windows[layer] if self.windows else 0

    def has_experts(self, layer: int) -> bool:
        return self.num_experts > 0 and layer not in self.dense_layers


@dataclass(frozen=True, slots=True)
class GgufFamily:
    """How one `general.architecture` of GGUF names a decoder's tensors. `layer` maps a parameter of one layer to the
    tensors ("blk.<i>.<name>.weight") that are stacked into it by rows. Query and key rows must be stored so that a
    rotary pair is adjacent (2i, 2i+1), as llama.cpp's converter leaves them for `llama`: model.py turns such pairs."""

    layer: Mapping[str, tuple[str, ...]]
    embedding: str = "token_embd.weight"
    final_norm: str = "output_norm.weight"
    head: str = "output.weight"  # absent: the embedding is the head


GGUF_FAMILIES: Mapping[str, GgufFamily] = {
    "llama": GgufFamily(
        layer={
            "attention_norm.weight": ("attn_norm",),
            "attention.qkv.weight": ("attn_q", "attn_k", "attn_v"),
            "attention.out.weight": ("attn_output",),
            "ffn_norm.weight": ("ffn_norm",),
            "ffn.gate.weight": ("ffn_gate",),
            "ffn.up.weight": ("ffn_up",),
            "ffn.down.weight": ("ffn_down",),
        }
    ),
}
