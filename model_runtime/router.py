"""Which experts a token goes to, and how much each counts."""

import torch
from torch import Tensor, nn

from model_runtime.families import ModelConfig
from model_runtime.linear import Linear

# T tokens, D hidden, E experts, A active experts, G virtual groups, C = E / G choices


class Router(nn.Module):
    """Scores C choices and takes A / G of them. Without virtual groups a choice is an expert; with them choice c stands
    for the experts c, c + C, c + 2C, ..., one in each group, which share its gate. Gates are the softmax over what was
    chosen, or what the softmax over all gives the chosen, times `routed_scaling`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.groups = config.virtual_groups
        self.choices = config.num_experts // self.groups
        self.taken = config.active_experts // self.groups
        self.scaling = config.routed_scaling / self.groups
        self.renormalised = config.renormalised
        # What every gate is, where a token takes one choice and gates are the softmax over what it took.
        self.only_gate = self.scaling if self.renormalised and self.taken == 1 else None
        self.score = Linear(config.hidden, self.choices, bias=config.router_bias)
        self.scores = torch.empty(0)  # [T, C] of the last forward, before the tilt

    def forward(self, x: Tensor, tilt: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """x [T, D] -> gates [T, A / G] float32, choices [T, A / G]. `tilt` ([T, E] or [1, E], float32, none negative)
        multiplies the probabilities before the choice; 0 takes an expert out."""
        scores = self.scores = self.score.forward(x.to(self.score.weight.dtype))
        if self.renormalised:
            if tilt is not None:
                scores = scores.float() + self._by_choice(tilt).log()
            if self.only_gate is not None:
                return x.new_full((len(x), 1), self.only_gate, dtype=torch.float32), scores.argmax(-1, keepdim=True)
            best, chosen = scores.topk(self.taken, dim=-1)
            return best.float().softmax(dim=-1).mul_(self.scaling), chosen
        probabilities = scores.float().softmax(dim=-1)
        if tilt is not None:
            probabilities *= self._by_choice(tilt)
        gates, chosen = probabilities.topk(self.taken, dim=-1)
        return gates.mul_(self.scaling), chosen

    def experts_of(self, chosen: Tensor) -> Tensor:
        """[..., A / G] choices -> [..., A] experts."""
        if self.groups == 1:
            return chosen
        firsts = torch.arange(0, self.groups * self.choices, self.choices, device=chosen.device)
        return (chosen.unsqueeze(-1) + firsts).flatten(-2)

    def _by_choice(self, tilt: Tensor) -> Tensor:
        """A rule may name one expert of a choice or all: they count once. One that is out takes the others along."""
        by_group = tilt.view(tilt.shape[0], self.groups, self.choices)
        return by_group.amax(1) * (by_group.amin(1) > 0)
