"""Gumbel gating: the statistics of its samples, its gradient, and that a starved expert recovers under drift."""

import itertools
from dataclasses import replace

import pytest
import torch
from torch import nn

from model_runtime.families import ModelConfig
from model_runtime.gating import (
    LEAST_SHARE,
    PATIENCE_BATCHES,
    TEMPERATURE_FLOOR,
    TEMPERATURE_STEP,
    WINDOW_BATCHES,
    GumbelGate,
    Temperatures,
)
from model_runtime.router import Router

HIDDEN = 32
CONFIG = ModelConfig(
    layers=1,
    hidden=HIDDEN,
    heads=4,
    kv_heads=4,
    head_dim=8,
    ffn=48,
    vocab=64,
    context_tokens=64,
    rms_eps=1e-5,
)


def router(seed: int = 0, *, experts: int = 4, active: int = 2, spread: float = 1.0, **changes: object) -> Router:
    made = Router(replace(CONFIG, num_experts=experts, active_experts=active, **changes))
    generator = torch.Generator().manual_seed(seed)
    made.score.weight.data = torch.randn(made.score.weight.shape, generator=generator) * spread
    return made


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(7)


def test_not_in_training_it_is_the_router() -> None:
    for changes in ({}, {"renormalised": False}, {"experts": 8, "virtual_groups": 2, "routed_scaling": 2.0}):
        plain = router(**changes)
        gate = GumbelGate(plain).eval()
        x = torch.randn(20, HIDDEN)
        first, again, expected = gate(x), gate(x), plain.forward(x)
        assert all(torch.equal(a, b) for a, b in zip(first, expected, strict=True))
        assert all(torch.equal(a, b) for a, b in zip(again, expected, strict=True))
        assert torch.equal(gate.temperatures.batches, torch.tensor(0))


@pytest.mark.parametrize("renormalised", [True, False])
def test_in_training_the_gates_are_the_routers_for_what_was_sampled(renormalised: bool) -> None:
    gate = GumbelGate(router(renormalised=renormalised))
    x = torch.randn(50, HIDDEN)
    gates, chosen = gate(x)
    scores = gate.router.score.forward(x)
    expected = scores.gather(1, chosen).softmax(-1) if renormalised else scores.softmax(-1).gather(1, chosen)
    torch.testing.assert_close(gates, expected)
    assert (gates[:, 0] >= gates[:, 1]).all()
    assert all(len(set(row)) == 2 for row in chosen.tolist())


def test_samples_are_without_replacement_and_by_their_probabilities() -> None:
    """Against Plackett-Luce, worked out: P(i then j) = p_i * p_j / (1 - p_i). 200,000 draws of one token."""
    gate = GumbelGate(router(spread=0.1), adaptive=False)
    x = torch.randn(1, HIDDEN)
    p = gate.router.score.forward(x)[0].softmax(-1).tolist()
    draws = 200_000
    _, chosen = gate(x.expand(draws, HIDDEN))
    pairs = chosen.sort(-1).values
    for i, j in itertools.combinations(range(4), 2):
        expected = p[i] * p[j] / (1 - p[i]) + p[j] * p[i] / (1 - p[j])
        found = float(((pairs[:, 0] == i) & (pairs[:, 1] == j)).float().mean())
        assert found == pytest.approx(expected, abs=5 * (expected / draws) ** 0.5)


def test_a_lower_temperature_makes_any_expert_likelier_as_documented() -> None:
    gate = GumbelGate(router(active=1, spread=0.3), adaptive=False)
    x = torch.randn(1, HIDDEN)
    p = gate.router.score.forward(x)[0].softmax(-1).detach()
    draws = 100_000
    for expert in range(4):  # the likeliest as well as the least likely
        gate.temperatures.value.fill_(1)
        gate.temperatures.value[expert] = 0.4
        q = p**gate.temperatures.value
        q /= q.sum()
        assert q[expert] > p[expert]
        _, chosen = gate(x.expand(draws, HIDDEN))
        found = chosen.flatten().bincount(minlength=4) / draws
        torch.testing.assert_close(found, q, atol=0.01, rtol=0)


@pytest.mark.parametrize("active", [1, 2, 4])
def test_the_gradient_reaches_every_score(active: int) -> None:
    """With one active expert the gate is always 1: only the straight-through part has a gradient."""
    gate = GumbelGate(router(active=active, spread=0.1))
    gates, _ = gate(torch.randn(64, HIDDEN))
    (gates * torch.randn(64, active)).sum().backward()
    gradient = gate.router.score.weight.grad
    assert gradient is not None and torch.isfinite(gradient).all()
    assert (gradient.abs().sum(1) > 0).all()


def test_the_gradient_favours_an_expert_that_lowers_the_loss() -> None:
    gate = GumbelGate(router(active=1, spread=0.0), adaptive=False)
    x = torch.ones(512, HIDDEN)
    gates, chosen = gate(x)
    worth = torch.tensor([0.0, 0.0, 1.0, 0.0])
    (-(gates[:, 0] * worth[chosen[:, 0]])).sum().backward()
    gradient = gate.router.score.weight.grad.sum(1)
    assert gradient[2] < 0  # its score is to rise
    assert (gradient[[0, 1, 3]] > 0).all()


def test_scores_far_apart_give_finite_gradients() -> None:
    gate = GumbelGate(router(active=2, spread=100.0))
    gates, _ = gate(torch.randn(64, HIDDEN))
    gates.pow(2).sum().backward()
    assert torch.isfinite(gates).all() and torch.isfinite(gate.router.score.weight.grad).all()


def test_temperatures_fall_and_recover_as_the_rule_says() -> None:
    temperatures = Temperatures(4)
    starved, even = torch.tensor([10, 10, 10, 0]), torch.tensor([10, 10, 10, 10])
    for _ in range(PATIENCE_BATCHES - 1):
        temperatures.adapt(starved)
    assert temperatures.value.tolist() == [1, 1, 1, 1]
    temperatures.adapt(starved)
    assert temperatures.value.tolist() == pytest.approx([1, 1, 1, 1 - TEMPERATURE_STEP])
    for _ in range(100 * PATIENCE_BATCHES):
        temperatures.adapt(starved)
    assert temperatures.value.tolist() == pytest.approx([1, 1, 1, TEMPERATURE_FLOOR])
    batches = 0
    while temperatures.value[3] < 1:
        temperatures.adapt(even)
        batches += 1
    assert WINDOW_BATCHES * LEAST_SHARE * 0.7 < batches < 2 * WINDOW_BATCHES + PATIENCE_BATCHES


def test_a_row_of_short_batches_that_is_broken_starts_anew() -> None:
    temperatures = Temperatures(2)
    for _ in range(8):
        for _ in range(PATIENCE_BATCHES - 1):
            temperatures.adapt(torch.tensor([1, 0]))
        temperatures.adapt(torch.tensor([0, PATIENCE_BATCHES - 1]))  # it has caught up
        assert temperatures.value.tolist() == [1, 1]


def test_the_window_is_the_last_thousand_batches() -> None:
    temperatures = Temperatures(2)
    for number in range(WINDOW_BATCHES + 300):
        temperatures.adapt(torch.tensor([number % 7, 3]))
    expected = sum(number % 7 for number in range(300, WINDOW_BATCHES + 300))
    assert temperatures.total.tolist() == [expected, 3 * WINDOW_BATCHES]
    restored = Temperatures(2)
    restored.load_state_dict(temperatures.state_dict())
    assert torch.equal(restored.total, temperatures.total) and torch.equal(restored.batches, temperatures.batches)


def under_drift(adaptive: bool) -> tuple[set[int], float]:
    """Four kinds of token, each with its own target; an expert is a constant, so each kind wants one of its own. At
    first there are three kinds, and expert 3 is dead: its score is 14 behind. Then the fourth kind makes up half of the
    tokens. Who is chosen in the end, without sampling, and the mean loss of the last 100 batches."""
    torch.manual_seed(0)
    kinds = torch.cat([2 * torch.eye(4), torch.ones(4, 1), torch.zeros(4, HIDDEN - 5)], dim=1)
    targets = 3 * torch.eye(4)
    gate = GumbelGate(router(active=1, spread=0.02), adaptive=adaptive)
    gate.router.score.weight.data[3, 4] -= 14
    outputs = nn.Parameter(torch.zeros(4, 4))  # one expert a row
    optimizer = torch.optim.Adam([gate.router.score.weight, outputs], lr=0.02)
    losses = []
    for batch in range(1600):
        weights = torch.tensor([1.0, 1.0, 1.0, 0.0 if batch < 400 else 3.0])
        kind = torch.multinomial(weights, 64, replacement=True)
        gates, chosen = gate(kinds[kind])
        computed = (gates.unsqueeze(-1) * outputs[chosen]).sum(1)
        loss = (computed - targets[kind]).square().sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    gate.eval()
    _, chosen = gate(kinds)
    return set(chosen.flatten().tolist()), sum(losses[-100:]) / 100


def test_under_drift_a_dead_expert_recovers_only_with_adaptation() -> None:
    chosen, loss = under_drift(adaptive=False)
    assert 3 not in chosen and loss > 0.5
    chosen, loss = under_drift(adaptive=True)
    assert chosen == {0, 1, 2, 3} and loss < 0.1
