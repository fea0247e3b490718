"""Draws depend on seed, position and logits only; penalties, biases and grammars change the logits as documented;
drafts change nothing."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor
from transformers import RepetitionPenaltyLogitsProcessor

from model_runtime.distribution import sample
from model_runtime.grammar import GrammarCompiler
from model_runtime.request import Grammar, Sampling
from model_runtime.sampler import Choice, Draw, accept, choose, uniform
from tests.model_runtime.byte_vocabulary import CONTROL, END, ByteVocabulary

VOCAB = 12


def draw(position: int = 0, prompt: Sequence[int] = (), generated: Sequence[int] = (), **sampling: object) -> Draw:
    return Draw(Sampling(**sampling), position, prompt, generated)


def ids(choices: list[Choice]) -> list[int | None]:
    return [choice.id for choice in choices]


def random_logits(seed: int, rows: int = 1, vocab: int = VOCAB) -> Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 2


def fits(found: Tensor, probabilities: Tensor) -> bool:
    """Chi-square; what has no probability must not come at all. The seeds are fixed: it holds or it does not."""
    possible = probabilities > 0
    shares = probabilities[possible].double()
    expected = shares / shares.sum() * found.sum()
    return not found[~possible].any() and chisquare(found[possible].double(), expected).pvalue > 0.001


# --- one row, one draw


def test_temperature_0_takes_the_best() -> None:
    logits = torch.tensor([[0.1, 3.0, 2.0], [5.0, 1.0, 2.0]])
    assert choose(logits, [draw(), draw()]) == [Choice(1), Choice(0)]


@pytest.mark.parametrize(
    ("sampling", "weights"),
    [
        ({}, [0.1, 0.4, 0.2, 0.3]),
        ({"temperature": 0.5}, [0.01, 0.16, 0.04, 0.09]),
        ({"top_k": 2}, [0, 0.4, 0, 0.3]),
        ({"top_p": 0.65}, [0, 0.4, 0, 0.3]),
        ({"min_p": 0.6}, [0, 0.4, 0, 0.3]),
        ({"temperature": 0.5, "top_k": 3, "top_p": 0.6, "min_p": 0.2}, [0, 0.16, 0, 0.09]),
        ({"logit_bias": ((0, math.log(5)), (1, -100))}, [0.5, 0, 0.2, 0.3]),
    ],
    ids=str,
)
@pytest.mark.parametrize("over", ["positions", "seeds"])
def test_draws_follow_the_distribution(sampling: dict[str, object], weights: list[float], over: str) -> None:
    number = 3000
    logits = torch.log(torch.tensor([0.1, 0.4, 0.2, 0.3])).repeat(number, 1)
    asked = {"temperature": 1.0} | sampling
    draws = [draw(i, seed=3, **asked) if over == "positions" else draw(3, seed=i, **asked) for i in range(number)]
    found = torch.bincount(torch.tensor(ids(choose(logits, draws))), minlength=4)
    assert fits(found, torch.tensor(weights) / sum(weights))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_no_numbers_fail_their_row_only(bad: float, temperature: float) -> None:
    logits = torch.zeros(3, 10)
    logits[:, 4] = 50.0
    logits[1, 7] = bad
    draws = [draw(temperature=temperature, logit_bias=((7, -100.0),), logprobs=1)] * 3
    choices = choose(logits, draws)
    assert ids(choices) == [4, None, 4]
    assert [choice.logprob is None for choice in choices] == [False, True, False]


def test_a_row_needs_one_finite_logit() -> None:
    logits = torch.full((2, 5), -math.inf)
    logits[0, 3] = -2.0
    for temperature in (0.0, 1.0):
        assert ids(choose(logits.clone(), [draw(temperature=temperature)] * 2)) == [3, None]


@given(st.integers(), st.integers(0, 2**40))
def test_uniform_stays_below_1(seed: int, position: int) -> None:
    assert 0 <= uniform(seed, position) < 1


def test_uniform_is_spread_over_positions_and_over_seeds() -> None:
    for values in ([uniform(3, i) for i in range(2000)], [uniform(i, 3) for i in range(2000)]):
        assert fits(torch.histc(torch.tensor(values), bins=10, min=0, max=1), torch.full((10,), 0.1))
        assert len(set(values)) == 2000


SAMPLINGS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.7, 1.5]),
    top_p=st.sampled_from([1.0, 0.8]),
    top_k=st.sampled_from([0, 3]),
    min_p=st.sampled_from([0.0, 0.1]),
    presence_penalty=st.sampled_from([0.0, 0.6]),
    frequency_penalty=st.sampled_from([0.0, -0.4]),
    repetition_penalty=st.sampled_from([1.0, 1.4]),
    logit_bias=st.sampled_from([(), ((2, 1.5), (3, -100.0))]),
    seed=st.integers(0, 2**63 - 1),
    logprobs=st.sampled_from([None, 2]),
)
IDS = st.lists(st.integers(0, VOCAB - 1), max_size=8)
DRAWS = st.builds(Draw, SAMPLINGS, st.integers(0, 500), IDS, IDS)


@settings(deadline=None)
@given(st.integers(0, 2**31), st.lists(DRAWS, min_size=2, max_size=5), st.data())
def test_neither_batch_mates_nor_earlier_draws_matter(seed: int, draws: list[Draw], data: st.DataObject) -> None:
    logits = random_logits(seed, len(draws))
    row = data.draw(st.integers(0, len(draws) - 1))
    assert choose(logits.clone(), draws)[row] == choose(logits[row : row + 1].clone(), [draws[row]])[0]


# --- penalties and biases


def changed(logits: Tensor, asked: Draw) -> Tensor:
    """The formulas, token by token."""
    sampling, row = asked.sampling, logits.clone()
    for token_id in range(VOCAB):
        if token_id in asked.prompt_ids or token_id in asked.generated:
            penalty = sampling.repetition_penalty
            row[token_id] = row[token_id] / penalty if row[token_id] > 0 else row[token_id] * penalty
        count = list(asked.generated).count(token_id)
        row[token_id] -= count * sampling.frequency_penalty + (count > 0) * sampling.presence_penalty
        row[token_id] += sum(
            -1e4 if bias == -100 else bias for biased, bias in sampling.logit_bias if biased == token_id
        )
    return row


@settings(deadline=None)
@given(st.integers(0, 2**31), DRAWS)
def test_penalties_and_biases_follow_their_formulas(seed: int, asked: Draw) -> None:
    logits = random_logits(seed)
    wanted = changed(logits[0], asked)
    found = choose(logits, [asked])[0].id
    if asked.sampling.temperature == 0:
        assert found == int(wanted.argmax())
    else:
        point = uniform(asked.sampling.seed, asked.position)
        assert [found] == sample(wanted[None], wanted.amax()[None], [asked.sampling], [point])


@pytest.mark.parametrize("seed", range(20))
def test_repetition_penalty_is_that_of_transformers(seed: int) -> None:
    logits = random_logits(seed)
    seen = torch.randint(VOCAB, (1, 9), generator=torch.Generator().manual_seed(seed))
    wanted = RepetitionPenaltyLogitsProcessor(1.7)(seen, logits.clone()).argmax()
    prompt, generated = seen[0, :5].tolist(), seen[0, 5:].tolist()
    assert ids(choose(logits, [draw(0, prompt, generated, repetition_penalty=1.7)])) == [wanted]


def test_repetition_counts_the_prompt_and_the_others_do_not() -> None:
    logits = torch.tensor([[2.0, 1.9, 0.0]])
    assert ids(choose(logits.clone(), [draw(prompt=(0,), repetition_penalty=1.5)])) == [1]
    for penalty in ("presence_penalty", "frequency_penalty"):
        assert ids(choose(logits.clone(), [draw(prompt=(0,), **{penalty: 2.0})])) == [0]
        assert ids(choose(logits.clone(), [draw(generated=(0,), **{penalty: 2.0})])) == [1]


def test_frequency_counts_each_time_and_presence_once() -> None:
    logits = torch.tensor([[2.0, 1.2, 0.0]])
    assert ids(choose(logits.clone(), [draw(generated=(0,), frequency_penalty=0.5)])) == [0]
    assert ids(choose(logits.clone(), [draw(generated=(0, 0), frequency_penalty=0.5)])) == [1]
    assert ids(choose(logits.clone(), [draw(generated=(0, 0), presence_penalty=0.5)])) == [0]


@pytest.mark.parametrize("temperature", [0.0, 1.0, 50.0])
def test_a_bias_of_100_forces_and_one_of_minus_100_bans(temperature: float) -> None:
    logits = torch.tensor([[150.0, 0.0, 1.0, -150.0]]).repeat(200, 1)

    def found(*bias: tuple[int, float]) -> set[int | None]:
        draws = [
            draw(i, generated=(3,) * 9, temperature=temperature, logit_bias=bias, frequency_penalty=2.0)
            for i in range(200)
        ]
        return set(ids(choose(logits.clone(), draws)))

    assert found((3, 100.0)) == {3}
    assert 0 not in found((0, -100.0))
    assert found((1, 100.0), (2, 100.0)) == ({2} if temperature == 0 else {1, 2})
    assert found(*((i, -100.0) for i in range(4))) <= {0, 1, 2}  # all banned: what is left is as before


# --- log-probabilities


@settings(deadline=None)
@given(st.integers(0, 2**31), DRAWS, st.integers(0, 20))
def test_logprobs_are_those_of_the_model(seed: int, asked: Draw, count: int) -> None:
    logits = random_logits(seed, 2)
    wanted = logits[0].log_softmax(0)
    asked = replace(asked, sampling=replace(asked.sampling, logprobs=count))
    choice, other = choose(logits, [asked, draw()])
    assert choice.logprob is not None and choice.id is not None and other.logprob is None
    assert choice.logprob.chosen == pytest.approx(wanted[choice.id].item(), abs=1e-5)
    best = wanted.argsort(descending=True)[:count]
    assert [token_id for token_id, _ in choice.logprob.top] == best.tolist()
    assert [value for _, value in choice.logprob.top] == pytest.approx(wanted[best].tolist(), abs=1e-5)


def test_each_row_has_as_many_alternatives_as_it_asked_for() -> None:
    choices = choose(random_logits(1, 3), [draw(logprobs=0), draw(logprobs=5), draw(logprobs=2)])
    assert [len(choice.logprob.top) for choice in choices if choice.logprob] == [0, 5, 2]


# --- grammars

BYTES = ByteVocabulary()
GRAMMARS = GrammarCompiler(BYTES)
TRUTH = Grammar('{"type": "object", "properties": {"name": {"type": "boolean"}}, "required": ["name"]}')


def test_a_grammar_outweighs_logits_and_biases() -> None:
    sampling = Sampling(
        temperature=1.0, logit_bias=((CONTROL, 100.0), (ord("x"), 100.0), (ord("{"), -100.0)), top_p=0.5
    )
    state = GRAMMARS.compile(TRUTH)
    for position in range(40):
        logits = random_logits(position, vocab=300)
        logits[0, END] = 90.0
        chosen = choose(logits, [Draw(sampling, position, (), (), state)])[0].id
        assert chosen is not None and chosen not in (CONTROL, 299)
        if chosen == END:
            break
        state.advance(chosen)
    assert state.is_done


def test_a_row_where_nothing_is_allowed_fails_alone() -> None:
    state = GRAMMARS.compile(TRUTH)
    state.advance(ord("{"))
    logits = torch.full((2, 300), -math.inf)
    logits[:, ord("x")] = 1.0
    assert ids(choose(logits, [Draw(Sampling(), 0, (), (), state), draw()])) == [None, ord("x")]


def test_what_a_grammar_hides_must_be_finite_too() -> None:
    logits = torch.zeros(2, 500)
    logits[0, 499] = math.nan  # beyond the tokenizer's vocabulary
    state = GRAMMARS.compile(TRUTH)
    assert ids(choose(logits, [Draw(Sampling(), 0, (), (), state)] * 2)) == [None, ord("{")]


# --- drafts


def one_by_one(logits: Tensor, asked: Draw, most: int) -> list[Choice]:
    """What comes without drafts, as long as it lasts."""
    choices: list[Choice] = []
    grammar = asked.grammar and asked.grammar.copy()
    for row in range(most):
        generated = [*asked.generated, *(choice.id for choice in choices)]
        step = replace(asked, position=asked.position + row, generated=generated, grammar=grammar)
        choices += choose(logits[row : row + 1].clone(), [step])
        if choices[-1].id in (None, END):
            break
        if grammar is not None:
            grammar.advance(choices[-1].id)
    return choices


@settings(deadline=None)
@given(st.integers(0, 2**31), DRAWS, st.integers(0, 6), st.data())
def test_a_draft_never_changes_what_comes(seed: int, asked: Draw, length: int, data: st.DataObject) -> None:
    logits = random_logits(seed, length + 1)
    wanted = one_by_one(logits, asked, length + 1)
    right = data.draw(st.integers(0, length))
    guessed = data.draw(st.lists(st.integers(0, VOCAB - 1), min_size=length - right, max_size=length - right))
    draft = [choice.id for choice in wanted[:right]] + guessed
    found = accept(logits.clone(), asked, draft)
    assert found == wanted[: len(found)]
    matching = next((i for i, choice in enumerate(wanted[:length]) if choice.id != draft[i]), length)
    assert len(found) == matching + 1 > right


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**31), st.sampled_from([0.0, 1.0]), st.integers(0, 10), st.data())
def test_nor_does_a_draft_under_a_grammar(seed: int, temperature: float, length: int, data: st.DataObject) -> None:
    state = GRAMMARS.compile(TRUTH)
    asked = Draw(Sampling(temperature=temperature, seed=seed), 0, (), (), state)
    logits = random_logits(seed, length + 1, vocab=len(BYTES.tokens))
    logits[:, [ord(" "), ord("\n")]] = -9.0
    wanted = one_by_one(logits, asked, length + 1)
    right = data.draw(st.integers(0, min(length, len(wanted))))
    draft = ids(wanted[:right]) + data.draw(
        st.lists(st.integers(0, len(BYTES.tokens) - 1), min_size=length - right, max_size=length - right)
    )
    before = state.allowed()
    found = accept(logits.clone(), asked, draft)[: len(wanted)]  # after an end, anything
    matching = next((i for i, choice in enumerate(wanted[:length]) if choice.id != draft[i]), length)
    assert found == wanted[: matching + 1]
    assert len(found) >= min(right + 1, len(wanted))
    assert torch.equal(state.allowed(), before)  # the engine's own state has not moved


def test_drafts_leave_the_distribution_as_it_is() -> None:
    """Two tokens with a draft of one: the pairs come as often as their probabilities say."""
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]]))
    number = 4000
    lengths = torch.zeros(2)
    first, second = torch.zeros(3), torch.zeros(3)
    for seed in range(number):
        found = ids(accept(logits.clone(), draw(temperature=1.0, seed=seed), [0]))
        lengths[len(found) - 1] += 1
        first[found[0]] += 1
        if len(found) == 2:
            assert found[0] == 0
            second[found[1]] += 1
    assert fits(lengths, torch.tensor([0.5, 0.5]))
    assert fits(first, torch.tensor([0.5, 0.3, 0.2]))
    assert fits(second, torch.tensor([0.2, 0.2, 0.6]))


def test_a_draft_ends_at_logits_that_are_no_numbers() -> None:
    logits = torch.zeros(3, 5)
    logits[:, 2] = 9.0
    logits[1, 0] = math.nan
    for temperature in (0.0, 0.1):
        assert ids(accept(logits.clone(), draw(temperature=temperature), [2, 2])) == [2, None]
