"""Continuous batching: nothing is lost, nothing computed twice, nobody overtaken, no block held twice."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from model_runtime.kv_cache import BLOCK_TOKENS, BlockPool
from model_runtime.request import PromptTooLong, QueueFull
from model_runtime.scheduler import Limits, Scheduler, Sequence

SMALL = Limits(running=3, waiting=4, step_tokens=40, beside_decoding=10)


def sequence(name: str, prompt: int, more: int = 4) -> Sequence:
    return Sequence(name, list(range(prompt)), prompt + more)


def scheduler(blocks: int = 64, limits: Limits = SMALL) -> Scheduler:
    return Scheduler(BlockPool(blocks), context_tokens=512, limits=limits)


def step(line: Scheduler) -> dict[str, int]:
    """Plans a step and gives a token to each complete sequence; the new tokens computed, by sequence."""
    batch = line.next_batch()
    for planned, complete in zip(batch.sequences, batch.complete, strict=True):
        if complete:
            planned.token_ids.append(0)
    return {planned.id: span.length for planned, span in zip(batch.sequences, batch.step.spans, strict=True)}


def test_a_second_request_starts_while_the_first_runs():
    line = scheduler()
    line.submit(sequence("first", 5))
    assert step(line) == {"first": 5}
    line.submit(sequence("second", 6))
    assert step(line) == {"first": 1, "second": 6}
    assert step(line) == {"first": 1, "second": 1}


def test_a_long_prompt_is_cut_and_does_not_hold_up_who_decodes():
    line = scheduler()
    line.submit(sequence("running", 1, more=20))
    step(line)
    line.submit(sequence("long", 65))
    steps = [step(line) for _ in range(8)]
    assert [one["running"] for one in steps] == [1] * 8
    assert [one["long"] for one in steps] == [10, 10, 10, 10, 10, 10, 5, 1]


def test_a_long_prompt_alone_takes_the_whole_step():
    line = scheduler()
    line.submit(sequence("long", 65))
    assert [step(line)["long"] for _ in range(3)] == [40, 25, 1]


def test_the_span_says_where_the_tokens_go():
    line = scheduler()
    line.submit(sequence("a", 45))
    first, second = line.next_batch(), line.next_batch()
    assert first.step.token_ids == tuple(range(40)) and second.step.token_ids == tuple(range(40, 45))
    assert (first.step.spans[0].start, second.step.spans[0].start) == (0, 40)
    assert (first.complete, second.complete) == ((False,), (True,))
    assert len(second.step.spans[0].block_table) * BLOCK_TOKENS >= 45 + 4


def test_a_request_waits_for_blocks_and_is_not_overtaken():
    line = scheduler(blocks=4)
    line.submit(sequence("fills", 3 * BLOCK_TOKENS - 4))
    line.submit(sequence("large", 3 * BLOCK_TOKENS - 4))
    line.submit(sequence("small", 2))
    assert set(step(line)) == {"fills"}
    line.finish(line.running[0])
    step(line)
    assert [running.id for running in line.running] == ["large", "small"]


def test_too_long_for_the_context_or_for_the_cache_is_refused():
    with pytest.raises(PromptTooLong) as refused:
        scheduler().submit(sequence("long", 509))
    assert (refused.value.length, refused.value.limit) == (513, 512)
    with pytest.raises(PromptTooLong) as refused:
        scheduler(blocks=2).submit(sequence("long", 29))
    assert (refused.value.length, refused.value.limit) == (33, 32)
    scheduler(blocks=2).submit(sequence("fits", 28))


def test_a_full_line_refuses_but_not_what_was_admitted_before():
    line = scheduler()
    for number in range(3 + 4):
        line.submit(sequence(str(number), 3))
    with pytest.raises(QueueFull) as refused:
        line.submit(sequence("late", 3))
    assert refused.value.waiting == 4
    line.submit(sequence("replayed", 3), admitted_before=True)
    for running in list(line.running)[:2]:
        line.finish(running)
    step(line)  # two more run now, three wait
    line.submit(sequence("later", 3))
    assert [waiting.id for waiting in line.waiting] == ["5", "6", "replayed", "later"]


class Traffic(RuleBasedStateMachine):
    """Requests come, are refused, cancelled, run to their end, in any order."""

    requests = Bundle("requests")

    def __init__(self) -> None:
        super().__init__()
        self.line = scheduler(blocks=20)
        self.open: dict[str, tuple[Sequence, int]] = {}
        self.count = 0

    @rule(target=requests, prompt=st.integers(1, 200), more=st.integers(1, 150))
    def submit(self, prompt, more):
        self.count += 1
        new = sequence(str(self.count), prompt, more)
        try:
            self.line.submit(new)
        except PromptTooLong:
            assert prompt + more > 20 * BLOCK_TOKENS
            return multiple()
        except QueueFull:
            assert len(self.line.waiting) == SMALL.waiting
            return multiple()
        self.open[new.id] = (new, prompt)
        return new

    @rule(cancelled=consumes(requests))
    def cancel(self, cancelled):
        if self.open.pop(cancelled.id, None) is not None:
            self.line.finish(cancelled)

    @rule()
    def step(self):
        batch = self.line.next_batch()
        planned_spans = list(zip(batch.sequences, batch.step.spans, strict=True))
        # One token was all that was missing: a next token, not the part of a prompt that was left of the budget.
        decoding = sum(len(planned.token_ids) - span.start == 1 for planned, span in planned_spans)
        prompts = sum(span.length for planned, span in planned_spans if len(planned.token_ids) - span.start > 1)
        assert prompts <= (SMALL.beside_decoding if decoding else SMALL.step_tokens)
        assert bool(batch.sequences) == bool(self.open)
        for planned, span, complete in zip(batch.sequences, batch.step.spans, batch.complete, strict=True):
            assert len(span.block_table) * BLOCK_TOKENS >= span.start + span.length
            assert planned.cached == span.start + span.length
            if complete:
                planned.token_ids.append(0)
                if len(planned.token_ids) == planned.capacity:
                    self.line.finish(planned)
                    del self.open[planned.id]

    @invariant()
    def first_come_first_served(self):
        order = [int(one.id) for one in [*self.line.running, *self.line.waiting]]
        assert order == sorted(order)

    @invariant()
    def blocks_are_conserved(self):
        held = [block for running in self.line.running for block in running.blocks]
        assert len(held) == len(set(held))
        assert len(held) + self.line.pool.free_count == 20

    @invariant()
    def every_request_is_somewhere(self):
        there = [one.id for one in [*self.line.waiting, *self.line.running]]
        assert sorted(there) == sorted(self.open)
        assert len(self.line.running) <= SMALL.running and len(self.line.waiting) <= SMALL.waiting

    def teardown(self):
        for _ in range(3000):
            if not self.line.has_work:
                break
            self.step()
        assert not self.open and self.line.pool.free_count == 20


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
