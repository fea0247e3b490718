"""Draws depend on seed and position only, and follow the distribution that was asked for."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model_runtime.request import Sampling
from model_runtime.sampler import Draw, choose, uniform


def draw(position: int = 0, seen: tuple[int, ...] = (), **sampling: float) -> Draw:
    return Draw(Sampling(**sampling), position, seen)


def counts(logits: torch.Tensor, number: int, **sampling: float) -> torch.Tensor:
    rows = logits.repeat(number, 1)
    chosen = choose(rows, [draw(position, **sampling) for position in range(number)])
    return torch.bincount(torch.tensor(chosen), minlength=len(logits)) / number


def test_temperature_0_takes_the_best():
    logits = torch.tensor([[0.1, 3.0, 2.0], [5.0, 1.0, 2.0]])
    assert choose(logits, [draw(), draw()]) == [1, 0]


def test_draws_follow_the_distribution():
    logits = torch.log(torch.tensor([0.5, 0.3, 0.15, 0.05]))
    assert counts(logits, 4000, temperature=1.0) == pytest.approx(torch.tensor([0.5, 0.3, 0.15, 0.05]), abs=0.025)


def test_temperature_sharpens():
    logits = torch.log(torch.tensor([0.6, 0.4]))
    squared = 0.36 / (0.36 + 0.16)
    assert counts(logits, 4000, temperature=0.5)[0] == pytest.approx(squared, abs=0.025)


def test_a_tiny_temperature_is_greedy_and_a_huge_one_flat():
    logits = torch.tensor([1.0, 2.0, 1.5])
    assert counts(logits, 50, temperature=1e-45)[1] == 1
    assert counts(logits, 3000, temperature=1e30) == pytest.approx(torch.full((3,), 1 / 3), abs=0.03)


def test_top_k_keeps_the_k_best():
    logits = torch.log(torch.tensor([0.1, 0.4, 0.2, 0.3]))
    assert counts(logits, 3000, temperature=1.0, top_k=2) == pytest.approx(torch.tensor([0, 4 / 7, 0, 3 / 7]), abs=0.03)


def test_top_p_keeps_the_fewest_that_reach_it():
    logits = torch.log(torch.tensor([0.1, 0.4, 0.2, 0.3]))
    kept = counts(logits, 3000, temperature=1.0, top_p=0.65)
    assert kept == pytest.approx(torch.tensor([0, 4 / 7, 0, 3 / 7]), abs=0.03)
    assert counts(logits, 50, temperature=1.0, top_p=1e-9)[1] == 1


def test_top_p_reaches_beyond_the_first_guess():
    flat = torch.zeros(5000)
    chosen = choose(flat.repeat(400, 1), [draw(i, temperature=1.0, top_p=0.9) for i in range(400)])
    assert len(set(chosen)) > 350


def test_repetition_penalty_lowers_what_was_seen_whatever_its_sign():
    logits = torch.tensor([[2.0, 1.9, -0.1, -0.15]])
    assert choose(logits.clone(), [draw(seen=(0, 0, 2), repetition_penalty=1.5)]) == [1]
    only_negative = torch.tensor([[-1.0, -1.2]])
    assert choose(only_negative, [draw(seen=(0,), repetition_penalty=1.5)]) == [1]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_no_numbers_fail_their_row_only(bad, temperature):
    logits = torch.zeros(3, 10)
    logits[:, 4] = 50.0
    logits[1, 7] = bad
    assert choose(logits, [draw(temperature=temperature)] * 3) == [4, None, 4]


@given(st.integers(), st.integers(0, 2**40))
def test_uniform_stays_below_1(seed, position):
    assert 0 <= uniform(seed, position) < 1


def test_uniform_is_spread_over_positions_and_over_seeds():
    for values in ([uniform(3, i) for i in range(2000)], [uniform(i, 3) for i in range(2000)]):
        bins = torch.histc(torch.tensor(values), bins=10, min=0, max=1)
        assert bins.min() > 140 and bins.max() < 260
        assert len(set(values)) == 2000


@given(st.integers(0, 2**31), st.integers(0, 500), st.integers(0, 3), st.floats(0.2, 2.0), st.integers(0, 6))
def test_neither_batch_mates_nor_earlier_draws_matter(seed, position, row, temperature, top_k):
    logits = torch.randn(4, 30, generator=torch.Generator().manual_seed(seed))
    mine = draw(position, temperature=temperature, seed=seed, top_k=top_k, top_p=0.9)
    others = [draw(i, temperature=1.0, seed=i, repetition_penalty=1.2, seen=(1, 2)) for i in range(4)]
    alone = choose(logits[row : row + 1].clone(), [mine])
    together = choose(logits.clone(), [mine if i == row else others[i] for i in range(4)])
    assert together[row] == alone[0]
