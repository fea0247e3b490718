"""Which experts a token goes to, and how much each counts."""

import torch
from torch import Tensor, nn

from model_runtime.families import ModelConfig
from model_runtime.linear import Linear

# T tokens, D hidden, E experts, A active experts, G virtual groups


class Router(nn.Module):
    """Scores E/G copies once and chooses A/G of them; copy c stands for the experts c, c + E/G, c + 2 E/G, ..., one in
    each group. Gates are the softmax over what was chosen (so they sum to 1) times `routed_scaling`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.groups = config.virtual_groups
        self.copies = config.num_experts // self.groups
        self.chosen = config.active_experts // self.groups
        self.scaling = config.routed_scaling / self.groups
        self.score = Linear(config.hidden, self.copies)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x [T, D] -> gates [T, A] float32, experts [T, A]."""
        scores, copies = self.score.forward(x).topk(self.chosen, dim=-1)
        gates = scores.float().softmax(dim=-1) * self.scaling
        if self.groups == 1:
            return gates, copies
        firsts = torch.arange(0, self.groups * self.copies, self.copies, device=x.device)  # of each group
        experts = (copies.unsqueeze(2) + firsts).flatten(1)
        return gates.unsqueeze(2).expand(-1, -1, self.groups).flatten(1), experts
