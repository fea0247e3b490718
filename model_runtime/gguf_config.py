"""The header of a GGUF file as a ModelConfig."""

import math
from typing import Any, TypeVar

from model_runtime.families import ModelConfig, Rope
from model_runtime.gguf_families import NOT_COMPUTED, GgufFamily, Presence
from model_runtime.gguf_file import GgufFile
from model_runtime.gguf_tensor import gguf_view
from model_runtime.weights import CheckpointError

_Value = TypeVar("_Value", str, int, float)


class GgufHeader:
    """The keys of the file's architecture, without its name in front. Raises CheckpointError for what is missing, of
    another type, or not computed by model.py."""

    def __init__(self, file: GgufFile, architecture: str, family: GgufFamily) -> None:
        self._file, self._architecture, self._family = file, architecture, family

    def config(self) -> ModelConfig:
        self._refuse_what_is_not_computed()
        hidden, layers, context_tokens = map(self._size, ("embedding_length", "block_count", "context_length"))
        logit_scale = self._number("logit_scale", 1.0)
        if not logit_scale:
            raise self._error(f"key {self._architecture}.logit_scale is {logit_scale}")
        return ModelConfig(
            layers=layers,
            hidden=hidden,
            vocab=len(self._file.require("tokenizer.ggml.tokens", list)),
            context_tokens=context_tokens,
            rms_eps=self._file.require(f"{self._architecture}.attention.layer_norm_rms_epsilon", float),
            tied_embeddings="output.weight" not in self._file.tensors,
            post_norms=self._family.post_norms,
            embedding_scale=self._number("embedding_scale", 1.0),
            residual_scale=self._number("residual_scale", 1.0),
            logit_scale=1 / logit_scale if self._family.divides_logits else logit_scale,
            windows=self._windows(layers),
            **self._attention(hidden, context_tokens),
            **self._ffn(),
        )

    def _attention(self, hidden: int, context_tokens: int) -> dict[str, Any]:
        heads, family = self._size("attention.head_count"), self._family
        kv_heads = self._size("attention.head_count_kv", heads)
        head_dim = self._size("attention.key_length", max(1, hidden // heads))
        if heads % kv_heads:
            raise self._error(f"{heads} heads cannot share {kv_heads} key-value heads")
        if self._size("rope.dimension_count", head_dim) != head_dim or head_dim % 2:
            raise self._error(f"rotary embedding of only a part of a head's {head_dim} dimensions")
        if self._size("attention.value_length", head_dim) != head_dim:
            raise self._error("values of another width than keys")
        return {
            "heads": heads,
            "kv_heads": kv_heads,
            "head_dim": head_dim,
            "rope": self._rope(head_dim, context_tokens),
            "qkv_bias": self._is_there(family.qkv_bias, "blk.0.attn_q.bias"),
            "out_bias": self._is_there(family.out_bias, "blk.0.attn_output.bias"),
            "qk_norm": family.qk_norm,
            "qkv_clip": self._number("attention.clamp_kqv", 0.0),
            "attention_scale": self._number("attention.output_scale", self._number("attention.scale", 0.0)),
            "attention_cap": self._number("attn_logit_softcapping", 0.0),
            "sinks": family.sinks,
        }

    def _ffn(self) -> dict[str, Any]:
        family, ffn = self._family, self._size("feed_forward_length")
        common: dict[str, Any] = {"ffn": ffn, "activation": family.activation, "swiglu_limit": family.swiglu_limit}
        num_experts = self._value("expert_count", 0)
        if family.experts == "never" or (family.experts == "maybe" and not num_experts):
            return common
        num_experts, active_experts = self._size("expert_count"), self._size("expert_used_count")
        if active_experts > num_experts:
            raise self._error(f"{active_experts} active experts of {num_experts}")
        return common | {
            "num_experts": num_experts,
            "active_experts": active_experts,
            "expert_ffn": self._size("expert_feed_forward_length", ffn),
            "shared_ffn": self._size("expert_shared_feed_forward_length", ffn) if family.shared_expert else 0,
            "router_bias": family.router_bias,
            "expert_bias": family.expert_bias,
            "renormalised": self._value("expert_weights_norm", family.renormalised),
            "float32_router": family.float32_router,
            "routed_scaling": self._number("expert_weights_scale", 1.0) or 1.0,
        }

    def _rope(self, head_dim: int, context_tokens: int) -> Rope:
        base, factor = self._number("rope.freq_base", 10_000.0), self._number("rope.scaling.factor", 1.0)
        frequency_factors: tuple[float, ...] = ()
        if "rope_freqs.weight" in self._file.tensors:
            factors = gguf_view(self._file, "rope_freqs.weight", (head_dim // 2,)).weight().read(None)
            frequency_factors = tuple(factors.float().tolist())
        if factor <= 0:
            raise self._error(f"rotary scaling by {factor}")
        kind = self._value("rope.scaling.type", "linear" if factor != 1 else "none")
        if kind == "none" or factor == 1:
            return Rope(base, frequency_factors=frequency_factors)
        if kind == "linear":
            return Rope(base, "linear", factor, frequency_factors=frequency_factors)
        if kind != "yarn" or frequency_factors:
            raise self._error(f"rotary scaling {kind!r}{' with factors' if frequency_factors else ''}")
        return Rope(
            base,
            "yarn",
            factor,
            original_context_tokens=self._size("rope.scaling.original_context_length", context_tokens),
            beta_fast=self._number("rope.scaling.yarn_beta_fast", 32.0),
            beta_slow=self._number("rope.scaling.yarn_beta_slow", 1.0),
            truncate=self._family.whole_yarn_bounds,
            attention_factor=0.1 * math.log(factor) + 1,  # as the YaRN paper recommends, section 3.4
        )

    def _windows(self, layers: int) -> tuple[int, ...]:
        window = self._value("attention.sliding_window", 0)
        if not window:
            return ()
        period = self._value("attention.sliding_window_pattern", self._family.window_period)
        return tuple(window if period == 1 or (layer + 1) % period else 0 for layer in range(layers))

    def _refuse_what_is_not_computed(self) -> None:
        shared = {} if self._family.shared_expert else {"expert_shared_feed_forward_length": 0}
        for key, nothing in {**NOT_COMPUTED, **shared}.items():
            value = self._file.metadata.get(f"{self._architecture}.{key}", nothing)
            if value != nothing:
                raise self._error(f"key {self._architecture}.{key} is {value}: model.py does not compute that")

    def _is_there(self, presence: Presence, tensor: str) -> bool:
        return presence == "always" or (presence == "maybe" and tensor in self._file.tensors)

    def _size(self, key: str, default: int = 0) -> int:
        name = f"{self._architecture}.{key}"
        value = self._file.get(name, default) if default else self._file.require(name, int)
        if value <= 0:
            raise self._error(f"key {name} is {value}")
        return value

    def _number(self, key: str, default: float) -> float:
        return self._value(key, float(self._family.defaults.get(key, default)))

    def _value(self, key: str, default: _Value) -> _Value:
        return self._file.get(f"{self._architecture}.{key}", default)

    def _error(self, problem: str) -> CheckpointError:
        return CheckpointError(self._file.path, problem)
