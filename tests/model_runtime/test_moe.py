"""The mixture of experts against its definition, for any shape, whole and in parts, steered and guarded."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_moe import reference_moe
from tiny_model import TINY

from model_runtime.families import ModelConfig
from model_runtime.moe import Moe

D = TINY.hidden


def config(copies: int, groups: int, active: int, inner: int, scaling: float, **changes: object) -> ModelConfig:
    return replace(
        TINY,
        expert_ffn=inner,
        num_experts=copies * groups,
        active_experts=active,
        virtual_groups=groups,
        routed_scaling=scaling,
        **changes,
    )


def random_moe(made: ModelConfig, seed: int) -> Moe:
    moe = Moe(made)
    generator = torch.Generator().manual_seed(seed)
    for parameter in moe.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * parameter.shape[-1] ** -0.5)
    return moe


def inputs(tokens: int, seed: int) -> torch.Tensor:
    return torch.randn(tokens, D, generator=torch.Generator().manual_seed(seed))


def expected(moe: Moe, x: torch.Tensor, made: ModelConfig, tilt: torch.Tensor | None = None) -> torch.Tensor:
    experts = [moe.experts[str(number)] for number in range(made.num_experts)]
    weights = [torch.stack([getattr(e, name).weight for e in experts]) for name in ("gate", "up", "down")]
    scores = x @ moe.router.score.weight.T
    return reference_moe(x, scores, *weights, made, tilt)


@st.composite
def shapes(draw):
    groups, copies = draw(st.sampled_from([1, 1, 2, 3])), draw(st.integers(1, 5))
    active = groups * draw(st.integers(1, copies))
    renormalised = groups > 1 or draw(st.booleans())
    shape = (copies, groups, active, draw(st.integers(1, 20)), draw(st.sampled_from([1.0, 2.5])))
    return config(*shape, renormalised=renormalised), draw(st.integers(0, 99))


@settings(max_examples=80, deadline=None)
@given(shapes(), st.integers(1, 9), st.booleans(), st.booleans())
def test_it_computes_its_definition_for_any_shape(shape, tokens, packed, guarded):
    moe, x = random_moe(*shape), inputs(tokens, shape[1] + 1)
    oracle = expected(moe, x, shape[0])
    if packed:
        moe.pack()
    torch.testing.assert_close(moe(x, guarded=guarded), oracle, rtol=1e-4, atol=1e-5)
    assert moe.faults == []


@settings(max_examples=60, deadline=None)
@given(shapes(), st.integers(1, 9), st.data())
def test_parts_that_hold_some_experts_each_add_up_to_the_whole(shape, tokens, data):
    x = inputs(tokens, 7)
    whole = random_moe(*shape)(x)
    count = shape[0].num_experts
    cut = data.draw(st.integers(0, count))
    packed = data.draw(st.booleans())
    total = torch.zeros_like(whole)
    for held in (range(cut), range(cut, count)):
        part = random_moe(*shape)
        part.hold(held)
        if packed:
            part.pack()
        total += part(x)
    torch.testing.assert_close(total, whole, rtol=1e-4, atol=1e-5)


def test_experts_that_share_a_gate_are_one_wider_ffn_once_packed():
    moe = random_moe(config(copies=4, groups=2, active=4, inner=8, scaling=2.0), seed=1)
    moe.pack()
    assert list(moe.experts) == ["0", "1", "2", "3"]
    x = inputs(50, 3)
    moe(x)
    experts = moe.router.experts_of(moe.chosen)
    assert experts.shape == (50, 4) and experts.max() == 7
    for chosen in experts.tolist():
        assert sorted(chosen)[2:] == [expert + 4 for expert in sorted(chosen)[:2]]


def test_experts_that_share_their_memory_are_one_ffn_once_packed():
    made = config(copies=4, groups=2, active=4, inner=8, scaling=2.0)
    apart, shared = random_moe(made, 1), random_moe(made, 1)
    for number in range(8):
        if number % 4 != 3:  # choices 0, 1 and 2 are copies, 3 is not
            for name in ("gate", "up", "down"):
                weight = getattr(shared.experts[str(number // 4 * 4)], name).weight
                getattr(shared.experts[str(number)], name).weight = torch.nn.Parameter(weight, requires_grad=False)
                getattr(apart.experts[str(number)], name).weight.copy_(weight)
    x = inputs(20, 3)
    expected_output = apart(x)
    for _ in range(2):  # packing again changes nothing
        shared.pack()
    assert len({id(ffn) for ffn in shared.experts.values()}) == 2
    torch.testing.assert_close(shared(x), expected_output, rtol=1e-4, atol=1e-5)


def test_gates_are_the_softmax_over_the_chosen_or_over_all():
    made = config(copies=8, groups=1, active=2, inner=8, scaling=1.5)
    over_chosen, over_all = random_moe(made, 1), random_moe(replace(made, renormalised=False), 1)
    x = inputs(50, 3)
    gates, chosen = over_chosen.router(x)
    torch.testing.assert_close(gates.sum(1), torch.full((50,), 1.5))
    shares, same = over_all.router(x)
    assert torch.equal(chosen, same) and (shares.sum(1) < 1.5).all()
    torch.testing.assert_close(gates, shares / shares.sum(1, keepdim=True) * 1.5)


@settings(max_examples=60, deadline=None)
@given(shapes(), st.integers(1, 9), st.data())
def test_a_tilt_multiplies_the_probabilities_before_the_choice(shape, tokens, data):
    made, seed = shape
    factors = st.lists(st.sampled_from([0.25, 1.0, 4.0]), min_size=made.num_experts, max_size=made.num_experts)
    tilt = torch.tensor([data.draw(factors) for _ in range(data.draw(st.sampled_from([1, tokens])))])
    moe, x = random_moe(made, seed), inputs(tokens, seed + 1)
    torch.testing.assert_close(moe(x, tilt), expected(moe, x, made, tilt), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("renormalised", [True, False])
def test_an_expert_that_is_out_is_never_chosen_and_takes_its_twin_along(renormalised):
    made = config(copies=4, groups=2, active=2, inner=8, scaling=2.0, renormalised=renormalised)
    moe = random_moe(made, 5)
    tilt = torch.ones(1, 8)
    tilt[0, 6] = 0
    out = moe(inputs(60, 2), tilt)
    assert torch.isfinite(out).all() and not (moe.router.experts_of(moe.chosen) % 4 == 2).any()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("tokens", [1, 30])
@pytest.mark.parametrize("renormalised", [True, False])
def test_a_guarded_step_leaves_out_the_expert_that_fails_and_shares_its_gate(renormalised, tokens, packed):
    made = config(copies=4, groups=1, active=2, inner=8, scaling=1.0, renormalised=renormalised)
    sound, broken = random_moe(made, 3), random_moe(made, 3)
    x = inputs(tokens, 4)
    gates, chosen = sound.router(x)
    bad = int(chosen[0, 0])
    broken.experts[str(bad)].down.weight[0, 0] = torch.nan
    if packed:
        broken.pack()
    assert torch.isnan(broken(x)).any(), "unguarded it shows"
    out = broken(x, guarded=True)
    assert broken.faults == [bad] * int((chosen == bad).sum())
    each = [sound.experts[str(e)](x) for e in range(4)]
    for row in range(tokens):
        kept = [(float(g), int(e)) for g, e in zip(gates[row], chosen[row], strict=True) if int(e) != bad]
        share = sum(float(g) for g in gates[row]) / sum(g for g, _ in kept)
        torch.testing.assert_close(out[row], sum(g * share * each[e][row] for g, e in kept), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scaling", [1.0, 16.0])
def test_a_token_whose_experts_all_fail_goes_on_without_them(scaling):
    moe = random_moe(config(copies=2, groups=1, active=2, inner=8, scaling=scaling), 3)
    for expert in moe.experts.values():
        expert.down.weight.fill_(torch.nan)
    assert torch.equal(moe(inputs(3, 4), guarded=True), torch.zeros(3, D))
    assert sorted(moe.faults) == [0, 0, 0, 1, 1, 1]


def test_what_was_not_finite_before_is_no_experts_fault():
    moe = random_moe(config(copies=4, groups=1, active=2, inner=8, scaling=1.0), 3)
    x = inputs(3, 4)
    x[1, 0] = torch.inf
    moe(x, guarded=True)
    assert moe.faults == []


def test_a_shared_expert_is_added_times_its_own_gate():
    made = config(copies=4, groups=1, active=2, inner=8, scaling=1.0, shared_ffn=24)
    moe, x = random_moe(made, 9), inputs(5, 4)
    shared = moe.shared(x) * torch.sigmoid(moe.shared_gate(x))
    torch.testing.assert_close(moe(x), expected(moe, x, made) + shared, rtol=1e-4, atol=1e-5)
