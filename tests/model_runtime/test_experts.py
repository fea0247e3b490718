"""The log of expert use against a count by hand, token by token, however the engine cuts the work into steps."""

import math
import pickle
from collections import Counter
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from model_runtime.experts import WINDOW_TOKENS, ExpertLog, ExpertSummary
from model_runtime.kv_cache import Span

LAYERS, EXPERTS, ACTIVE = 3, 5, 2


def span(start: int, length: int) -> Span:
    return Span(block_table=(0,), start=start, length=length)


def routes(*tokens: list[list[int]]) -> list[Tensor]:
    """Each token as [layer][choice] -> a tensor [T, A] per layer."""
    return [torch.tensor([token[layer] for token in tokens]) for layer in range(len(tokens[0]))]


def step(log: ExpertLog, chosen: list[list[list[int]]], parts: list[tuple[str, int, int]], **kept: object) -> None:
    log.record(routes(*chosen), [span(start, length) for _, start, length in parts], [id for id, *_ in parts], **kept)


choice = st.permutations(range(EXPERTS)).map(lambda order: order[:ACTIVE])
token = st.lists(choice, min_size=LAYERS, max_size=LAYERS)


@dataclass
class ByHand:
    """One request as it should be counted."""

    tokens: list[list[list[int]]] = field(default_factory=list)

    def use(self) -> tuple[tuple[int, ...], ...]:
        counts = [Counter(e for token in self.tokens for e in token[layer]) for layer in range(LAYERS)]
        return tuple(tuple(counts[layer][e] for e in range(EXPERTS)) for layer in range(LAYERS))

    def switches(self) -> int:
        pairs = zip(self.tokens, self.tokens[1:], strict=False)
        return sum(a[layer][0] != b[layer][0] for a, b in pairs for layer in range(LAYERS))


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_however_the_work_is_cut_each_request_gets_its_own_tokens(data: st.DataObject) -> None:
    """Steps of several requests, with drafts that are turned down, and requests that start over after a preemption."""
    log = ExpertLog(LAYERS, EXPERTS)
    by_hand = {id: ByHand() for id in ("a", "b", "c")}
    done = dict.fromkeys(by_hand, 0)
    computed = pairs = 0
    for _ in range(data.draw(st.integers(1, 6))):
        ids = data.draw(st.lists(st.sampled_from(sorted(by_hand)), min_size=1, max_size=3, unique=True))
        chosen, parts, kept = [], [], []
        for id in ids:
            again = data.draw(st.integers(0, 2)) == 0 and done[id] > 0
            start = data.draw(st.integers(0, done[id] - 1)) if again else done[id]
            old = by_hand[id].tokens[start:]  # computed again: they go the same way
            new = data.draw(st.lists(token, min_size=0 if old else 1, max_size=4))
            drafts = data.draw(st.lists(token, max_size=2))
            chosen += old + new + drafts
            parts.append((id, start, len(old + new + drafts)))
            kept.append(len(old + new))
            by_hand[id].tokens += new
            pairs += len(new) - (start + len(old) == 0)
            done[id] = len(by_hand[id].tokens)
        computed += len(chosen)
        step(log, chosen, parts, kept=kept)
    summary = log.summary()
    assert summary.tokens == computed
    assert [sum(layer) for layer in summary.use] == [computed * ACTIVE] * LAYERS
    switches = sum(request.switches() for request in by_hand.values())
    assert summary.switches_per_100_tokens == pytest.approx(100 * switches / (pairs * LAYERS) if pairs else 0)
    for id, request in by_hand.items():
        assert log.use(id) == request.use()


def test_without_drafts_every_token_of_every_span_counts() -> None:
    log = ExpertLog(1, 3)
    step(log, [[[0]], [[1]], [[2]], [[2]]], [("a", 0, 1), ("b", 0, 3)])
    step(log, [[[1]], [[2]]], [("b", 3, 1), ("a", 1, 1)])
    assert log.use("a") == ((1, 0, 1),)
    assert log.use("b") == ((0, 2, 2),)


def test_a_used_or_forgotten_request_starts_from_nothing_and_many_find_room() -> None:
    log = ExpertLog(1, 2)
    for number in range(40):
        step(log, [[[number % 2]]], [(f"r{number}", 0, 1)])
    assert log.use("r3") == ((0, 1),)
    assert log.use("r3") == ((0, 0),)
    log.forget("r4")
    log.forget("never seen")
    step(log, [[[1]], [[1]]], [("r4", 0, 2)])  # takes the row of r3 or r4
    assert log.use("r4") == ((0, 2),)
    assert log.use("r39") == ((0, 1),)


def test_a_cached_prefix_is_not_counted_and_makes_no_switch() -> None:
    log = ExpertLog(1, 2)
    step(log, [[[0]], [[0]]], [("a", 0, 2)])
    step(log, [[[1]]], [("b", 32, 1)])  # the 32 before came from the cache
    step(log, [[[1]]], [("b", 33, 1)])
    assert log.use("b") == ((0, 2),)
    assert log.summary().switches_per_100_tokens == 0


def test_switches_are_counted_over_steps_and_within_them() -> None:
    log = ExpertLog(2, 3)
    step(log, [[[0], [0]], [[1], [0]], [[1], [0]]], [("a", 0, 3)])  # layer 0 changes once, layer 1 never
    step(log, [[[2], [0]]], [("a", 3, 1)])  # layer 0 again
    assert log.summary().switches_per_100_tokens == pytest.approx(100 * 2 / (3 * 2))


def test_the_window_forgets_old_tokens() -> None:
    log = ExpertLog(1, 2)
    size = 2_500
    for number in range(WINDOW_TOKENS // size + 4):
        expert = 0 if number < 4 else 1
        log.record([torch.full((size, 1), expert)], [span(0, size)], [f"r{number}"])
        log.forget(f"r{number}")
    summary = log.summary()
    assert summary.tokens == WINDOW_TOKENS
    assert summary.use == ((0, WINDOW_TOKENS),)


def test_the_figures_of_a_summary() -> None:
    summary = ExpertSummary(tokens=8, use=((4, 4, 4, 4), (16, 0, 0, 0), (8, 8, 0, 0)))
    assert summary.utilisation[2] == (1.0, 1.0, 0.0, 0.0)
    assert summary.use_entropy == pytest.approx((1.0, 0.0, 0.5))
    assert summary.imbalance == (1.0, 4.0, 2.0)
    assert pickle.loads(pickle.dumps(summary)) == summary


def test_a_log_without_a_step_has_a_summary() -> None:
    summary = ExpertLog(2, 4).summary()
    assert summary == ExpertSummary(0, ((0,) * 4,) * 2)
    assert summary.imbalance == (0, 0)
    assert summary.utilisation == ((0,) * 4,) * 2


def test_routing_entropy_is_that_of_the_routers_distribution() -> None:
    log = ExpertLog(2, 4)
    step(log, [[[0], [0]], [[1], [0]]], [("a", 0, 2)])
    scores = torch.tensor([[0.0, 0.0, 0.0, 0.0], [2.0, -1.0, 0.5, 0.0]])
    log.record_scores([scores, torch.tensor([[50.0, 0.0, 0.0, 0.0]] * 2)])
    probabilities = [math.exp(score) for score in scores[1].tolist()]
    shares = [p / sum(probabilities) for p in probabilities]
    second = -sum(p * math.log(p) for p in shares) / math.log(4)
    assert log.summary().routing_entropy == pytest.approx((1 + second + 0 + 0) / 4, abs=1e-6)


def test_routing_entropy_survives_an_expert_that_is_out_and_a_long_step() -> None:
    log = ExpertLog(1, 3)
    log.record([torch.zeros(500, 1, dtype=torch.int64)], [span(0, 500)], ["a"])
    log.record_scores([torch.tensor([[0.0, 0.0, -math.inf]] * 500)])
    assert log.summary().routing_entropy == pytest.approx(math.log(2) / math.log(3))
