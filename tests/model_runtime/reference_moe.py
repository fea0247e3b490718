"""The mixture of experts as it is defined, one expert after the other: the oracle of test_moe."""

import torch
from torch import Tensor

# T tokens, D hidden, F inner, E experts, A active experts


def reference_moe(
    x: Tensor, scores: Tensor, gates: Tensor, ups: Tensor, downs: Tensor, active: int, groups: int, scaling: float
) -> Tensor:
    """x [T, D], scores [T, E / groups], gates and ups [E, F, D], downs [E, D, F] -> [T, D]"""
    copies = scores.shape[1]
    total = torch.zeros_like(x)
    ranks = scores.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    kept = torch.where(ranks < active // groups, scores, torch.tensor(float("-inf")))
    shares = torch.softmax(kept, dim=1) / groups * scaling  # [T, E / groups], zero for what was not chosen
    for expert in range(len(gates)):
        inner = torch.nn.functional.silu(x @ gates[expert].T) * (x @ ups[expert].T)
        share = shares[:, expert % copies, None]
        total += torch.where(share > 0, share * (inner @ downs[expert].T), torch.zeros(()))
    return total
