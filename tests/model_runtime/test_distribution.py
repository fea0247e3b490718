"""Temperature, top-k, top-p and min-p give the distribution that was asked for, drawn row by row or all together."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import LogitsProcessorList
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from model_runtime.distribution import argmax, sample, sample_together
from model_runtime.request import Sampling

LAST = 1 - 2**-53
WAYS = pytest.mark.parametrize("way", [sample, sample_together])
Way = Callable[..., list[int]]


def shares(way: Way, logits: Tensor, sampling: Sampling, number: int = 200) -> Tensor:
    """How often each id comes when the points lie evenly: at most 1/number from its probability."""
    points = [(place + 0.5) / number for place in range(number)]
    rows = logits.repeat(number, 1)
    found = way(rows, argmax(rows)[0], [sampling] * number, points)
    return torch.bincount(torch.tensor(found), minlength=len(logits)) / number


def exact(logits: list[float], sampling: Sampling) -> Tensor:
    """The definition, one step after the other. Skips cases that rounding decides."""
    highest = max(logits)
    weights = [math.exp((logit - highest) / sampling.temperature) for logit in logits]
    if 0 < sampling.top_k < len(weights):
        floor = sorted(weights)[-sampling.top_k]
        assume(all(weight == floor or abs(weight - floor) > 1e-4 * floor for weight in weights))
        weights = [weight if weight >= floor else 0 for weight in weights]
    if sampling.top_p < 1:
        enough, reached = sampling.top_p * sum(weights), 0.0
        for weight in sorted(weights, reverse=True):
            assume(abs(reached - enough) > 1e-4 * enough)
            if reached < enough:
                floor = weight
            reached += weight
        assume(all(weight == floor or abs(weight - floor) > 1e-4 * floor for weight in weights))
        weights = [weight if weight >= floor else 0 for weight in weights]
    assume(all(abs(weight - sampling.min_p) > 1e-4 * weight for weight in weights if 0 < weight < 1))
    weights = [weight if weight >= sampling.min_p else 0 for weight in weights]
    return torch.tensor(weights) / sum(weights)


# Steps of 1/4 make ties, as logits computed in bfloat16 have.
LOGITS = st.lists(st.integers(-24, 24).map(lambda quarter: quarter / 4), min_size=1, max_size=300)
SAMPLINGS = st.builds(
    Sampling,
    temperature=st.floats(0.1, 4),
    top_k=st.integers(0, 20),
    top_p=st.one_of(st.just(1.0), st.floats(0.01, 1)),
    min_p=st.one_of(st.just(0.0), st.floats(0, 1)),
)


@WAYS
@settings(deadline=None)
@example([0.0, 0.0, 0.25], Sampling(temperature=1.0, top_k=2, top_p=0.5))  # two are the second of the top-k
@given(LOGITS, SAMPLINGS)
def test_every_combination_of_filters_follows_its_definition(way: Way, logits: list[float], sampling: Sampling) -> None:
    wanted = exact(logits, sampling)
    found = shares(way, torch.tensor(logits), sampling)
    assert (found - wanted).abs().max() <= 1 / 200 + 1e-5
    assert not found[wanted == 0].any()


@WAYS
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0.7),
        Sampling(temperature=1.3, top_k=7),
        Sampling(temperature=0.9, top_p=0.8),
        Sampling(temperature=1.0, min_p=0.3),
        Sampling(temperature=0.8, top_k=20, top_p=0.7, min_p=0.2),
        Sampling(temperature=0.8, top_k=4, top_p=0.99, min_p=0.05),
        Sampling(temperature=2.5, top_k=30, top_p=0.5, min_p=0.6),
    ],
    ids=["plain", "top_k", "top_p", "min_p", "all", "mostly top_k", "mostly min_p"],
)
def test_filters_are_those_of_transformers(way: Way, sampling: Sampling, seed: int) -> None:
    logits = torch.rand(40, generator=torch.Generator().manual_seed(seed)) * 2
    warpers = LogitsProcessorList([TemperatureLogitsWarper(sampling.temperature)])
    if sampling.top_k:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        warpers.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p:
        warpers.append(MinPLogitsWarper(sampling.min_p))
    wanted = warpers(torch.zeros(1, 1, dtype=torch.long), logits[None].clone()).softmax(1)[0]
    found = shares(way, logits, sampling, number=1000)
    assert (found - wanted).abs().max() <= 1 / 1000 + 1e-6
    assert torch.equal(found > 0, wanted > 0)


@WAYS
def test_a_tiny_temperature_is_greedy_and_a_huge_one_flat(way: Way) -> None:
    logits = torch.tensor([1.0, 2.0, 1.999999, -math.inf])
    assert shares(way, logits, Sampling(temperature=5e-324)).tolist() == [0, 1, 0, 0]
    flat = shares(way, logits, Sampling(temperature=1e300), number=300)
    assert flat.tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0], abs=1 / 300)


@WAYS
def test_the_smallest_top_p_keeps_the_best_alone(way: Way) -> None:
    logits = torch.tensor([1.0, 2.0, 1.5])
    assert shares(way, logits, Sampling(temperature=1, top_p=5e-324)).tolist() == [0, 1, 0]


@WAYS
@pytest.mark.parametrize("point", [0.0, LAST])
def test_what_has_no_weight_is_never_drawn(way: Way, point: float) -> None:
    logits = torch.full((3000,), -math.inf)
    logits[[130, 700]] = torch.tensor([1.0, 3.0])
    for sampling in (Sampling(temperature=1), Sampling(temperature=1, top_p=0.5), Sampling(temperature=1, top_k=1)):
        drawn = way(logits[None], torch.tensor([3.0]), [sampling], [point])
        assert drawn == [130 if point == 0 and sampling.top_k == 0 and sampling.top_p == 1 else 700]


@pytest.mark.parametrize("kind", ["peaked", "flat", "rounded", "mostly forbidden"])
def test_both_ways_draw_the_same_from_a_large_vocabulary(kind: str) -> None:
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(8, 10_007, generator=generator) * (0.1 if kind == "flat" else 4)
    if kind == "rounded":
        logits = logits.bfloat16().float()
    if kind == "mostly forbidden":
        logits[:, torch.rand(10_007, generator=generator) < 0.97] = -math.inf
    samplings = [
        Sampling(temperature=0.7, top_p=0.9),
        Sampling(temperature=1.0, top_k=50),
        Sampling(temperature=1.0),
        Sampling(temperature=1.2, top_k=5000, top_p=0.99),
        Sampling(temperature=1.0, min_p=0.01),
        Sampling(temperature=1.0, top_p=0.999),
        Sampling(temperature=0.9, top_k=20, top_p=0.8, min_p=0.02),
        Sampling(temperature=1.0, top_k=20_000),
    ]
    highest = argmax(logits)[0]
    differing = 0
    for point in torch.rand(40, generator=generator).tolist():
        one_by_one, together = (way(logits, highest, samplings, [point] * 8) for way in (sample, sample_together))
        differing += sum(a != b for a, b in zip(one_by_one, together, strict=True))
    assert differing <= 2  # of 320: sums that round differently, and a point between two ids


def test_top_p_reaches_beyond_its_first_look() -> None:
    """The kept share is right although thousands of tokens are in it."""
    logits = torch.linspace(0, 1, 30_000)
    weights = logits.double().exp()
    wanted = int((weights.flip(0).cumsum(0) < 0.6 * weights.sum()).sum()) + 1
    for way in (sample, sample_together):
        lowest = way(logits[None], torch.tensor([1.0]), [Sampling(temperature=1, top_p=0.6)], [0.0])[0]
        assert lowest == pytest.approx(30_000 - wanted, abs=3)


def test_argmax_takes_the_first_of_equals_and_finds_nan() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0], [0.0, math.nan, 5.0], [-math.inf] * 3])
    highest, places = argmax(logits)
    assert places[:2].tolist() == [1, 1]
    assert highest[0] == 3 and highest[1].isnan() and highest[2] == -math.inf
