"""The decoder: norms, rotary attention over a paged cache, an FFN or experts. Written for one device."""

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model_runtime.families import ModelConfig
from model_runtime.gguf import load_gguf
from model_runtime.kv_cache import PagedCache, Plan, Reading, Step
from model_runtime.linear import GatedFfn, Linear
from model_runtime.moe import Moe
from model_runtime.upcycle import upcycle_dense

# T tokens of a step, S spans, D hidden, H query heads, K kv heads, P head_dim, L positions of a sequence, V vocabulary


class Attention(nn.Module):
    """Grouped-query attention. Rotary pairs are adjacent: (2i, 2i + 1)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = config.heads, config.kv_heads, config.head_dim
        self.qkv = Linear(config.hidden, (self.heads + 2 * self.kv_heads) * self.head_dim)
        self.out = Linear(self.heads * self.head_dim, config.hidden)

    def forward(self, x: Tensor, turns: Tensor, plan: Plan, cache: PagedCache, layer: int) -> Tensor:
        """`turns` [T, 1, P/2] complex: how far each position's pairs turn."""
        projected = self.qkv.forward(x).view(x.shape[0], -1, self.head_dim)  # [T, H + 2K, P]
        exact = projected.float()
        pairs = torch.view_as_complex(exact.view(*exact.shape[:2], -1, 2))
        pairs[:, : self.heads + self.kv_heads].mul_(turns)
        turned = exact.to(x.dtype)
        cache.write(layer, plan.slots, turned[:, self.heads :])
        queries = turned[:, : self.heads]
        attended = [self._attend(queries[r.rows], *cache.read(layer, r), r) for r in plan.readings]
        return self.out.forward(attended[0] if len(attended) == 1 else torch.cat(attended))

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, reading: Reading) -> Tensor:
        """queries [n, H, P], keys and values [K, L, P] -> [n, H * P]"""
        if reading.length == 1:  # the query heads of one kv head stand in for positions: no mask, no repeated keys
            grouped = queries.view(1, self.kv_heads, -1, self.head_dim)
            return F.scaled_dot_product_attention(grouped, keys[None], values[None]).reshape(1, -1)
        mask = None
        if reading.start:
            everything = torch.ones(reading.length, reading.total, dtype=torch.bool, device=queries.device)
            mask = everything.tril(reading.start)
        attended = F.scaled_dot_product_attention(
            queries.transpose(0, 1)[None],
            keys[None],
            values[None],
            attn_mask=mask,
            is_causal=mask is None,
            enable_gqa=True,
        )
        return attended[0].transpose(0, 1).reshape(reading.length, -1)


class Layer(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = Norm(config.hidden, config.rms_eps)
        self.attention = Attention(config)
        self.ffn_norm = Norm(config.hidden, config.rms_eps)
        self.ffn = Moe(config) if config.num_experts else GatedFfn(config.hidden, config.ffn)

    def forward(self, x: Tensor, turns: Tensor, plan: Plan, cache: PagedCache, layer: int) -> Tensor:
        """x [T, D] float32, changed in place."""
        x += self.attention(self.attention_norm.forward(x, cache.dtype), turns, plan, cache, layer)
        x += self.ffn(self.ffn_norm.forward(x, cache.dtype))
        return x


class Norm(nn.Module):
    """RMS norm of the float32 residual stream. The weight is float32 whatever the model's dtype."""

    def __init__(self, hidden: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(hidden, dtype=torch.float32), requires_grad=False)
        self.eps = eps

    def forward(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        # By hand: on a CPU, F.rms_norm is four times as slow for 500 tokens and no faster for one.
        length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scale = length.square_().mul_(1 / x.shape[-1]).add_(self.eps).rsqrt_()
        return (x * scale).mul_(self.weight).to(dtype)


class Model(nn.Module):
    """Call `pack` once, after loading and sharding: a step takes less time then (on CPUs)."""

    layers: Sequence[Layer]
    turns: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Parameter(torch.empty(config.vocab, config.hidden), requires_grad=False)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))  # type: ignore[assignment]
        self.norm = Norm(config.hidden, config.rms_eps)
        self.head = Linear(config.hidden, config.vocab)
        self.register_buffer("turns", torch.empty(0), persistent=False)

    @torch.inference_mode()
    def forward(self, step: Step, cache: PagedCache) -> Tensor:
        """[S, V] float32: the logits of each span's last token. Stores the new tokens' keys and values in `cache`."""
        plan = cache.plan(step)
        x = F.embedding(plan.token_ids, self.embedding).float()
        turns = self.turns[plan.positions]
        for number, layer in enumerate(self.layers):
            x = layer(x, turns, plan, cache, number)
        logits: Tensor = self.head(self.norm.forward(x[plan.last_rows], cache.dtype))
        return logits.float()

    def pack(self) -> None:
        for module in self.modules():
            if isinstance(module, Linear) and module is not self.head:
                module.pack()


def load_model(path: Path | str, *, dtype: torch.dtype, device: torch.device | str, upcycle: bool) -> Model:
    """A GGUF checkpoint as it is, or its FFNs turned into experts (upcycle.py). Raises CheckpointError."""
    config, tensors, _ = load_gguf(path, dtype)
    if upcycle:
        config, tensors = upcycle_dense(config, tensors)
    return build_model(config, tensors, device)


def build_model(config: ModelConfig, tensors: dict[str, Tensor], device: torch.device | str) -> Model:
    """`tensors` has exactly the model's parameters; without a "head.weight" the embedding is the head."""
    with torch.device("meta"):
        model = Model(config)
    if config.tied_embeddings:
        tensors = {**tensors, "head.weight": tensors["embedding"]}
    model.load_state_dict(tensors, assign=True)
    model.turns = rotary_turns(config)
    return model.to(device).requires_grad_(False).eval()


def rotary_turns(config: ModelConfig) -> Tensor:
    """[context, 1, P/2] complex64, unit length."""
    pairs = torch.arange(0, config.head_dim, 2, dtype=torch.float64)
    frequencies = config.rope.base ** -(pairs / config.head_dim)
    angles = torch.outer(torch.arange(config.context_tokens, dtype=torch.float64), frequencies)
    return torch.polar(torch.ones_like(angles), angles).to(torch.complex64).unsqueeze(1)
