"""Grouped-query attention over a paged cache, with what families add to it. Written for one device."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model_runtime.families import ModelConfig
from model_runtime.kv_cache import PagedCache, Plan, Reading
from model_runtime.linear import ROWS_ALIKE, Linear

# T tokens of a step, D hidden, H query heads, K kv heads, P head_dim; a span: n new tokens, L positions in all


class Norm(nn.Module):
    """RMS norm, computed in float32. The weight is float32 whatever the model's dtype."""

    def __init__(self, hidden: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(hidden, dtype=torch.float32), requires_grad=False)
        self.eps = eps

    def forward(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """x float32, normalised along its last dimension."""
        # By hand: on a CPU, F.rms_norm is four times as slow for 500 tokens and no faster for one.
        length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scale = length.square_().mul_(1 / x.shape[-1]).add_(self.eps).rsqrt_()
        return (x * scale).mul_(self.weight).to(dtype)


class Masks:
    """Which keys each query of a span may see, made once a step for each window that the layers have."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device, self._dtype = device, dtype
        self._seen: dict[tuple[int, int, int], Tensor] = {}
        self._added: dict[tuple[int, int, int, int], Tensor] = {}

    def seen(self, reading: Reading, window: int) -> Tensor:
        """[n, L] bool"""
        key = (reading.start, reading.length, window)
        if key not in self._seen:
            seen = torch.ones(reading.length, reading.total, dtype=torch.bool, device=self._device).tril(reading.start)
            self._seen[key] = seen.triu(reading.start - window + 1) if window else seen
        return self._seen[key]

    def added(self, reading: Reading, window: int, group: int) -> Tensor:
        """[group * n, L]: 0 or -inf, for the query heads of one kv head one after the other."""
        key = (reading.start, reading.length, window, group)
        if key not in self._added:
            seen = self.seen(reading, window)
            added = torch.zeros(seen.shape, dtype=self._dtype, device=self._device).masked_fill_(~seen, -torch.inf)
            self._added[key] = added.repeat(group, 1)
        return self._added[key]


class Attention(nn.Module):
    """Rotary pairs are adjacent: (2i, 2i + 1)."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.heads, self.kv_heads, self.head_dim = config.heads, config.kv_heads, config.head_dim
        self.scale = config.attention_scale or config.head_dim**-0.5
        self.cap, self.clip, self.window = config.attention_cap, config.qkv_clip, config.window(layer)
        self.norm_by_head = config.qk_norm == "head"
        self.qkv = Linear(config.hidden, (self.heads + 2 * self.kv_heads) * self.head_dim, bias=config.qkv_bias)
        self.out = Linear(self.heads * self.head_dim, config.hidden, bias=config.out_bias)
        self.query_norm = self.key_norm = None
        if config.qk_norm != "none":
            widths = (1, 1) if self.norm_by_head else (self.heads, self.kv_heads)
            self.query_norm, self.key_norm = (Norm(width * self.head_dim, config.rms_eps) for width in widths)
        self.sinks = nn.Parameter(torch.empty(self.heads), requires_grad=False) if config.sinks else None

    def forward(self, x: Tensor, turns: Tensor, plan: Plan, masks: Masks, cache: PagedCache) -> Tensor:
        """`turns` [T, 1, P/2] complex: how far each position's pairs turn."""
        exact = self.qkv.forward(x).view(x.shape[0], -1, self.head_dim).float()  # [T, H + 2K, P]
        if self.query_norm is not None:
            self._normalise(exact)
        if self.clip:
            exact.clamp_(-self.clip, self.clip)
        pairs = torch.view_as_complex(exact.view(*exact.shape[:2], -1, 2))
        pairs[:, : self.heads + self.kv_heads].mul_(turns)
        turned = exact.to(x.dtype)
        cache.write(self.layer, plan.slots, turned[:, self.heads :])
        queries = turned[:, : self.heads]
        attended = [self._attend(queries[r.rows], *cache.read(self.layer, r), r, masks) for r in plan.readings]
        return self.out.forward(attended[0] if len(attended) == 1 else torch.cat(attended))

    def _normalise(self, exact: Tensor) -> None:
        """Queries and keys [T, H + K, P] in place."""
        assert self.query_norm is not None and self.key_norm is not None
        for norm, part in (
            (self.query_norm, exact[:, : self.heads]),
            (self.key_norm, exact[:, self.heads : self.heads + self.kv_heads]),
        ):
            rows = part if self.norm_by_head else part.flatten(1)
            part.copy_(norm.forward(rows, torch.float32).view(part.shape))

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, reading: Reading, masks: Masks) -> Tensor:
        """queries [n, H, P], keys and values [K, L, P] -> [n, H * P]

        The query heads of one kv head stand in for positions: no repeated keys, and one mask for all. A few guesses
        after a token (draft.py) are computed one by one, so that each gives the same bits as a step of its own: torch
        sums in another order where there are more rows."""
        if 1 < reading.length <= ROWS_ALIKE:
            rows = [replace(reading, start=reading.start + row, length=1) for row in range(reading.length)]
            parts = [
                self._attend(queries[row : row + 1], keys[:, : one.total], values[:, : one.total], one, masks)
                for row, one in enumerate(rows)
            ]
            return torch.cat(parts)
        if self.window and reading.start >= self.window:  # what no query sees is not looked at
            unseen = reading.start - self.window + 1
            keys, values = keys[:, unseen:], values[:, unseen:]
            reading = replace(reading, start=self.window - 1)
        if self.cap or self.sinks is not None:
            return self._attend_by_hand(queries, keys, values, masks.seen(reading, self.window))
        grouped = queries.transpose(0, 1).reshape(1, self.kv_heads, -1, self.head_dim)  # [1, K, (H / K) * n, P]
        if reading.length == 1:
            return F.scaled_dot_product_attention(grouped, keys[None], values[None], scale=self.scale).reshape(1, -1)
        if not reading.start and not 0 < self.window < reading.total:
            return self._attend_causally(queries, keys, values)
        mask = masks.added(reading, self.window, self.heads // self.kv_heads)
        attended = F.scaled_dot_product_attention(grouped, keys[None], values[None], attn_mask=mask, scale=self.scale)
        return attended.view(self.heads, reading.length, -1).transpose(0, 1).flatten(1)

    def _attend_causally(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """A prompt from its beginning: half of the scores are never computed."""
        attended = F.scaled_dot_product_attention(
            queries.transpose(0, 1)[None], keys[None], values[None], is_causal=True, scale=self.scale, enable_gqa=True
        )
        return attended[0].transpose(0, 1).flatten(1)

    def _attend_by_hand(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """For what torch's attention lacks: capped scores, sinks. mask [n, L]"""
        grouped = queries.transpose(0, 1).reshape(self.kv_heads, -1, self.head_dim)  # [K, (H / K) * n, P]
        scores = (grouped @ keys.transpose(1, 2)).float().mul_(self.scale).view(self.heads, *mask.shape)
        if self.cap:
            scores = scores.div_(self.cap).tanh_().mul_(self.cap)
        scores = scores.masked_fill_(~mask, -torch.inf)
        if self.sinks is not None:
            sinks = self.sinks.view(-1, 1, 1).expand(-1, mask.shape[0], 1)
            scores = torch.cat([scores, sinks.float()], dim=-1)
        shares = scores.softmax(dim=-1)[..., : mask.shape[1]].to(values.dtype)
        attended = shares.view(self.kv_heads, -1, mask.shape[1]) @ values
        return attended.view(self.heads, mask.shape[0], -1).transpose(0, 1).flatten(1)
