"""Boost rules: what a file may say, which prompts they fit, and what they do to a router."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from model_runtime.boosts import Boosts
from model_runtime.kv_cache import Boost, PagedCache, Span, Step
from tests.model_runtime.tiny_model import tiny_model

CODE = {"name": "code", "pattern": r"(?i)\bpython\b|def \w+\(", "experts": [1, 5], "factor": 4.0}
NEWS = {"name": "news", "pattern": "flood", "experts": [0], "factor": 0.5}


def written(folder: Path, rules: object) -> Path:
    path = folder / "boosts.json"
    path.write_text(rules if isinstance(rules, str) else json.dumps(rules))
    return path


def test_a_prompt_gets_the_rules_whose_pattern_it_has(tmp_path: Path) -> None:
    boosts = Boosts.from_file(written(tmp_path, [CODE, NEWS]), num_experts=8)
    assert boosts.for_prompt("How do I sort in Python?") == (("code", Boost((1, 5), 4.0)),)
    assert boosts.for_prompt("a flood of def f(x)") == (("code", Boost((1, 5), 4.0)), ("news", Boost((0,), 0.5)))
    assert boosts.for_prompt("pythons are snakes") == ()


def test_no_rules_boost_nothing() -> None:
    assert Boosts().for_prompt("Python") == ()


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ([CODE, NEWS | {"pattern": "(unclosed"}], "rule 2: pattern: not a regular expression"),
        ([CODE | {"experts": [1, 8]}], "rule 1 (code): there is no expert 8, the model has 8"),
        ([CODE | {"experts": [-1]}], "rule 1: experts.0"),
        ([CODE | {"experts": []}], "rule 1: experts"),
        ([CODE | {"experts": [1, 1]}], "rule 1: experts: the same expert twice"),
        ([CODE | {"experts": ["1"]}], "rule 1: experts.0"),
        ([CODE | {"factor": 0}], "rule 1: factor"),
        ([CODE | {"factor": -2}], "rule 1: factor"),
        ('[{"name": "x", "pattern": "x", "experts": [1], "factor": NaN}]', "rule 1: factor"),
        ('[{"name": "x", "pattern": "x", "experts": [1], "factor": Infinity}]', "rule 1: factor"),
        ([CODE | {"pattern": ""}], "rule 1: pattern"),
        ([CODE | {"pattern": "a" * 1001}], "rule 1: pattern"),
        ([CODE | {"name": "two words"}], "rule 1: name"),
        ([CODE | {"weight": 1}], "rule 1: weight"),
        ([{"name": "x"}], "rule 1: pattern: Field required"),
        ([CODE, NEWS, CODE], "rule 3: a second rule named code"),
        ({"rules": [CODE]}, "list"),
        ("[{", "not JSON"),
    ],
)
def test_a_bad_file_is_refused_with_the_place(tmp_path: Path, rules: Any, told: str) -> None:
    path = written(tmp_path, rules)
    with pytest.raises(ValueError) as refused:
        Boosts.from_file(path, num_experts=8)
    assert str(path) in str(refused.value) and told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_missing_file_is_a_value_error_too(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot read .*No such file"):
        Boosts.from_file(tmp_path / "none.json", num_experts=8)


def test_a_pattern_that_runs_away_is_given_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    slow = {"name": "slow", "pattern": r"(a|aa|b)+$", "experts": [0], "factor": 2.0}
    boosts = Boosts.from_file(written(tmp_path, [slow, CODE]), num_experts=8)
    text = "a" * 5000 + "c python"
    assert boosts.for_prompt(text) == (("code", Boost((1, 5), 4.0)),)
    assert "slow" in caplog.text and "aaaa" not in caplog.text


def use_of(boosts: tuple[Boost, ...], **changes: object) -> tuple[torch.Tensor, torch.Tensor]:
    """How often each of eight experts is chosen for 64 tokens, in all layers, and the logits."""
    model = tiny_model(num_experts=8, active_experts=2, **changes)
    cache = PagedCache(model.config, 4, torch.float32, "cpu")
    logits = model(Step(tuple(range(64)), (Span((0, 1, 2, 3), 0, 64, boosts=boosts),)), cache)
    return torch.stack([layer.flatten().bincount(minlength=8) for layer in model.routes]).sum(0), logits


@pytest.mark.parametrize("renormalised", [True, False])
def test_boosted_experts_are_chosen_more_often(renormalised: bool) -> None:
    plain, _ = use_of((), renormalised=renormalised)
    boosted, _ = use_of((Boost((1, 5), 4.0),), renormalised=renormalised)
    muted, _ = use_of((Boost((1, 5), 0.05),), renormalised=renormalised)
    assert boosted[[1, 5]].sum() > 1.3 * plain[[1, 5]].sum()
    assert muted[[1, 5]].sum() < 0.5 * plain[[1, 5]].sum()


def test_a_factor_of_one_changes_nothing() -> None:
    plain, logits = use_of(())
    same, same_logits = use_of((Boost((1, 5), 1.0),))
    assert torch.equal(plain, same)
    torch.testing.assert_close(logits, same_logits)


@pytest.mark.parametrize("renormalised", [True, False])
def test_gates_are_those_of_the_boosted_probabilities(renormalised: bool) -> None:
    model = tiny_model(num_experts=8, active_experts=2, renormalised=renormalised)
    router = model.layers[0].ffn.router
    x = torch.randn(50, 32, generator=torch.Generator().manual_seed(1))
    tilt = torch.ones(50, 8)
    tilt[:, [1, 5]] = 4.0
    gates, chosen = router(x, tilt)
    probabilities = (x @ router.score.weight.T).softmax(-1) * tilt
    best, expected = probabilities.topk(2, dim=-1)
    assert torch.equal(chosen, expected)
    torch.testing.assert_close(gates, best / best.sum(-1, keepdim=True) if renormalised else best)
