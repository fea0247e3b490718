"""How GGUF files of each supported `general.architecture` are to be read: what their headers leave unsaid. Data only.
Names of tensors and keys as in the gguf package and in llama.cpp's converters."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Presence = Literal["never", "maybe", "always"]


@dataclass(frozen=True, slots=True)
class GgufFamily:
    """`adjacent_pairs`: the converter has put the two rows of a rotary pair side by side; else they are half a head
    apart. `qkv_bias`, `out_bias`: maybe, if the first block has one. `experts`: maybe, if the header counts some.
    `defaults`: what an absent key means, where that is not nothing. `names`: tensors of a block that are named unlike
    those in gguf.py, `old_names`: how converters named them once."""

    adjacent_pairs: bool = False
    qkv_bias: Presence = "never"
    out_bias: Presence = "never"
    qk_norm: Literal["none", "head", "width"] = "none"
    sinks: bool = False
    post_norms: bool = False
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    old_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # if the file has those
    experts: Presence = "never"
    shared_expert: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    renormalised: bool = True
    float32_router: bool = False
    activation: Literal["silu", "gelu_tanh", "clamped_swiglu"] = "silu"
    swiglu_limit: float = 0.0
    divides_logits: bool = False  # `logit_scale` is what the logits are divided by
    window_period: int = 1  # of so many layers the last has no window; 1: all have one
    whole_yarn_bounds: bool = True  # see Rope.truncate
    defaults: Mapping[str, float] = field(default_factory=dict)


GGUF_FAMILIES: Mapping[str, GgufFamily] = {
    # Llama, Mistral, Mixtral, SmolLM2, ...
    "llama": GgufFamily(adjacent_pairs=True, qkv_bias="maybe", out_bias="maybe", experts="maybe"),
    "granite": GgufFamily(adjacent_pairs=True, qkv_bias="maybe", out_bias="maybe", divides_logits=True),
    "granitemoe": GgufFamily(
        adjacent_pairs=True, qkv_bias="maybe", out_bias="maybe", experts="always", divides_logits=True
    ),
    "qwen2": GgufFamily(qkv_bias="always"),
    "qwen2moe": GgufFamily(qkv_bias="always", experts="always", shared_expert=True, renormalised=False),
    "qwen3": GgufFamily(qk_norm="head"),
    "qwen3moe": GgufFamily(qk_norm="head", experts="always"),
    "olmoe": GgufFamily(qk_norm="width", experts="always", renormalised=False),
    "gpt-oss": GgufFamily(
        qkv_bias="always",
        out_bias="always",
        sinks=True,
        names={"ffn_norm.weight": ("post_attention_norm.weight",)},
        experts="always",
        router_bias=True,
        expert_bias=True,
        activation="clamped_swiglu",
        swiglu_limit=7.0,
        window_period=2,
        whole_yarn_bounds=False,
    ),
    # Grok-1 as published: gates are not renormalised and router scores not capped, whatever the converter notes. Grok-2
    # is refused, by its keys and its dense FFNs.
    "grok": GgufFamily(
        post_norms=True,
        names={
            "attention_post_norm.weight": ("attn_output_norm.weight",),
            "ffn_post_norm.weight": ("post_ffw_norm.weight",),
        },
        old_names={"ffn_post_norm.weight": ("layer_output_norm.weight",)},
        experts="always",
        renormalised=False,
        float32_router=True,
        activation="gelu_tanh",
        defaults={
            "embedding_scale": 78.38367176906169,
            "logit_scale": 0.5773502691896257,
            "attention.output_scale": 0.08838834764831845,
            "attn_logit_softcapping": 30.0,
        },
    ),
}

# What model.py does not compute: keys, and the value with which they mean nothing.
NOT_COMPUTED: Mapping[str, float] = {
    "final_logit_softcapping": 0.0,
    "attention.temperature_length": 0,
    "attention.temperature_scale": 0.0,
    "rope.scaling.finetuned": True,
    "rope.scaling.attn_factor": 1.0,
    "rope.scaling.yarn_attn_factor": -1.0,  # converters write two different things there
    "rope.scaling.yarn_ext_factor": 1.0,
    "rope.scaling.yarn_log_multiplier": 0.0,
    "leading_dense_block_count": 0,
    "expert_group_count": 0,
    "expert_gating_func": 1,  # softmax
}
