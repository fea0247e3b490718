"""The mixture of experts against its definition, for any shape, whole and in parts."""

from dataclasses import replace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_moe import reference_moe
from tiny_model import TINY

from model_runtime.moe import Moe


def random_moe(copies: int, groups: int, active: int, inner: int, scaling: float, seed: int) -> Moe:
    config = replace(
        TINY,
        expert_ffn=inner,
        num_experts=copies * groups,
        active_experts=active,
        virtual_groups=groups,
        routed_scaling=scaling,
    )
    moe = Moe(config)
    generator = torch.Generator().manual_seed(seed)
    for parameter in moe.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * parameter.shape[-1] ** -0.5)
    return moe


def expected(moe: Moe, x: torch.Tensor, active: int, scaling: float) -> torch.Tensor:
    weights = [torch.stack([getattr(e, name).weight for e in moe.experts]) for name in ("gate", "up", "down")]
    return reference_moe(x, x @ moe.router.score.weight.T, *weights, active, moe.router.groups, scaling)


@st.composite
def shapes(draw):
    groups, copies = draw(st.sampled_from([1, 1, 2, 3])), draw(st.integers(1, 5))
    active = groups * draw(st.integers(1, copies))
    return copies, groups, active, draw(st.integers(1, 20)), draw(st.sampled_from([1.0, 2.5])), draw(st.integers(0, 99))


@settings(max_examples=80, deadline=None)
@given(shapes(), st.integers(1, 9), st.booleans())
def test_it_computes_its_definition_for_any_shape(shape, tokens, packed):
    copies, groups, active, inner, scaling, seed = shape
    moe = random_moe(*shape)
    x = torch.randn(tokens, TINY.hidden, generator=torch.Generator().manual_seed(seed + 1))
    oracle = expected(moe, x, active, scaling)
    if packed:
        for expert in moe.experts:
            for linear in (expert.gate, expert.up, expert.down):
                linear.pack()
    torch.testing.assert_close(moe(x), oracle, rtol=1e-4, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(shapes(), st.integers(1, 9), st.data())
def test_parts_that_hold_some_experts_each_add_up_to_the_whole(shape, tokens, data):
    moe = random_moe(*shape)
    x = torch.randn(tokens, TINY.hidden, generator=torch.Generator().manual_seed(7))
    whole = moe(x)
    experts, cut = moe.experts, data.draw(st.integers(1, len(moe.experts)))
    total = torch.zeros_like(whole)
    for moe.first, moe.experts in ((0, experts[:cut]), (cut, experts[cut:])):
        total += moe(x)
    torch.testing.assert_close(total, whole, rtol=1e-4, atol=1e-5)


def test_gates_of_the_chosen_sum_to_the_scaling_and_groups_share_the_choice():
    moe = random_moe(copies=4, groups=2, active=4, inner=8, scaling=2.0, seed=1)
    gates, experts = moe.router(torch.randn(50, TINY.hidden, generator=torch.Generator().manual_seed(3)))
    torch.testing.assert_close(gates.sum(1), torch.full((50,), 2.0))
    for chosen, weights in zip(experts.tolist(), gates.tolist(), strict=True):
        by_copy = sorted(zip(chosen, weights, strict=True))
        assert [expert for expert, _ in by_copy[2:]] == [expert + 4 for expert, _ in by_copy[:2]]
        assert [weight for _, weight in by_copy[2:]] == [weight for _, weight in by_copy[:2]]
