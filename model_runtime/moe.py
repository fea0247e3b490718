"""A mixture of experts in place of the FFN. Computes what the experts held here contribute."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from model_runtime.families import ModelConfig
from model_runtime.linear import GatedFfn
from model_runtime.router import Router

# T tokens, D hidden, E experts, A active experts


class Moe(nn.Module):
    """`experts[i]` is expert `first + i`. Choices that fall on experts not held here contribute nothing."""

    experts: Sequence[GatedFfn]

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.router = Router(config)
        self.experts = nn.ModuleList(  # type: ignore[assignment]
            GatedFfn(config.hidden, config.expert_ffn) for _ in range(config.num_experts)
        )
        self.num_experts = config.num_experts
        self.first = 0

    def forward(self, x: Tensor) -> Tensor:
        gates, chosen = self.router(x)
        if x.shape[0] == 1:
            return self._one_token(x, gates[0].tolist(), chosen[0].tolist())
        return self._many_tokens(x, gates, chosen)

    def _one_token(self, x: Tensor, gates: list[float], chosen: list[int]) -> Tensor:
        total: Tensor | None = None
        for gate, expert in zip(gates, chosen, strict=True):
            held = expert - self.first
            if 0 <= held < len(self.experts):
                part = self.experts[held].forward(x)
                total = part.mul_(gate) if total is None else total.add_(part, alpha=gate)
        return torch.zeros_like(x) if total is None else total

    def _many_tokens(self, x: Tensor, gates: Tensor, chosen: Tensor) -> Tensor:
        """Sorts the T * A choices by expert, so that each expert sees its tokens as one matrix."""
        flat = chosen.flatten()
        counts = flat.bincount(minlength=self.num_experts).tolist()
        start = sum(counts[: self.first])
        counts = counts[self.first : self.first + len(self.experts)]
        total = torch.zeros_like(x)
        if not any(counts):
            return total
        order = flat.argsort(stable=True)[start : start + sum(counts)]
        tokens = order // chosen.shape[1]
        inputs = torch.split(x.index_select(0, tokens), counts)
        parts = [expert.forward(rows) for expert, rows in zip(self.experts, inputs, strict=True) if len(rows)]
        weights = gates.flatten()[order].to(x.dtype).unsqueeze(1)
        return total.index_add_(0, tokens, torch.cat(parts).mul_(weights))
