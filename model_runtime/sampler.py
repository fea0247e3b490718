"""Logits -> the next token. The draw of a position depends on the seed and the position only: neither on what else is
in the batch nor on what was drawn before, so that an answer replayed after a failure goes on as it began."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model_runtime.request import Sampling

_NUCLEUS_GUESS = 1024  # sorting a whole vocabulary takes milliseconds, and top_p seldom reaches this far
_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Draw:
    """What one row's choice depends on. `position` counts generated tokens from 0; `seen`: prompt and generated ids."""

    sampling: Sampling
    position: int
    seen: Sequence[int]


def choose(logits: Tensor, draws: Sequence[Draw]) -> list[int | None]:
    """`logits` is [len(draws), vocab] float32; may be changed. None where the logits are not finite."""
    for row, draw in zip(logits, draws, strict=True):
        if draw.sampling.repetition_penalty != 1.0:
            penalise(row, draw.seen, draw.sampling.repetition_penalty)
    highest, best = logits.max(dim=1)  # NaN wins every comparison
    finite = torch.isfinite(highest).tolist()
    greedy = best.tolist()
    chosen: list[int | None] = []
    for row, draw in enumerate(draws):
        if not finite[row]:
            chosen.append(None)
        elif draw.sampling.temperature == 0:
            chosen.append(greedy[row])
        else:
            chosen.append(_sample(logits[row] - highest[row], draw))
    return chosen


def penalise(row: Tensor, seen: Sequence[int], penalty: float) -> None:
    """Keskar et al., "CTRL", 2019: what was seen is divided by the penalty, or multiplied where negative. In place."""
    ids = torch.tensor(sorted(set(seen)), dtype=torch.long, device=row.device)
    scores = row[ids]
    row[ids] = torch.where(scores > 0, scores / penalty, scores * penalty)


def uniform(seed: int, position: int) -> float:
    """In [0, 1): splitmix64 (Steele et al., 2014) of the seed, then of the position in that stream."""
    return _mix(_mix(seed & _MASK) + position * 0x9E3779B97F4A7C15) / 2**64


def _mix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return (x ^ (x >> 31)) >> 11 << 11  # 53 bits: exact as a float, and below 1


def _sample(row: Tensor, draw: Draw) -> int:
    """`row` is [vocab], its maximum 0."""
    sampling = draw.sampling
    row = row.double() / sampling.temperature
    ids: Tensor | None = None
    if 0 < sampling.top_k < len(row):
        row, ids = row.topk(sampling.top_k)
    weights = row.exp()
    if sampling.top_p < 1:
        weights, ids = _nucleus(weights, ids, sampling.top_p)
    cumulative = weights.cumsum(0)
    point = torch.tensor([uniform(sampling.seed, draw.position)], dtype=torch.double, device=row.device)
    found = torch.searchsorted(cumulative, point * cumulative[-1], right=True)
    index = min(int(found), len(weights) - 1)
    return index if ids is None else int(ids[index])


def _nucleus(weights: Tensor, ids: Tensor | None, top_p: float) -> tuple[Tensor, Tensor]:
    """The fewest heaviest weights that sum to `top_p` of the whole, and their ids. Always at least one."""
    enough = weights.sum() * top_p
    if ids is None:
        heaviest, ids = weights.topk(min(_NUCLEUS_GUESS, len(weights)))
        if heaviest.sum() < enough:
            heaviest, ids = weights.sort(descending=True, stable=True)
        weights = heaviest
    kept = int((weights.cumsum(0) < enough).sum()) + 1
    return weights[:kept], ids[:kept]
