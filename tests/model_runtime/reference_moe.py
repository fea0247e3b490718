"""The mixture of experts as it is defined, one expert after the other: the oracle of test_moe."""

import torch
from torch import Tensor

from model_runtime.families import ModelConfig

# T tokens, D hidden, F inner, E experts, C choices


def reference_moe(
    x: Tensor, scores: Tensor, gates: Tensor, ups: Tensor, downs: Tensor, config: ModelConfig, tilt: Tensor | None
) -> Tensor:
    """x [T, D], scores [T, C], gates and ups [E, F, D], downs [E, D, F], tilt [T or 1, E] -> [T, D]"""
    choices, groups = scores.shape[1], config.virtual_groups
    probabilities = torch.softmax(scores, dim=1)
    if tilt is not None:
        strongest = torch.stack([tilt[:, choice::choices].amax(1) for choice in range(choices)], dim=1)
        probabilities = probabilities * strongest
    ranks = probabilities.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    kept = torch.where(ranks < config.active_experts // groups, probabilities, torch.zeros(()))
    if config.renormalised:
        kept = kept / kept.sum(1, keepdim=True)
    shares = kept / groups * config.routed_scaling  # [T, C], zero for what was not chosen
    total = torch.zeros_like(x)
    for expert in range(len(gates)):
        inner = torch.nn.functional.silu(x @ gates[expert].T) * (x @ ups[expert].T)
        share = shares[:, expert % choices, None]
        total += torch.where(share > 0, share * (inner @ downs[expert].T), torch.zeros(()))
    return total
