"""A decoder as numbers, and the Grok designs. Knows no torch, and no checkpoint: see hf_families and gguf_families."""

from dataclasses import dataclass, replace
from typing import Literal

_MOST_CONTEXT_TOKENS = 1 << 24  # their rotary turns are a table in memory


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
    frequency_factors: tuple[float, ...] = ()  # one a pair: what its frequency is divided by, whatever the scaling

    def flaw(self, head_dim: int) -> str:
        """Why it cannot be computed for heads of this width; empty if it can."""
        sizes: dict[str, float] = {"base - 1": self.base - 1, "factor": self.factor}
        if self.scaling in ("dynamic", "yarn", "llama3"):
            sizes["original context"] = self.original_context_tokens
        if self.scaling == "yarn":
            sizes |= {"beta_fast": self.beta_fast, "beta_slow": self.beta_slow, "length": self.attention_factor}
        if self.scaling == "llama3":
            sizes["high_freq_factor - low_freq_factor"] = self.high_freq_factor - self.low_freq_factor
        if self.frequency_factors:
            sizes["least frequency factor"] = min(self.frequency_factors)
            if len(self.frequency_factors) != head_dim // 2:
                return f"{len(self.frequency_factors)} rotary frequency factors for {head_dim // 2} pairs"
        wrong = (f"rotary {name} is {size}, must be positive" for name, size in sizes.items() if size <= 0)
        return next(wrong, "")


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

    def flaw(self) -> str:
        """What no checkpoint's own format rules out and model.py could not compute; empty if there is nothing."""
        if self.context_tokens > _MOST_CONTEXT_TOKENS:
            return f"a context of {self.context_tokens} tokens; {_MOST_CONTEXT_TOKENS} at most"
        return self.rope.flaw(self.head_dim)

    def window(self, layer: int) -> int:
        return self.windows[layer] if self.windows else 0

    def has_experts(self, layer: int) -> bool:
        return self.num_experts > 0 and layer not in self.dense_layers


# Grok-1 as xAI published it: run.py and model.py of xai-org/grok-1 at 7050ed2. 314 billion parameters.
GROK_1 = ModelConfig(
    layers=64,
    hidden=6144,
    heads=48,
    kv_heads=8,
    head_dim=128,
    ffn=32_768,
    vocab=131_072,
    context_tokens=8192,
    rms_eps=1e-5,
    rope=Rope(base=10_000.0),
    tied_embeddings=True,
    attention_scale=0.08838834764831845,
    attention_cap=30.0,
    post_norms=True,
    embedding_scale=78.38367176906169,
    logit_scale=0.5773502691896257,
    activation="gelu_tanh",
    num_experts=8,
    active_experts=2,
    expert_ffn=32_768,
    renormalised=False,
    float32_router=True,
)

# The larger design that circulates under Grok's name: 128 experts, top-8, expert width 14,336, a long context. xAI has
# published no such model and there are no weights of it. What that design leaves open is here as in Grok-1, and the
# context is stretched sixteenfold by YaRN (attention_factor = 0.1 ln(16) + 1).
WIDE_128 = replace(
    GROK_1,
    num_experts=128,
    active_experts=8,
    ffn=14_336,
    expert_ffn=14_336,
    context_tokens=131_072,
    rope=Rope(10_000.0, "yarn", factor=16.0, original_context_tokens=8192, attention_factor=1.2772588722239782),
)


def scaled_grok(kv_heads: int, head_dim: int, layers: int, vocab: int) -> ModelConfig:
    """Grok-1's shape at another size: six query heads to a kv head, hidden = heads x head_dim, eight experts of which
    two, ffn = 8 hidden x 2/3, scores scaled by head_dim ** -0.5. For tests and benchmarks."""
    hidden = 6 * kv_heads * head_dim
    ffn = hidden * 8 * 2 // 3
    return replace(
        GROK_1,
        layers=layers,
        hidden=hidden,
        heads=6 * kv_heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=ffn,
        expert_ffn=ffn,
        vocab=vocab,
        context_tokens=256,
        attention_scale=head_dim**-0.5,
    )
