"""A Hugging Face config.json -> ModelConfig. What it says and model.py does not compute is an error, never ignored."""

import math
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_runtime.families import ModelConfig, Rope
from model_runtime.hf_families import FAMILIES, Family
from model_runtime.json_keys import Keys
from model_runtime.mxfp4 import BLOCK

_KINDS = typing.get_type_hints(ModelConfig)
_OPTIONAL = {"tied_embeddings": False, "qkv_bias": False, "out_bias": False}
_LATE = ("kv_heads", "head_dim")  # their defaults come from other fields
_WIDTHS = ("ffn", "expert_ffn")  # may be a list: one width per expert

# Keys that change what a model computes, and the values with which they do not. (Those that come with tensors of their
# own need no mention: such tensors are unexpected.) A family that has the key in `keys` is asked before.
_WITHOUT_EFFECT: Mapping[str, tuple[Any, ...]] = {
    "attention_bias": (False,),
    "attention_chunk_size": (0,),
    "attention_multiplier": (),
    "attn_logit_softcapping": (0,),
    "attn_temperature_len": (-1, 0),
    "clip_qkv": (),
    "embedding_multiplier": (1,),
    "final_logit_softcapping": (0,),
    "logit_scale": (1,),
    "logits_scaling": (1,),
    "mlp_bias": (False,),
    "n_shared_experts": (0,),
    "no_rope_layers": ([],),
    "partial_rotary_factor": (1,),
    "position_embedding_type": ("rope",),
    "residual_moe": (False,),
    "residual_multiplier": (1,),
    "rope_interleaved": (False,),
    "rope_rotate_half_dims": (False,),
    "rotary_pct": (1,),
    "routed_scaling_factor": (1,),
    "router_logit_softcapping": (0,),
    "scoring_func": ("softmax",),
    "swiglu_alpha": (1.702,),
    "use_bidirectional_attention": (False,),
}
_YARN_KEYS = ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate")
_ROPE_KEYS: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor", "original_max_position_embeddings", *_YARN_KEYS),
    "llama3": ("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"),
}
_ANY_ROPE_KEYS = {"type", "rope_type", "rope_theta", "partial_rotary_factor"}


@dataclass(frozen=True, slots=True)
class Description:
    """`expert_widths`: of each expert, if they differ; the model has them all as wide as the widest. `mxfp4`: expert
    matrices are stored as blocks and scales (mxfp4.py)."""

    family: Family
    config: ModelConfig
    expert_widths: tuple[int, ...]
    mxfp4: bool


def read_config_json(path: Path) -> Description:
    """Raises CheckpointError when it is no config.json of a family we know, or asks for what we do not compute."""
    keys = Keys.of(path)
    name = keys.require("model_type", str)
    if name not in FAMILIES:
        raise keys.error("model_type", f"is {name!r}; supported: {', '.join(FAMILIES)}")
    family = FAMILIES[name]
    _refuse_what_is_not_computed(keys, family)
    fields = _fields(keys, family)
    rope, context = _rope(keys, family, fields["context_tokens"])
    fields |= {"rope": rope, "context_tokens": context, "windows": _windows(keys, family, fields["layers"])}
    if family.sparse_layers:
        fields["dense_layers"] = _dense_layers(keys, fields["layers"])
    config = ModelConfig(**fields)
    _check(keys, config)
    return Description(family, config, _expert_widths(keys, family, config), _is_mxfp4(keys, family, config))


def _refuse_what_is_not_computed(keys: Keys, family: Family) -> None:
    known = {name for names in family.keys.values() for name in names} | set(family.inverted.values())
    for name, harmless in _WITHOUT_EFFECT.items():
        value = keys.values.get(name)
        if name not in known and value is not None and value not in harmless:
            raise keys.error(name, f"is {value!r}, which is not supported")


def _fields(keys: Keys, family: Family) -> dict[str, Any]:
    defaults = _OPTIONAL | dict(family.defaults)
    fields = {
        name: _field(keys, name, family.keys[name], defaults.get(name)) for name in family.keys if name not in _LATE
    }
    fields["kv_heads"] = keys.positive("num_key_value_heads", int, fields["heads"])
    head_dim = defaults.get("head_dim", max(1, fields["hidden"] // fields["heads"]))
    fields["head_dim"] = keys.positive("head_dim", int, head_dim)
    for name, key in family.inverted.items():
        fields[name] = 1 / keys.positive(key, float, 1.0)
    act = keys.get("hidden_act", str, family.hidden_act)
    if act not in family.activations:
        raise keys.error("hidden_act", f"is {act!r}; supported: {', '.join(family.activations)}")
    return fields | {"activation": family.activations[act]} | dict(family.fixed)


def _field(keys: Keys, field: str, names: tuple[str, ...], default: Any) -> Any:
    name = next((name for name in names if keys.values.get(name) is not None), names[0])
    if field in _WIDTHS and isinstance(keys.values.get(name), list):
        return max(_sizes(keys, name))
    kind = _KINDS[field]
    if kind is bool:
        return keys.require(name, bool) if default is None else keys.get(name, bool, default)
    if default == 0 and keys.values.get(name) is None:  # a number whose 0 means "not", which config.json writes as null
        return default
    return keys.positive(name, kind, default)


def _sizes(keys: Keys, name: str) -> list[int]:
    values = keys.require(name, list)
    if not values or not all(type(value) is int and value > 0 for value in values):
        raise keys.error(name, f"is {values!r}, not a list of sizes")
    return list(values)


def _expert_widths(keys: Keys, family: Family, config: ModelConfig) -> tuple[int, ...]:
    for name in family.keys.get("expert_ffn", ()):
        if isinstance(keys.values.get(name), list):
            widths = _sizes(keys, name)
            if len(widths) != config.num_experts:
                raise keys.error(name, f"lists {len(widths)} widths for {config.num_experts} experts")
            return tuple(widths)
    return ()


def _rope(keys: Keys, family: Family, context: int) -> tuple[Rope, int]:
    """The embedding, and the context that it allows."""
    name = next((n for n in ("rope_scaling", "rope_parameters") if keys.get(n, dict)), "rope_parameters")
    rope = Keys(keys.file, keys.get(name, dict) or family.rope_scaling, f"{name}.")
    kind = rope.get("rope_type", str) or rope.get("type", str, "default")
    if kind not in _ROPE_KEYS:
        raise rope.error("rope_type", f"is {kind!r}; supported: {', '.join(_ROPE_KEYS)}")
    for key in sorted(rope.values.keys() - _ANY_ROPE_KEYS - set(_ROPE_KEYS[kind])):
        raise rope.error(key, f"is not known for {kind!r}")
    if rope.get("partial_rotary_factor", float, 1.0) != 1.0:
        raise rope.error("partial_rotary_factor", "is not 1, which is not supported")
    base = rope.positive("rope_theta", float, keys.positive("rope_theta", float, family.rope_base))
    if kind == "default":
        return Rope(base), context
    factor = rope.positive("factor", float)
    if kind == "linear":
        return Rope(base, "linear", factor), context
    if kind == "dynamic":  # transformers counts from max_position_embeddings
        return Rope(base, "dynamic", factor, original_context_tokens=context), int(factor * context)
    original = rope.positive("original_max_position_embeddings", int, context)
    original = keys.positive("original_max_position_embeddings", int, original)
    if kind == "yarn":
        return _yarn(rope, base, factor, original), max(context, int(factor * original))
    low, high = rope.positive("low_freq_factor", float), rope.positive("high_freq_factor", float)
    if low >= high:
        raise rope.error("low_freq_factor", f"is {low}, not below high_freq_factor {high}")
    return Rope(base, "llama3", factor, original, low_freq_factor=low, high_freq_factor=high), context


def _yarn(rope: Keys, base: float, factor: float, original: int) -> Rope:
    def length(scale: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1

    mscale, over_all = rope.get("mscale", float), rope.get("mscale_all_dim", float)
    usual = length(mscale) / length(over_all) if mscale and over_all else length(1.0)
    return Rope(
        base,
        "yarn",
        factor,
        original,
        beta_fast=rope.get("beta_fast", float) or 32.0,
        beta_slow=rope.get("beta_slow", float) or 1.0,
        truncate=rope.get("truncate", bool, True),
        attention_factor=rope.positive("attention_factor", float, usual),
    )


def _windows(keys: Keys, family: Family, layers: int) -> tuple[int, ...]:
    if family.windows == "none" or (family.window_switch and not keys.get("use_sliding_window", bool, False)):
        return ()
    may_lack = family.windows == "all" and not family.window_switch  # Mixtral: null or absent is no window
    size = keys.get("sliding_window", int, 0) if may_lack else keys.require("sliding_window", int)
    if size < 0:
        raise keys.error("sliding_window", f"is {size}")
    return tuple(size * slides for slides in _sliding(keys, family, layers)) if size else ()


def _sliding(keys: Keys, family: Family, layers: int) -> Sequence[bool]:
    kinds = keys.get("layer_types", list)
    if family.windows == "all" or kinds is None:
        border = keys.get("max_window_layers", int, 28)
        rules = {
            "all": range(layers),
            "late": range(border, layers),
            "early_even": range(0, border, 2),
            "even": range(0, layers, 2),
        }
        return [layer in rules[family.windows] for layer in range(layers)]
    if len(kinds) != layers or not set(kinds) <= {"full_attention", "sliding_attention"}:
        raise keys.error("layer_types", f"is not full_attention or sliding_attention for each of {layers} layers")
    return [kind == "sliding_attention" for kind in kinds]


def _dense_layers(keys: Keys, layers: int) -> tuple[int, ...]:
    step = keys.positive("decoder_sparse_step", int, 1)
    named = keys.get("mlp_only_layers", list, [])
    return tuple(layer for layer in range(layers) if layer in named or (layer + 1) % step)


def _check(keys: Keys, config: ModelConfig) -> None:
    if config.heads % config.kv_heads:
        raise keys.error("num_key_value_heads", f"is {config.kv_heads}, which does not divide {config.heads} heads")
    if config.head_dim % 2:
        raise keys.error("head_dim", f"is {config.head_dim}: rotary embedding needs an even number")
    if config.active_experts > config.num_experts:
        raise keys.error("num_experts_per_tok", f"is {config.active_experts} of {config.num_experts} experts")


def _is_mxfp4(keys: Keys, family: Family, config: ModelConfig) -> bool:
    found = keys.get("quantization_config", dict)
    if found is None:
        return False
    method = Keys(keys.file, found, "quantization_config.").get("quant_method", str, "")
    if method != "mxfp4" or not any(names.by_column for names in family.experts):
        raise keys.error("quantization_config.quant_method", f"is {method!r}; supported: 'mxfp4' for gpt_oss")
    if config.hidden % BLOCK or config.expert_ffn % BLOCK:
        raise keys.error("hidden_size", f"or intermediate_size does not divide into mxfp4's blocks of {BLOCK}")
    return True
