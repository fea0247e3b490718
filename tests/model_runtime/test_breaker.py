"""The circuit breaker: what takes an expert out, what brings it back, and that a layer is never left without."""

import logging
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from model_runtime.breaker import FAILURES, FIRST_PROBE_STEPS, LAST_PROBE_STEPS, Breaker
from model_runtime.kv_cache import PagedCache, Span, Step
from tests.model_runtime.tiny_model import TINY, tiny_model

CONFIG = replace(TINY, layers=3, num_experts=4, active_experts=2, dense_layers=(1,))  # experts in layers 0 and 2


def routes(first: list[int], second: list[int] | None = None) -> list[Tensor]:
    """The experts that the tokens of a step chose, in layer 0 and in layer 2; one choice a row is enough here."""
    return [torch.tensor(first).view(-1, 1), torch.tensor([0] if second is None else second).view(-1, 1)]


def fail(breaker: Breaker, layer: int, expert: int, tokens: int = 1) -> None:
    chosen = [expert] * tokens
    breaker.saw([(layer, expert)] * tokens, routes(chosen) if layer == 0 else routes([0], chosen))


def tripped(expert: int = 3, layer: int = 0) -> Breaker:
    breaker = Breaker(CONFIG)
    for _ in range(FAILURES):
        fail(breaker, layer, expert)
    assert breaker.left_out == ((layer, expert),)
    return breaker


def steps_to_probe(breaker: Breaker) -> int:
    """Steps that are planned until one is guarded, that one included."""
    steps = 1
    while not breaker.guard_next():
        steps += 1
        assert steps < 100_000
    return steps


def test_nothing_is_guarded_while_nothing_fails() -> None:
    breaker = Breaker(CONFIG)
    assert not any(breaker.guard_next() for _ in range(1000))
    assert breaker.left_out == ()


def test_ten_failures_in_a_row_take_an_expert_out_and_alert(caplog: pytest.LogCaptureFixture) -> None:
    breaker = Breaker(CONFIG)
    with caplog.at_level(logging.ERROR, "model_runtime.breaker"):
        for _ in range(FAILURES - 1):
            fail(breaker, 2, 3)
            assert breaker.guard_next()  # it stays in question
            assert breaker.left_out == ()
        assert not caplog.records
        fail(breaker, 2, 3)
    assert breaker.left_out == ((2, 3),)
    assert not breaker.guard_next()
    assert breaker.summary().trips == 1 and breaker.summary().failures == FAILURES
    (alert,) = caplog.records
    assert "ALERT" in alert.message and "expert 3 of layer 2" in alert.message


def test_ten_tokens_of_one_step_are_ten_failures() -> None:
    breaker = Breaker(CONFIG)
    fail(breaker, 0, 1, tokens=FAILURES)
    assert breaker.left_out == ((0, 1),)


def test_a_success_ends_the_row() -> None:
    breaker = Breaker(CONFIG)
    for _ in range(5):
        fail(breaker, 0, 3, tokens=FAILURES - 1)
        breaker.saw([], routes([3, 1]))
        assert not breaker.guard_next()
    breaker.saw([(0, 3)] * (FAILURES + 2), routes([3] * (FAILURES + 3)))  # all but one of the step's tokens
    assert breaker.left_out == ()
    assert breaker.guard_next()  # but it failed: look again
    assert breaker.summary().trips == 0


def test_an_expert_in_question_that_nobody_chooses_does_not_guard_forever() -> None:
    breaker = Breaker(CONFIG)
    fail(breaker, 0, 3)
    guarded = 0
    while breaker.guard_next():
        breaker.saw([], routes([0, 1]))
        guarded += 1
    assert 0 < guarded < 100


def test_experts_and_layers_are_counted_apart() -> None:
    breaker = Breaker(CONFIG)
    for _ in range(FAILURES - 1):
        breaker.saw([(0, 2), (2, 2), (0, 3)], routes([2, 3], [2]))
    fail(breaker, 0, 2)
    assert breaker.left_out == ((0, 2),)


def test_a_probe_that_goes_well_brings_it_back(caplog: pytest.LogCaptureFixture) -> None:
    breaker = tripped(3)
    assert steps_to_probe(breaker) == FIRST_PROBE_STEPS
    assert breaker.left_out == ()  # allowed in the probe
    with caplog.at_level(logging.WARNING, "model_runtime.breaker"):
        breaker.saw([], routes([3, 0]))
    assert breaker.left_out == () and not breaker.guard_next()
    assert breaker.summary().returns == 1 and breaker.summary().left_out == ()
    assert "back" in caplog.text


def test_a_probe_that_fails_waits_twice_as_long_up_to_a_bound() -> None:
    breaker = tripped(3)
    waits = []
    for _ in range(9):
        waits.append(steps_to_probe(breaker))
        fail(breaker, 0, 3)
        assert breaker.left_out == ((0, 3),)
    assert waits[:3] == [FIRST_PROBE_STEPS, 2 * FIRST_PROBE_STEPS, 4 * FIRST_PROBE_STEPS]
    assert waits[-2:] == [LAST_PROBE_STEPS] * 2
    assert breaker.summary().trips == 1


def test_one_bad_token_among_good_ones_fails_a_probe() -> None:
    breaker = tripped(3)
    steps_to_probe(breaker)
    breaker.saw([(0, 3)], routes([3, 3, 3]))
    assert breaker.left_out == ((0, 3),)


def test_a_probe_waits_for_a_token_but_not_forever() -> None:
    breaker = tripped(3)
    steps_to_probe(breaker)
    breaker.saw([], routes([0, 1]))  # nobody chose it
    assert breaker.guard_next() and breaker.left_out == ()
    tries = 1
    while breaker.left_out == ():
        breaker.saw([], routes([0, 1]))
        breaker.guard_next()
        tries += 1
    assert tries < 100
    assert not breaker.guard_next()
    assert steps_to_probe(breaker) <= FIRST_PROBE_STEPS  # it was not the expert's fault: no longer wait


def test_a_layer_keeps_as_many_experts_as_a_token_takes(caplog: pytest.LogCaptureFixture) -> None:
    breaker = Breaker(CONFIG)
    with caplog.at_level(logging.ERROR, "model_runtime.breaker"):
        for _ in range(3):
            for expert in range(4):
                fail(breaker, 0, expert, tokens=FAILURES)
    assert breaker.left_out == ((0, 0), (0, 1))
    assert breaker.summary().kept == ((0, 2), (0, 3))
    assert breaker.guard_next()  # the ones that stay are watched
    kept = [record for record in caplog.records if "no others" in record.message]
    assert len(kept) == 2  # each told once
    fail(breaker, 2, 1, tokens=FAILURES)
    assert (2, 1) in breaker.left_out  # another layer has its own


def test_experts_of_one_choice_count_once_when_a_layer_is_short() -> None:
    """Eight experts in two groups: choice c is experts c and c + 4, one is taken."""
    breaker = Breaker(replace(CONFIG, num_experts=8, active_experts=2, virtual_groups=2))
    for choice in range(4):
        pair = [choice, choice + 4]
        breaker.saw([(0, expert) for expert in pair] * FAILURES, routes(pair * FAILURES))
    assert breaker.left_out == ((0, 0), (0, 1), (0, 2), (0, 4), (0, 5), (0, 6))
    assert breaker.summary().kept == ((0, 3), (0, 7))


def test_with_a_real_model_a_broken_expert_goes_and_comes_back() -> None:
    """One expert's weights become NaN: answers stay finite, it trips; repaired, the probe brings it back."""
    model = tiny_model(num_experts=4, active_experts=2)
    weight = model.layers[1].ffn.experts["2"].up.weight
    whole = weight.clone()
    breaker = Breaker(model.config)
    cache = PagedCache(model.config, 1, torch.float32, "cpu")
    failed = 0

    def decode(token_id: int) -> Step:
        nonlocal failed
        guarded = breaker.guard_next()
        step = Step((token_id,), (Span((0,), 0, 1),), left_out=breaker.left_out, guarded=guarded)
        logits = model(step, cache)
        if not torch.isfinite(logits).all():
            failed += 1
            step = replace(step, guarded=True)
            logits = model(step, cache)
        if step.guarded:
            breaker.saw(model.faults, model.routes)
        assert torch.isfinite(logits).all()
        return step

    weight.fill_(float("nan"))
    for number in range(1000):
        if decode(number % 64).left_out:
            break
    assert breaker.left_out == ((1, 2),)
    assert 0 < failed < FAILURES  # once it is in question, steps are guarded from the start
    weight.copy_(whole)
    for number in range(1000):
        decode(number % 64)
        if breaker.summary().returns:
            break
    assert breaker.left_out == () and breaker.summary().returns == 1
