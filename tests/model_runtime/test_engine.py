"""The engine with a model whose next token is a function of the whole context, read back through the block tables: a
wrong span, block or position changes the answer."""

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model_runtime.boosts import Boosts, Rule
from model_runtime.collectives import Meeting, join
from model_runtime.engine import Engine, ModelBroken, Output, Submit, follow
from model_runtime.families import ModelConfig
from model_runtime.kv_cache import BLOCK_TOKENS, Boost, Step
from model_runtime.request import (
    Finished,
    GenerationFailed,
    GenerationRequest,
    Grammar,
    PromptTooLong,
    QueueFull,
    Sampling,
    Token,
    UnusableRequest,
    choices,
)
from model_runtime.scheduler import Limits
from model_runtime.tokenizer import Tokenizer

VOCAB = 49152
CPU = torch.device("cpu")
LIMITS = Limits(running=3, waiting=9, step_tokens=24, beside_decoding=5)
EXPERTS, ACTIVE, MOE_LAYERS = 8, 2, (0, 2)
DENSE = ModelConfig(
    layers=3,
    hidden=32,
    heads=4,
    kv_heads=2,
    head_dim=8,
    ffn=48,
    vocab=VOCAB,
    context_tokens=512,
    rms_eps=1e-5,
)
MIXTURE = replace(DENSE, num_experts=EXPERTS, active_experts=ACTIVE, expert_ffn=48, dense_layers=(1,))


class Oracle:
    """`scores` gives the logits of the token after a context. With `config` MIXTURE, experts are a function of a token
    and its layer; `broken` (layer, expert) makes the logits of its tokens NaN, unless it is left out of the mix."""

    def __init__(
        self,
        scores: Callable[[Sequence[int]], torch.Tensor],
        config: ModelConfig = DENSE,
        broken: tuple[int, int] | None = None,
    ) -> None:
        self._scores = scores
        self._memory: dict[int, int] = {}  # slot -> token id
        self.config, self.broken = config, broken
        self.steps: list[Step] = []
        self.routes: list[torch.Tensor] = []
        self.scores: list[torch.Tensor] = []
        self.faults: list[tuple[int, int]] = []

    def forward(self, step: Step, cache: object) -> torch.Tensor:
        self.steps.append(step)
        self._route(step)
        for source, target, blocks in step.moves:
            for slot in range(blocks * BLOCK_TOKENS):
                self._memory[target * BLOCK_TOKENS + slot] = self._memory.get(source * BLOCK_TOKENS + slot, -1)
        logits, first = [], 0
        for span in step.spans:
            for offset in range(span.length):
                self._memory[self._slot(span, span.start + offset)] = step.token_ids[first + offset]
            first += span.length
            context = [self._memory[self._slot(span, position)] for position in range(span.start + span.length)]
            spoilt = self._is_spoilt(step, step.token_ids[first - span.length : first])
            for length in range(len(context) - span.outputs + 1, len(context) + 1):
                logits.append(torch.full((VOCAB,), torch.nan) if spoilt else self._scores(context[:length]))
        return torch.stack(logits)

    def _route(self, step: Step) -> None:
        if self.config.num_experts:
            self.routes = [torch.tensor([experts(layer, one) for one in step.token_ids]) for layer in MOE_LAYERS]
            self.scores = [torch.zeros(len(step.token_ids), EXPERTS) for _ in MOE_LAYERS]
            self.faults = [self.broken] * self._failures(step, step.token_ids) if step.guarded and self.broken else []

    def _failures(self, step: Step, token_ids: Sequence[int]) -> int:
        if self.broken is None or self.broken in step.left_out:
            return 0
        layer, expert = self.broken
        return sum(expert in experts(layer, one) for one in token_ids)

    def _is_spoilt(self, step: Step, token_ids: Sequence[int]) -> bool:
        return not step.guarded and self._failures(step, token_ids) > 0

    @staticmethod
    def _slot(span, position: int) -> int:
        return span.block_table[position // BLOCK_TOKENS] * BLOCK_TOKENS + position % BLOCK_TOKENS


def experts(layer: int, token_id: int) -> list[int]:
    first = (token_id + layer) % EXPERTS
    return [first, (first + 3) % EXPERTS]


def one(token_id: int) -> torch.Tensor:
    logits = torch.zeros(VOCAB)
    logits[token_id] = 30.0
    return logits


def hashed(context: Sequence[int]) -> int:
    """An ordinary token that depends on every token before it."""
    return 1000 + hash(tuple(context)) % 40000


def by_hash(context: Sequence[int]) -> torch.Tensor:
    return one(hashed(context))


@pytest.fixture(scope="module")
def tokenizer(gguf_path) -> Tokenizer:
    return Tokenizer.from_checkpoint(gguf_path)


@pytest.fixture
def ranks():
    meeting = Meeting(1, one_node=True, device=CPU, host="127.0.0.1")
    yield join(meeting.rendezvous, 0, CPU, timeout_s=5)
    meeting.close()


@pytest.fixture
def start(tokenizer, ranks):
    def start(scores=by_hash, blocks: int = 60, limits: Limits = LIMITS, boosts=None, **oracle) -> Engine:
        model = scores if isinstance(scores, Oracle) else Oracle(scores, **oracle)
        return Engine(model, SimpleNamespace(num_blocks=blocks), tokenizer, ranks, 512, limits, boosts)

    return start


def ask(name: str, prompt: Sequence[int] = (5, 6, 7), generated: Sequence[int] = (), **sampling) -> Submit:
    return Submit(GenerationRequest(name, tuple(prompt), Sampling(**sampling)), tuple(generated), bool(generated))


def run(engine: Engine, *commands: Submit) -> dict[str, list]:
    """Every request's items, by id, once all have ended."""
    for command in commands:
        engine.submit(command)
    items: dict[str, list] = {command.request.id: [] for command in commands}
    for _ in range(2000):
        for name, item in engine.step():
            assert not items[name] or isinstance(items[name][-1], Token), "an item after the end"
            items[name].append(item)
        if all(found and not isinstance(found[-1], Token) for found in items.values()):
            assert engine.step() == []
            return items
    raise AssertionError("the engine does not finish")


def ids(items: list) -> list[int]:
    return [item.id for item in items if isinstance(item, Token)]


def text(items: list) -> str:
    return "".join(item.text for item in items)


def test_answers_do_not_depend_on_what_else_runs(start):
    prompts = {str(n): list(range(10 * n, 10 * n + length)) for n, length in enumerate((1, 40, 3, 70, 17, 2, 33), 1)}
    items = run(start(), *[ask(name, prompt, max_tokens=20) for name, prompt in prompts.items()])
    for name, prompt in prompts.items():
        context = list(prompt)
        for _ in range(20):
            context.append(hashed(context))
        assert ids(items[name]) == context[len(prompt) :]
        assert items[name][-1] == Finished("length", len(prompt), 20, items[name][-1].text)


def test_a_second_request_starts_while_the_first_runs_and_both_share_steps(start):
    engine = start()
    engine.submit(ask("first", max_tokens=50))
    assert [name for name, _ in engine.step()] == ["first"]
    engine.submit(ask("second", max_tokens=50))
    for _ in range(5):
        assert sorted(name for name, _ in engine.step()) == ["first", "second"]


def test_cancelling_frees_the_place_and_the_blocks_within_a_step(start):
    engine = start(blocks=4, limits=Limits(running=1))
    engine.submit(ask("first", max_tokens=60))
    engine.submit(ask("second", max_tokens=60))
    assert [name for name, _ in engine.step()] == ["first"]
    engine.cancel("first")
    (cancelled, ended), (name, item) = engine.step()
    assert (cancelled, ended.reason, ended.completion_tokens) == ("first", "cancelled", 1)
    assert name == "second" and isinstance(item, Token)
    engine.cancel("second")
    engine.cancel("never seen")
    assert [item.reason for _, item in engine.step()] == ["cancelled"]
    assert engine.step() == []


def test_a_waiting_request_can_be_cancelled(start):
    engine = start(limits=Limits(running=1))
    engine.submit(ask("first", max_tokens=60))
    engine.submit(ask("waits", max_tokens=60))
    engine.step()
    engine.cancel("waits")
    assert ("waits", Finished("cancelled", 3, 0)) in engine.step()


def scripted(tokenizer: Tokenizer, answer: str, prompt: Sequence[int] = (5, 6, 7)) -> Callable:
    """Says `answer`, then ends."""
    script = [*tokenizer.encode(answer), min(tokenizer.eos_ids)]
    return lambda context: one(script[len(context) - len(prompt)])


def test_the_end_token_ends_the_answer_and_is_not_shown(start, tokenizer):
    items = run(start(scripted(tokenizer, "Ca\u00f1a \U0001f600!")), ask("a"))["a"]
    assert text(items) == "Ca\u00f1a \U0001f600!"
    assert items[-1] == Finished("stop", 3, len(items) - 1)
    assert not set(ids(items)) & tokenizer.eos_ids


def test_a_stop_string_ends_the_answer_before_it(start, tokenizer):
    items = run(start(scripted(tokenizer, "one two STOP three")), ask("a", stop=("STOP",)))["a"]
    assert (text(items), items[-1].reason) == ("one two ", "stop")
    assert items[-1].completion_tokens == len(items) - 1 < len(tokenizer.encode("one two STOP three"))


def test_max_tokens_ends_the_answer_and_shows_what_was_held_back(start, tokenizer):
    length = len(tokenizer.encode("one two ST"))
    items = run(start(scripted(tokenizer, "one two STOP three")), ask("a", stop=("STOPPED",), max_tokens=length))["a"]
    assert items[-1].reason == "length"
    assert "one two STOP three".startswith(text(items)) and len(ids(items)) == length


def test_a_model_that_gives_nothing_but_nan_is_given_up_and_one_bad_prompt_is_not(start):
    engine = start(lambda context: torch.full((VOCAB,), torch.nan) if context[0] == 13 else by_hash(context))
    for turn in range(6):
        items = run(engine, ask(f"bad {turn}", [13, 2]), ask(f"good {turn}", [5, turn], max_tokens=2))
        assert isinstance(items[f"bad {turn}"][-1], GenerationFailed) and len(ids(items[f"good {turn}"])) == 2
    with pytest.raises(ModelBroken, match="4 steps in a row"):
        for turn in range(6):
            run(engine, ask(f"alone {turn}", [13, 2]))


def test_an_output_that_is_no_number_fails_that_request_only(start):
    def scores(context):
        return torch.full((VOCAB,), torch.nan) if context[0] == 13 and len(context) == 6 else by_hash(context)

    items = run(start(scores), ask("good", max_tokens=20), ask("bad", prompt=(13, 1, 1), max_tokens=20))
    assert len(ids(items["bad"])) == 3 and isinstance(items["bad"][-1], GenerationFailed)
    assert len(ids(items["good"])) == 20 and isinstance(items["good"][-1], Finished)


def test_what_a_failed_request_computed_is_not_shared(start):
    fails = True

    def scores(context):
        return torch.full((VOCAB,), torch.nan) if fails and len(context) == 60 else by_hash(context)

    engine = start(scores)
    assert isinstance(run(engine, ask("a", range(100, 160)))["a"][-1], GenerationFailed)
    fails = False
    assert run(engine, ask("a", range(100, 160), max_tokens=2))["a"][-1].cached_tokens == 0


def test_refusals_are_outputs(start):
    engine = start(limits=Limits(running=1, waiting=2))
    for name in ("runs", "waits", "waits too", "late"):
        engine.submit(ask(name))
    engine.submit(ask("long", prompt=range(500), max_tokens=13))
    outputs = dict(engine.step())
    assert isinstance(outputs["late"], QueueFull) and outputs["late"].waiting == 2
    assert isinstance(outputs["long"], PromptTooLong) and outputs["long"].length == 513


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("cut", [1, 4, 9])
def test_a_replay_goes_on_where_the_answer_stopped(start, tokenizer, temperature, cut):
    """The same tokens and the same text, with held-back text and half code points at the cut."""
    emoji = tokenizer.encode("\U0001f600\U0001f680ab")

    def scores(context):
        logits = torch.zeros(VOCAB)
        logits[emoji] = 20.0 + torch.arange(len(emoji)) * 0.01
        logits[emoji[hash(tuple(context)) % len(emoji)]] += 0.7
        return logits

    sampling = {"max_tokens": 16, "temperature": temperature, "seed": 3, "stop": ("abab", "\U0001f680\U0001f680")}
    whole = run(start(scores), ask("a", **sampling))["a"]
    before = whole[:cut]
    if not isinstance(before[-1], Token):
        pytest.fail("the answer ended before the cut: choose another seed")
    mates = [ask(name, prompt=(9,), max_tokens=12) for name in "bc"]
    after = run(start(scores), *mates, ask("a", generated=ids(before), **sampling))["a"]
    assert before + after == whole


def quoting(context: Sequence[int]) -> int:
    """Copies the prompt (of 40 tokens) from where it is, and leaves it now and then."""
    token_id = hashed(context)
    return token_id if token_id % 7 == 0 else context[len(context) % min(40, len(context))]


def by_quoting(context: Sequence[int]) -> torch.Tensor:
    """The quoted token is likely, but not certain at temperature 1."""
    logits = torch.zeros(VOCAB)
    logits[[quoting(context), hashed(context)]] = torch.tensor([18.0, 15.0])
    return logits


QUOTED = [200 + (7 * place) % 31 for place in range(40)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_guesses_change_the_number_of_steps_and_nothing_else(start, temperature):
    answers, steps = [], []
    for draft_rows in (0, 8):
        model = Oracle(by_quoting)
        engine = start(model, limits=replace(LIMITS, draft_rows=draft_rows))
        commands = [ask(str(seed), QUOTED, max_tokens=90, temperature=temperature, seed=seed) for seed in range(2)]
        answers.append(run(engine, *commands))
        steps.append(len(model.steps))
    assert answers[0] == answers[1]
    assert steps[1] < 0.8 * steps[0]


def test_a_guess_beyond_a_stop_string_or_the_end_is_not_shown(start, tokenizer):
    script = tokenizer.encode("one two three four STOP one two three four five six seven")
    prompt = [*script, *script[:4]]
    copying = scripted(tokenizer, "one two three four STOP one two three", prompt)
    plain, guessed = (
        run(start(copying, limits=replace(LIMITS, draft_rows=rows)), ask("a", prompt, stop=("STOP",)))["a"]
        for rows in (0, 8)
    )
    assert plain == guessed and text(plain) == "one two three four "


def test_choices_share_the_prompt_and_have_seeds_of_their_own(start):
    prompt = list(range(100, 400))
    request = GenerationRequest("a", tuple(prompt), Sampling(max_tokens=8, temperature=2.0, seed=5))
    requests = choices(request, 4)
    assert [one.id for one in requests] == ["a#0", "a#1", "a#2", "a#3"] and requests[0].sampling == request.sampling
    assert len({one.sampling.seed for one in requests}) == 4 and choices(request, 2) == requests[:2]
    model = Oracle(by_quoting)
    items = run(start(model, limits=replace(LIMITS, running=4)), *map(Submit, requests))
    computed = sum(len(step.token_ids) for step in model.steps)
    assert computed <= 300 + 3 * 12 + 4 * 8 + sum(span.outputs - 1 for step in model.steps for span in step.spans)
    assert [found[-1].cached_tokens for found in items.values()] == [0, 288, 288, 288]
    assert len({tuple(ids(found)) for found in items.values()}) > 1
    alone = run(start(by_quoting), Submit(replace(requests[2], id="a")))["a"]
    assert ids(items["a#2"]) == ids(alone)


def test_what_is_cached_is_told(start):
    engine = start()
    first = run(engine, ask("first", range(100, 150), max_tokens=20))["first"]
    turn = [*range(100, 150), *ids(first), *range(7)]
    second = run(engine, ask("second", turn, max_tokens=5))["second"]
    assert (first[-1].cached_tokens, second[-1].cached_tokens) == (0, 64)


kinds = st.fixed_dictionaries(
    {
        "shared": st.sampled_from([0, 0, 33, 64, 120]),
        "own": st.integers(1, 60),
        "max_tokens": st.integers(1, 70),
        "temperature": st.sampled_from([0.0, 1.0]),
        "deterministic": st.booleans(),
        "cancelled_after": st.one_of(st.none(), st.integers(0, 60)),
        "arrives": st.integers(0, 30),
    }
)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_whatever_is_preempted_shared_guessed_or_cancelled_answers_are_the_same(tokenizer, data):
    """Each answer is what the request alone would get, as far as it came."""
    wanted = data.draw(st.lists(kinds, min_size=1, max_size=7))
    limits = Limits(
        running=4, waiting=9, step_tokens=40, beside_decoding=17, draft_rows=data.draw(st.sampled_from([0, 8]))
    )
    blocks = data.draw(st.integers(16, 30))
    ranks = SimpleNamespace(broadcast_object=lambda value=None: value)
    engine = Engine(Oracle(by_quoting), SimpleNamespace(num_blocks=blocks), tokenizer, ranks, 512, limits)
    requests = {
        str(number): GenerationRequest(
            str(number),
            (*range(1000, 1000 + one["shared"]), *(100 * number + place % 11 for place in range(one["own"]))),
            Sampling(
                max_tokens=one["max_tokens"],
                temperature=one["temperature"],
                seed=number,
                deterministic=one["deterministic"],
            ),
        )
        for number, one in enumerate(wanted)
    }
    items: dict[str, list] = {name: [] for name in requests}
    for step in range(5000):
        for name, one in zip(requests, wanted, strict=True):
            if one["arrives"] == step:
                engine.submit(Submit(requests[name]))
            if one["cancelled_after"] is not None and step == one["arrives"] + one["cancelled_after"]:
                engine.cancel(name)
        for name, item in engine.step():
            items[name].append(item)
        if all(found and isinstance(found[-1], Finished) for found in items.values()):
            break
    for name, request in requests.items():
        *tokens, end = items[name]
        assert isinstance(end, Finished) and all(isinstance(item, Token) for item in tokens)
        alone = run(
            Engine(Oracle(by_quoting), SimpleNamespace(num_blocks=40), tokenizer, ranks, 512, LIMITS), Submit(request)
        )
        whole = ids(alone[name])
        assert ids(tokens) == whole[: len(tokens)]
        assert end.reason == "cancelled" or (len(tokens) == len(whole) and text(items[name]) == text(alone[name]))
    pool = engine._scheduler.pool
    assert pool.free_count == blocks and not engine._answers


def test_a_stop_id_ends_the_answer_and_is_not_shown(start, tokenizer):
    comma = tokenizer.encode(",")[0]
    items = run(start(scripted(tokenizer, "one, two")), ask("a", stop_ids=(comma,)))["a"]
    assert (text(items), items[-1].reason) == ("one", "stop") and comma not in ids(items)


def test_log_probabilities_come_with_the_tokens_when_asked_for(start):
    with_them = run(start(by_quoting), ask("a", QUOTED, max_tokens=12, logprobs=2))["a"]
    without = run(start(by_quoting), ask("a", QUOTED, max_tokens=12))["a"]
    assert ids(with_them) == ids(without) and all(item.logprob is None for item in without[:-1])
    for item in with_them[:-1]:
        assert item.logprob is not None and item.logprob.top[0] == (item.id, item.logprob.chosen)


SCHEMA = json.dumps({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]})


def test_an_answer_keeps_to_its_grammar_and_ends_with_it(start, tokenizer):
    wanted = torch.zeros(VOCAB)
    wanted[tokenizer.encode('{"ok": true}')] = 20.0

    commands = [
        ask("schema", max_tokens=60, grammar=Grammar(SCHEMA)),
        ask("free", max_tokens=60, temperature=1.0, deterministic=True),
    ]
    items = run(start(lambda context: wanted), *commands)
    assert items["schema"][-1].reason == "stop" and isinstance(json.loads(text(items["schema"]))["ok"], bool)
    assert len(ids(items["free"])) == 60
    just_enough = len(ids(items["schema"]))
    exactly = run(start(lambda context: wanted), ask("a", max_tokens=just_enough, grammar=Grammar(SCHEMA)))["a"]
    assert exactly[-1].reason == "stop", "complete, and known to be without another token"
    cut = ids(items["schema"])[:3]
    rest = run(start(lambda context: wanted), ask("schema", generated=cut, max_tokens=60, grammar=Grammar(SCHEMA)))
    assert ids(rest["schema"]) == ids(items["schema"])[3:]


def test_a_request_that_cannot_be_used_is_refused_and_the_others_go_on(start):
    engine = start()
    bad = [
        ask("schema", grammar=Grammar('{"type": "no such type"}')),
        ask("no json", grammar=Grammar("{")),
        ask("beyond", prompt=(1, VOCAB)),
        ask("below", prompt=(-1, 4)),
        ask("bias", logit_bias=((VOCAB, 1.0),)),
    ]
    items = run(engine, ask("good", max_tokens=20), *bad)
    assert len(ids(items["good"])) == 20
    for command in bad:
        (refusal,) = items[command.request.id]
        assert isinstance(refusal, UnusableRequest) and str(refusal)


def test_a_replay_that_had_come_to_its_end_ends_at_once(start, tokenizer):
    answered = tokenizer.encode("one STOP")
    items = run(start(), ask("length", generated=(5, 6), max_tokens=2), ask("stop", generated=answered, stop=("STOP",)))
    assert [item.reason for item in items["length"]] == ["length"]
    assert [(item.reason, item.completion_tokens) for item in items["stop"]] == [("stop", len(answered))]


# Experts


def use(token_ids: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    counted = [Counter(expert for one in token_ids for expert in experts(layer, one)) for layer in MOE_LAYERS]
    return tuple(tuple(layer[expert] for expert in range(EXPERTS)) for layer in counted)


@pytest.mark.parametrize("blocks", [60, 10])
def test_the_record_counts_each_computed_token_of_an_answer_once(start, blocks):
    """Guesses that failed do not count, nor does what was computed again; the last token was never computed."""
    commands = [ask(str(number), [number + 50, *QUOTED[1:]], max_tokens=60) for number in range(3)]
    engine = start(by_quoting, blocks=blocks, limits=replace(LIMITS, draft_rows=8), config=MIXTURE)
    items = run(engine, *commands)
    assert engine.experts.log.summary().routing_entropy == pytest.approx(1.0), "the scores say nothing"
    for command in commands:
        found = items[command.request.id]
        computed = [*command.request.prompt_ids, *ids(found)][:-1]
        assert found[-1].experts.tokens == use(computed) and found[-1].cached_tokens == 0
        assert found[-1].experts.left_out == () and found[-1].experts.boosts == ()


def test_a_dense_model_has_no_experts_to_tell_of(start):
    assert run(start(), ask("a", max_tokens=2))["a"][-1].experts is None


def test_an_expert_that_fails_is_left_out_first_of_its_tokens_then_altogether_and_the_answer_says_so(start, caplog):
    model = Oracle(by_hash, MIXTURE, broken=(2, 5))
    engine = start(model)
    with caplog.at_level(logging.CRITICAL):
        items = run(engine, ask("a", range(100, 150), max_tokens=60))["a"]
    assert ids(items) == ids(run(start(), ask("a", range(100, 150), max_tokens=60))["a"])
    assert items[-1].experts.left_out == ((2, 5),)
    again = [number for number, step in enumerate(model.steps) if step.guarded and not model.steps[number - 1].guarded]
    assert replace(model.steps[again[0] - 1], guarded=True) == model.steps[again[0]], "the same step once more"
    assert model.steps[-1].left_out == ((2, 5),) and not model.steps[-1].guarded
    assert engine.experts.breaker.summary().trips == 1


def test_what_was_computed_without_an_expert_is_not_shared_once_it_is_back(start):
    model = Oracle(by_hash, MIXTURE, broken=(2, 5))
    engine = start(model)
    prompt = [102 + 8 * place for place in range(64)]  # never chooses expert 5 of layer 2
    assert run(engine, ask("before", prompt, max_tokens=1))["before"][-1].cached_tokens == 0
    assert run(engine, ask("shares", prompt, max_tokens=1))["shares"][-1].cached_tokens == 48
    run(engine, ask("breaks", [99, 107, 115], max_tokens=1))  # all of them do
    model.broken = None
    assert run(engine, ask("after", prompt, max_tokens=1))["after"][-1].cached_tokens == 0


def test_an_answer_that_is_no_number_even_without_the_expert_fails(start):
    def scores(context):
        return torch.full((VOCAB,), torch.nan) if context[0] == 13 else by_hash(context)

    model = Oracle(scores, MIXTURE)
    items = run(start(model), ask("good", max_tokens=20), ask("bad", prompt=[13] * 30, max_tokens=20))
    assert len(ids(items["good"])) == 20
    assert len(items["bad"]) == 1 and isinstance(items["bad"][0], GenerationFailed)
    assert [step.guarded for step in model.steps[:3]] == [False, True, False], "at its first portion, and once"


def test_a_step_that_is_computed_again_does_not_move_blocks_again(start):
    """What was moved away from may hold something else by then."""

    class BreaksWhenMoved(Oracle):
        def _is_spoilt(self, step, token_ids):
            return bool(step.moves)

    model = BreaksWhenMoved(by_hash, MIXTURE)
    prompts = [[*range(100, 164), *range(17 * number % 40)] for number in range(7)]
    commands = [ask(str(number), prompt, max_tokens=100 - 5 * number) for number, prompt in enumerate(prompts)]
    items = run(start(model, blocks=18, limits=replace(LIMITS, running=4)), *commands)
    moved = [place for place, step in enumerate(model.steps) if step.moves]
    assert moved and all(model.steps[place + 1].spans == model.steps[place].spans for place in moved)
    for command in commands:
        context = list(command.request.prompt_ids)
        for _ in range(command.request.sampling.max_tokens):
            context.append(hashed(context))
        assert ids(items[command.request.id]) == context[len(command.request.prompt_ids) :]


def test_boosts_steer_the_spans_of_their_request_and_are_named_in_its_record(start, tokenizer):
    rule = Rule(name="code", pattern="(?i)python", experts=[1, 3], factor=4.0)
    model = Oracle(by_hash, MIXTURE)
    prompts = {"boosted": tokenizer.encode("Write Python!"), "plain": tokenizer.encode("Write prose!")}
    commands = [ask(name, prompt, max_tokens=5) for name, prompt in prompts.items()]
    items = run(start(model, boosts=Boosts([rule])), *commands)
    assert [items[name][-1].experts.boosts for name in prompts] == [("code",), ()]
    assert {span.boosts for step in model.steps for span in step.spans} == {(), (Boost((1, 3), 4.0),)}


def test_two_ranks_compute_the_same_steps_and_stop_together(tokenizer):
    meeting = Meeting(2, one_node=True, device=CPU, host="127.0.0.1")
    models = [Oracle(by_hash), Oracle(by_hash)]
    outputs: list[Output] = []
    ended = threading.Event()
    cache = SimpleNamespace(num_blocks=60)

    def deliver(step: list[Output]) -> None:
        outputs.extend(step)
        if any(isinstance(item, Finished) for _, item in step):
            ended.set()

    def rank_0() -> Engine:
        return Engine(models[0], cache, tokenizer, join(meeting.rendezvous, 0, CPU, timeout_s=5), 512, LIMITS)

    with ThreadPoolExecutor(2) as threads:
        following = threads.submit(lambda: follow(models[1], cache, join(meeting.rendezvous, 1, CPU, timeout_s=5)))
        engine = rank_0()
        leading = threads.submit(engine.lead, deliver)
        engine.submit(ask("a", max_tokens=10))
        assert ended.wait(10)
        engine.stop()
        leading.result(10)
        following.result(10)
    meeting.close()
    assert models[0].steps == models[1].steps and len(models[0].steps) == 10
    assert len([item for _, item in outputs if isinstance(item, Token)]) == 10


def test_sampling_and_requests_check_their_numbers():
    for wrong in (
        {"max_tokens": 0},
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"top_p": 0.0},
        {"top_p": 1.1},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Sampling(**wrong)
    with pytest.raises(ValueError, match="no tokens"):
        GenerationRequest("a", ())
