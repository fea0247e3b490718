"""Grok-1 in NumPy, float64, from the equations of xai-org/grok-1's model.py at 7050ed2 (Apache-2.0), one token sequence
at a time and without a cache: the oracle of test_grok. (That code also hides token 0, its padding, from attention; no
test uses it.)"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from model_runtime.families import ModelConfig

Array = NDArray[np.float64]

# T tokens, D hidden, H query heads, K kv heads, P head dimension, E experts


def grok_logits(
    tensors: Mapping[str, Array],
    config: ModelConfig,
    ids: list[int],
    router_cap: float | None = None,
    renormalised: bool = False,
) -> Array:
    """[T, V]. `router_cap` and `renormalised` are not Grok-1: other engines compute those."""
    embeddings = tensors["model.embed_tokens.weight"]
    x = embeddings[ids] * config.embedding_scale
    for layer in range(config.layers):
        own = {name.split(".", 3)[3]: t for name, t in tensors.items() if name.startswith(f"model.layers.{layer}.")}
        attended = attention(own, config, rms_norm(x, own["pre_attn_norm.scale"]))
        x = x + rms_norm(attended, own["post_attn_norm.scale"])
        mixed = mixture(own, config, rms_norm(x, own["pre_moe_norm.scale"]), router_cap, renormalised)
        x = x + rms_norm(mixed, own["post_moe_norm.scale"])
    return rms_norm(x, tensors["model.norm.scale"]) @ embeddings.T * config.logit_scale


def rms_norm(x: Array, scale: Array) -> Array:
    return scale * x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)


def attention(own: Mapping[str, Array], config: ModelConfig, x: Array) -> Array:
    def heads_of(name: str, count: int) -> Array:
        return (x @ own[f"attn.{name}_proj.weight"].T).reshape(len(x), count, config.head_dim).swapaxes(0, 1)

    queries, keys = (rotated(heads_of(*which)) for which in (("q", config.heads), ("k", config.kv_heads)))
    values = heads_of("v", config.kv_heads)
    shared = config.heads // config.kv_heads  # query heads of one kv head stand side by side
    scores = queries @ np.repeat(keys, shared, 0).swapaxes(1, 2) * config.attention_scale  # [H, T, T]
    scores = 30.0 * np.tanh(scores / 30.0)
    scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -1e30)
    attended = softmax(scores) @ np.repeat(values, shared, 0)  # [H, T, P]
    return attended.swapaxes(0, 1).reshape(len(x), -1) @ own["attn.o_proj.weight"].T


def rotated(heads: Array) -> Array:
    """[H, T, P]; a pair is (i, i + P / 2)."""
    half = heads.shape[-1] // 2
    angles = np.outer(np.arange(heads.shape[1]), 10_000.0 ** (-np.arange(half) / half))
    first, second = heads[..., :half], heads[..., half:]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate((first * cos - second * sin, second * cos + first * sin), -1)


def mixture(
    own: Mapping[str, Array], config: ModelConfig, x: Array, router_cap: float | None, renormalised: bool
) -> Array:
    scores = x @ own["moe_block.gate.weight"].T  # [T, E]
    if router_cap is not None:
        scores = router_cap * np.tanh(scores / router_cap)
    shares = softmax(scores)
    mixed = np.zeros_like(x)
    for token, share in enumerate(shares):
        chosen = np.argsort(-share)[: config.active_experts]
        for expert in chosen:
            gate = share[expert] / (share[chosen].sum() if renormalised else 1.0)
            mixed[token] += gate * one_expert(own, expert, x[token])
    return mixed


def one_expert(own: Mapping[str, Array], expert: int, x: Array) -> Array:
    linear, linear_v, linear_1 = (
        own[f"moe_block.experts.{expert}.{name}.weight"] for name in ("linear", "linear_v", "linear_1")
    )
    return linear_1 @ (gelu(linear @ x) * (linear_v @ x))


def gelu(x: Array) -> Array:
    """jax.nn.gelu's default, the approximation by tanh (Hendrycks and Gimpel, 2016)."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)
