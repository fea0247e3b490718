"""Draws from rows of logits: temperature, then top-k, top-p and min-p. Knows no requests but their Sampling.

The order is that of transformers: top-p counts what top-k left, as in vLLM too, and min-p compares with the most
probable token, which no filter removes, so it may come last. Each filter is a floor: what is as probable as the last
token it keeps is kept too, whatever its id.

On a CPU rows are drawn one by one, each in a core's cache; on a GPU all together."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model_runtime.request import Sampling

# R rows, V vocabulary

_DEPTH = 2048  # top-p seldom reaches further down
_BLOCK = 128  # weights summed together, to find a place without the sum up to each


def argmax(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The highest of each row and its place, both [R]; NaN counts as highest."""
    if logits.device.type != "cpu":
        highest, places = logits.max(dim=1)
        return highest, places
    places = torch.from_numpy(logits.numpy().argmax(axis=1))  # three times as fast as torch's
    return logits.gather(1, places[:, None])[:, 0], places


def sample(logits: Tensor, highest: Tensor, samplings: Sequence[Sampling], points: Sequence[float]) -> list[int]:
    """One id of each row of `logits` [R, V] float32 whose maximum is `highest` [R], finite. `points` in [0, 1) decide:
    the id is the inverse of the cumulative distribution there."""
    if logits.device.type != "cpu":
        return sample_together(logits, highest, samplings, points)
    vocab = logits.shape[1]
    weights = torch.zeros(-(-vocab // _BLOCK) * _BLOCK)
    found = []
    for row, top, sampling, point in zip(logits, highest.tolist(), samplings, points, strict=True):
        torch.sub(row, top, out=weights[:vocab]).mul_(_coldness(sampling)).exp_()  # the most probable has weight 1
        floor = max(sampling.min_p, _floor(weights.numpy()[:vocab], sampling) if _is_cut(sampling) else 0.0)
        if floor > 0:
            torch.threshold_(weights, float(np.nextafter(np.float32(floor), np.float32(0))), 0.0)
        found.append(_invert(weights, point))
    return found


def _coldness(sampling: Sampling) -> float:
    return 1 / min(max(sampling.temperature, 1e-30), 1e30)  # in float32's range


def _is_cut(sampling: Sampling) -> bool:
    return sampling.top_k > 0 or sampling.top_p < 1


def _floor(weights: NDArray[np.float32], sampling: Sampling, depth: int = _DEPTH) -> float:
    """The lowest weight that top-k and top-p keep. `depth`: how far down top-p looks first."""
    count = min(sampling.top_k or depth, len(weights))
    cumulative = np.cumsum(ordered := _heaviest(weights, count), dtype=np.float64)
    if sampling.top_p == 1:
        return float(ordered[-1])
    if sampling.top_k:  # and what is as probable as the last of them
        last = ordered[-1]
        whole = cumulative[-1] + float(last) * (np.count_nonzero(weights == last) - np.count_nonzero(ordered == last))
    else:
        whole = torch.from_numpy(weights).sum(dtype=torch.double).item()
    place = int(np.searchsorted(cumulative, sampling.top_p * whole))
    if place == count < len(weights) and not sampling.top_k:
        return _floor(weights, sampling, len(weights))
    return float(ordered[min(place, count - 1)])


def _heaviest(weights: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """[count], descending. numpy sorts twenty times as fast as torch, zeros in no time, but is slow to part many zeros
    from the rest."""
    few_zeros = np.count_nonzero(weights[::61]) * 61 > 0.75 * len(weights)
    values = np.partition(weights, len(weights) - count)[-count:] if few_zeros else weights
    return np.sort(values)[: -count - 1 : -1]


def _invert(weights: Tensor, point: float) -> int:
    """The first place where the cumulative weight exceeds that share of the whole: so its own weight is not 0."""
    blocks = weights.view(-1, _BLOCK)
    cumulative = np.cumsum(blocks.sum(1).numpy(), dtype=np.float64)
    reached = min(point * cumulative[-1], np.nextafter(cumulative[-1], 0))
    block = int(np.searchsorted(cumulative, reached, side="right"))
    inside = np.cumsum(blocks[block].numpy(), dtype=np.float64)
    rest = reached - (cumulative[block - 1] if block else 0.0)
    return block * _BLOCK + int(np.searchsorted(inside, min(rest, np.nextafter(inside[-1], 0)), side="right"))


def sample_together(
    logits: Tensor, highest: Tensor, samplings: Sequence[Sampling], points: Sequence[float]
) -> list[int]:
    """The same for all rows at once."""
    device = logits.device
    coldness = torch.tensor([[_coldness(sampling)] for sampling in samplings], device=device)
    weights = (logits - highest[:, None]).mul_(coldness).exp_()
    floors = torch.tensor([[sampling.min_p] for sampling in samplings], device=device)
    if any(map(_is_cut, samplings)):
        depth = max(sampling.top_k or _DEPTH for sampling in samplings if _is_cut(sampling))
        floors = torch.maximum(floors, _floors(weights, samplings, min(depth, logits.shape[1])))
    cumulative = torch.where(weights >= floors, weights, 0).cumsum(1, dtype=torch.double)
    whole = cumulative[:, -1:]
    reached = torch.tensor(points, dtype=torch.double, device=device)[:, None] * whole
    reached = torch.minimum(reached, torch.nextafter(whole, torch.zeros_like(whole)))
    places: list[int] = torch.searchsorted(cumulative, reached, right=True)[:, 0].tolist()
    return places


def _floors(weights: Tensor, samplings: Sequence[Sampling], depth: int) -> Tensor:
    """[R, 1]; 0 for a row without top-k and top-p. `depth`: how far down top-p looks first."""
    vocab, device = weights.shape[1], weights.device
    ordered = weights.topk(depth, dim=1).values
    cumulative = ordered.cumsum(1, dtype=torch.double)
    last = torch.tensor([[min(sampling.top_k or depth, depth) - 1] for sampling in samplings], device=device)
    is_top_k = torch.tensor([[sampling.top_k > 0] for sampling in samplings], device=device)
    top_p = torch.tensor([[sampling.top_p] for sampling in samplings], dtype=torch.double, device=device)
    least = ordered.gather(1, last)  # of the top-k; what is as probable as it counts too
    is_inside = torch.arange(depth, device=device) <= last
    beyond = (weights == least).sum(1, keepdim=True) - ((ordered == least) & is_inside).sum(1, keepdim=True)
    of_top_k = cumulative.gather(1, last) + least.double() * beyond
    whole = torch.where(is_top_k, of_top_k, weights.sum(1, keepdim=True, dtype=torch.double))
    place = torch.searchsorted(cumulative, torch.where(top_p < 1, top_p * whole, torch.inf))
    if depth < vocab and bool(((place == depth) & (top_p < 1) & ~is_top_k).any()):
        return _floors(weights, samplings, vocab)
    return torch.where(is_top_k | (top_p < 1), ordered.gather(1, torch.minimum(place, last)), 0)
