"""The engine with a model whose next token is a function of the whole context, read back through the block tables: a
wrong span, block or position changes the answer."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch

from model_runtime.collectives import Meeting, join
from model_runtime.engine import Engine, Output, Submit, follow
from model_runtime.kv_cache import BLOCK_TOKENS, Step
from model_runtime.request import (
    Finished,
    GenerationFailed,
    GenerationRequest,
    PromptTooLong,
    QueueFull,
    Sampling,
    Token,
)
from model_runtime.scheduler import Limits
from model_runtime.tokenizer import Tokenizer

VOCAB = 49152
CPU = torch.device("cpu")
LIMITS = Limits(running=3, waiting=9, step_tokens=24, beside_decoding=5)


class Oracle:
    """`scores` gives the logits of the token after a context."""

    def __init__(self, scores: Callable[[Sequence[int]], torch.Tensor]) -> None:
        self._scores = scores
        self._memory: dict[int, int] = {}  # slot -> token id
        self.steps: list[Step] = []

    def forward(self, step: Step, cache: object) -> torch.Tensor:
        self.steps.append(step)
        logits, first = [], 0
        for span in step.spans:
            for offset in range(span.length):
                self._memory[self._slot(span, span.start + offset)] = step.token_ids[first + offset]
            first += span.length
            context = [self._memory[self._slot(span, position)] for position in range(span.start + span.length)]
            logits.append(self._scores(context))
        return torch.stack(logits)

    @staticmethod
    def _slot(span, position: int) -> int:
        return span.block_table[position // BLOCK_TOKENS] * BLOCK_TOKENS + position % BLOCK_TOKENS


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
    return Tokenizer.from_gguf(gguf_path)


@pytest.fixture
def ranks():
    meeting = Meeting(1, one_node=True, device=CPU, host="127.0.0.1")
    yield join(meeting.rendezvous, 0, CPU, timeout_s=5)
    meeting.close()


@pytest.fixture
def start(tokenizer, ranks):
    def start(scores=by_hash, blocks: int = 60, limits: Limits = LIMITS) -> Engine:
        return Engine(Oracle(scores), SimpleNamespace(num_blocks=blocks), tokenizer, ranks, 512, limits)

    return start


def ask(name: str, prompt: Sequence[int] = (5, 6, 7), generated: Sequence[int] = (), **sampling) -> Submit:
    return Submit(GenerationRequest(name, tuple(prompt), Sampling(**sampling)), tuple(generated), bool(generated))


def run(engine: Engine, *commands: Submit) -> dict[str, list]:
    """Every request's items, by id, once all have ended."""
    for command in commands:
        engine.submit(command)
    items: dict[str, list] = {command.request.id: [] for command in commands}
    for _ in range(500):
        for name, item in engine.step():
            items[name].append(item)
        if all(found and not isinstance(found[-1], Token) for found in items.values()):
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


def test_an_output_that_is_no_number_fails_that_request_only(start):
    def scores(context):
        return torch.full((VOCAB,), torch.nan) if context[0] == 13 and len(context) == 6 else by_hash(context)

    items = run(start(scores), ask("good", max_tokens=20), ask("bad", prompt=(13, 1, 1), max_tokens=20))
    assert len(ids(items["bad"])) == 3 and isinstance(items["bad"][-1], GenerationFailed)
    assert len(ids(items["good"])) == 20 and isinstance(items["good"][-1], Finished)


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
