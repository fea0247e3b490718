"""Continuous batching: nothing is lost, nobody overtaken, no block overwritten, everything finishes."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from model_runtime.block_pool import BlockPool
from model_runtime.draft import PromptLookup
from model_runtime.kv_cache import BLOCK_TOKENS
from model_runtime.request import PromptTooLong, QueueFull
from model_runtime.scheduler import ALONE_TOKENS, Limits, Scheduler
from model_runtime.sequence import Sequence

SMALL = Limits(running=3, waiting=4, step_tokens=40, beside_decoding=10, draft_rows=0)
WIDE = Limits(running=8, waiting=8, step_tokens=512, beside_decoding=512, draft_rows=0)


def sequence(name: str, prompt: int | list[int], more: int = 4, *, alone: bool = False) -> Sequence:
    """A number stands for a prompt of that length that shares nothing with another name's."""
    first = 1000 * (1 + sum(map(ord, name)))
    ids = list(range(first, first + prompt)) if isinstance(prompt, int) else list(prompt)
    return Sequence(name, ids, len(ids), len(ids) + more, alone=alone)


def scheduler(blocks: int = 64, limits: Limits = SMALL) -> Scheduler:
    return Scheduler(BlockPool(blocks), context_tokens=512, limits=limits)


def step(line: Scheduler) -> dict[str, int]:
    """Plans a step and gives a token to each complete sequence; the new tokens computed, by sequence."""
    batch = line.next_batch()
    for part, span in zip(batch.parts, batch.step.spans, strict=True):
        assert len(span.block_table) * BLOCK_TOKENS >= span.start + span.length
        if part.complete:
            part.sequence.accept(0)
    return {part.sequence.id: span.length for part, span in zip(batch.parts, batch.step.spans, strict=True)}


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


def test_the_span_says_where_the_tokens_go_and_no_more():
    line = scheduler()
    line.submit(sequence("a", list(range(45)), more=200))
    first, second = line.next_batch(), line.next_batch()
    assert first.step.token_ids == tuple(range(40)) and second.step.token_ids == tuple(range(40, 45))
    assert (first.step.spans[0].start, second.step.spans[0].start) == (0, 40)
    assert (first.parts[0].complete, second.parts[0].complete) == (False, True)
    assert (len(first.step.spans[0].block_table), len(second.step.spans[0].block_table)) == (3, 3)
    assert first.step.spans[0].outputs == second.step.spans[0].outputs == 1


def test_a_request_waits_for_blocks_and_is_not_overtaken():
    line = scheduler(blocks=4)
    line.submit(sequence("fills", 3 * BLOCK_TOKENS - 4))
    line.submit(sequence("large", 3 * BLOCK_TOKENS - 4))
    line.submit(sequence("small", 2))
    assert set(step(line)) == {"fills"}
    line.finish(line.running[0])
    step(line)
    assert [running.id for running in line.running] == ["large", "small"]


def test_a_request_is_admitted_for_what_it_needs_now_not_for_all_it_may_come_to_need():
    line = scheduler(blocks=8)
    line.submit(sequence("a", 20, more=100))
    line.submit(sequence("b", 20, more=100))
    assert set(step(line)) == {"a", "b"}


def test_when_no_block_is_left_the_latest_goes_back_to_the_head_of_the_line_and_ends_the_same():
    line = scheduler(blocks=8, limits=WIDE)
    old, late, waits = sequence("old", 40, more=40), sequence("late", 40, more=80), sequence("waits", 40)
    for one in (old, late, waits):
        line.submit(one)
    while late in line.running:
        step(line)
    assert [one.id for one in line.waiting] == ["late", "waits"]
    tokens = len(late.token_ids)
    assert tokens > 40 and not late.table.blocks and late.cached == 0
    while len(old.token_ids) < old.capacity:
        assert set(step(line)) == {"old"}
    line.finish(old)
    batch = line.next_batch()
    assert batch.parts[0].sequence is late
    start = batch.step.spans[0].start
    assert start == 3 * BLOCK_TOKENS, "old took the last of its four blocks"
    assert batch.step.token_ids[: tokens - start] == tuple(late.token_ids[start:])


def test_who_was_put_back_does_not_come_back_to_be_put_back_again():
    line = scheduler(blocks=8, limits=WIDE)
    old, late = sequence("old", 40, more=80), sequence("late", 40, more=80)
    line.submit(old), line.submit(late)
    comings = 0
    while len(old.token_ids) < old.capacity:
        before = late.is_running
        step(line)
        comings += late.is_running and not before
    assert comings == 0


def test_an_older_prompt_takes_blocks_from_a_later_answer_that_was_about_to_go_on():
    """The older one began later, because it waited for what it shares."""
    line = scheduler(blocks=15, limits=Limits(running=3, beside_decoding=3, draft_rows=0))
    first, old = sequence("first", list(range(74)), more=90), sequence("old", [*range(64), *range(100, 200)])
    late = sequence("late", 9, more=100)
    line.submit(first), line.submit(old), line.submit(late)
    assert step(line) == {"first": 74, "late": 9}
    computed = {}
    while late.is_running:
        before = [list(one.table.blocks) for one in (first, late)]
        computed = step(line)
    assert computed == {"first": 1, "old": 3}
    assert first.table.blocks == before[0] and late.cached == 0 and len(before[1]) * BLOCK_TOKENS > len(late.token_ids)


def test_too_long_for_the_context_the_cache_or_the_cap_is_refused():
    capped = Limits(max_total_tokens=100)
    for line, limit in ((scheduler(), 512), (scheduler(blocks=2), 32), (scheduler(limits=capped), 100)):
        with pytest.raises(PromptTooLong) as refused:
            line.submit(sequence("long", limit - 3))
        assert (refused.value.length, refused.value.limit) == (limit + 1, limit)
        line.submit(sequence("fits", limit - 4))


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


# What is shared


def test_what_a_prompt_shares_with_an_earlier_one_is_not_computed_again():
    line, common = scheduler(limits=WIDE), list(range(50))
    first = sequence("first", [*common, *range(100, 120)])
    line.submit(first)
    assert step(line) == {"first": 70}
    second = sequence("second", [*common, *range(200, 210)])
    line.submit(second)
    assert step(line) == {"first": 1, "second": 60 - 48}
    assert second.table.blocks[:3] == first.table.blocks[:3] and second.shared_tokens == 48
    assert first.shared_tokens == 0


def test_a_conversation_goes_on_in_the_blocks_of_its_last_turn():
    line = scheduler(limits=WIDE)
    turn = sequence("turn", 30, more=40)
    line.submit(turn)
    for _ in range(39):
        step(line)
    line.finish(turn)
    longer = sequence("longer", [*turn.token_ids, *range(20)])
    line.submit(longer)
    line.next_batch()
    assert longer.shared_tokens == 64, "69 tokens were asked, 68 of them computed: four full blocks"
    assert longer.table.first_run == len(longer.table.blocks) == 6


def test_of_a_prompt_that_is_there_as_a_whole_the_last_block_is_computed_for_its_logits():
    line = scheduler(limits=WIDE)
    for name in ("first", "second"):
        one = sequence(name, list(range(64)))
        line.submit(one)
        step(line)
        line.finish(one)
    assert one.shared_tokens == 48


def test_copies_of_a_prompt_wait_for_the_first_and_then_compute_only_the_end():
    line = scheduler(limits=WIDE)
    copies = [sequence(f"copy{number}", list(range(300))) for number in range(4)]
    for copy in copies:
        line.submit(copy)
    assert step(line) == {"copy0": 300}
    assert step(line) == {"copy0": 1, "copy1": 12, "copy2": 12, "copy3": 12}
    assert [copy.shared_tokens for copy in copies] == [0, 288, 288, 288]


def test_copies_of_a_prompt_that_takes_several_steps_wait_to_its_end():
    line = scheduler()
    for number in range(3):
        line.submit(sequence(f"copy{number}", list(range(110))))
    steps = [step(line) for _ in range(4)]
    assert steps == [{"copy0": 40}, {"copy0": 40}, {"copy0": 30}, {"copy0": 1, "copy1": 10}]


def test_whoever_waits_for_a_prompt_goes_on_alone_when_that_one_is_cancelled():
    line = scheduler(limits=SMALL)
    first, second = sequence("first", list(range(300))), sequence("second", list(range(300)))
    line.submit(first), line.submit(second)
    assert step(line) == {"first": 40}
    line.finish(first)
    assert step(line) == {"second": 40} and second.shared_tokens == 32


def test_a_short_common_beginning_is_not_waited_for():
    line = scheduler(limits=WIDE)
    line.submit(sequence("first", [*range(48), *range(100, 120)]))
    line.submit(sequence("second", [*range(48), *range(200, 220)]))
    assert step(line) == {"first": 68, "second": 68}


def test_what_a_failed_sequence_computed_is_not_shared():
    line = scheduler(limits=WIDE)
    first, second = sequence("first", list(range(100))), sequence("second", list(range(100)))
    line.submit(first)
    step(line), step(line)
    line.finish(first, spoilt=True)
    line.submit(second)
    assert step(line) == {"second": 100}


def test_what_was_computed_before_prefixes_were_forgotten_is_not_shared_nor_what_built_on_it():
    line = scheduler(limits=WIDE)
    old = sequence("old", list(range(100)), more=100)
    line.submit(old)
    step(line), step(line)
    line.forget_prefixes()
    for _ in range(50):
        step(line)
    line.submit(sequence("new", old.token_ids[:140]))
    assert step(line)["new"] == 140
    line.submit(sequence("newer", old.token_ids[:140]))
    assert step(line)["newer"] == 140 - 128


# What is computed alone


def test_who_is_computed_alone_alternates_with_the_others_and_keeps_its_portions():
    line = scheduler(limits=WIDE)
    line.submit(sequence("plain", 5, more=400))
    alone = sequence("alone", ALONE_TOKENS + 44, more=5, alone=True)
    line.submit(alone)
    steps = [step(line) for _ in range(8)]
    assert (
        steps == [{"alone": ALONE_TOKENS}, {"plain": 5}, {"alone": 44}, {"plain": 1}] + [{"alone": 1}, {"plain": 1}] * 2
    )


def test_several_alone_take_turns():
    line = scheduler(limits=WIDE)
    for name in ("a", "b"):
        line.submit(sequence(name, 5, more=400, alone=True))
    line.submit(sequence("plain", 5, more=400))
    counted = Counter(name for _ in range(40) for name in step(line))
    assert counted == {"plain": 20, "a": 10, "b": 10}


def test_who_is_computed_alone_waits_for_blocks_that_lie_side_by_side():
    line = scheduler(blocks=8, limits=WIDE)
    first, middle = sequence("first", 40, more=8), sequence("middle", 10, more=6)
    line.submit(first), line.submit(middle)
    step(line)
    line.finish(first)
    assert line.pool.free_count == 7 and middle.table.blocks == [3]
    line.submit(sequence("alone", 60, more=20, alone=True))
    assert [one.id for one in line.waiting] == ["alone"]
    assert set(step(line)) == {"middle"}
    line.finish(middle)
    assert set(step(line)) == {"alone"}


def test_who_is_computed_alone_shares_nothing_and_is_recomputed_one_by_one():
    line = scheduler(limits=WIDE)
    for name in ("plain", "alone"):
        one = sequence(name, list(range(100)), more=50, alone=name == "alone")
        line.submit(one)
        assert step(line) == {name: 100}
        line.finish(one)
    again = sequence("again", list(range(100)), more=50, alone=True)
    again.token_ids += [1, 2, 3]
    line.submit(again, admitted_before=True)
    assert [step(line)["again"] for _ in range(5)] == [100, 1, 1, 1, 1]
    assert len(again.token_ids) == 105


# Guesses


def guessing(name: str, prompt: list[int], more: int = 20) -> Sequence:
    one = sequence(name, prompt, more)
    one.lookup = PromptLookup(one.token_ids)
    return one


def test_guesses_are_computed_behind_the_next_token_and_only_what_was_accepted_stays():
    line = scheduler(limits=Limits(draft_rows=8))
    quoting = guessing("quoting", [*range(13), 0, 1, 2])
    line.submit(quoting)
    assert line.next_batch().parts[0].draft == ()
    quoting.accept(3)
    batch = line.next_batch()
    assert batch.step.token_ids == (3, 4, 5, 6) and batch.parts[0].draft == (4, 5, 6)
    (span,) = batch.step.spans
    assert (span.start, span.length, span.outputs, len(span.block_table)) == (16, 4, 4, 2)
    for token_id in (4, 5, 99):
        quoting.accept(token_id)
    assert line.next_batch().step.spans[0].start == 19


def test_no_guess_goes_beyond_the_last_token_that_may_come():
    line = scheduler(limits=Limits(draft_rows=8))
    quoting = guessing("quoting", [*range(14), 0, 1, 2], more=3)
    line.submit(quoting)
    line.next_batch()
    quoting.accept(3)
    assert line.next_batch().parts[0].draft == (4,), "two more at most: one guess and what follows it"


def test_guesses_end_where_many_decode_and_where_blocks_are_short():
    repeated = [1, 2, 3] * 5
    many = scheduler(limits=Limits(draft_rows=8))
    for number in range(5):
        many.submit(guessing(str(number), [number * 100 + 9, *repeated]))
    short = scheduler(blocks=2, limits=Limits(draft_rows=8))
    short.submit(guessing("a", repeated, more=17))
    for line in (many, short):
        assert all(part.complete and not part.draft for part in line.next_batch().parts)
        for running in line.running:
            running.accept(1)
    assert all(not part.draft for part in many.next_batch().parts)
    many.finish(many.running[-1])
    many.running[0].accept(2)
    for running in many.running[1:]:
        running.accept(2)
    assert [len(part.draft) for part in many.next_batch().parts] == [1] * 4
    assert short.next_batch().parts[0].draft == (), "one token is left in the block, and it is taken"


class Traffic(RuleBasedStateMachine):
    """Requests of every kind come, are refused, cancelled, put back, run to their end, in any order. `memory` is what
    the steps wrote: each span must find its own sequence there."""

    requests = Bundle("requests")
    BLOCKS = 20
    LIMITS = Limits(running=3, waiting=4, step_tokens=40, beside_decoding=10, draft_rows=6, max_total_tokens=300)

    def __init__(self) -> None:
        super().__init__()
        self.line = scheduler(blocks=self.BLOCKS, limits=self.LIMITS)
        self.open: dict[str, Sequence] = {}
        self.memory: dict[int, tuple[int, bool]] = {}  # slot -> token, computed alone
        self.count = 0

    @rule(
        target=requests,
        shared=st.sampled_from([0, 40, 100, 150]),
        own=st.integers(1, 100),
        more=st.integers(1, 150),
        kind=st.sampled_from(["plain", "guessing", "alone"]),
    )
    def submit(self, shared, own, more, kind):
        self.count += 1
        ids = [*range(shared), *(1000 * self.count + place % 7 for place in range(own))]
        new = sequence(str(self.count), ids, more, alone=kind == "alone")
        new.lookup = PromptLookup(new.token_ids) if kind == "guessing" else None
        try:
            self.line.submit(new)
        except PromptTooLong:
            assert len(ids) + more > 300
            return multiple()
        except QueueFull:
            assert len(self.line.waiting) >= self.LIMITS.waiting, "more where some were put back"
            return multiple()
        self.open[new.id] = new
        return new

    @rule(cancelled=consumes(requests), spoilt=st.booleans())
    def cancel(self, cancelled, spoilt):
        if self.open.pop(cancelled.id, None) is not None:
            self.line.finish(cancelled, spoilt=spoilt)

    @rule()
    def forget(self):
        self.line.forget_prefixes()

    @rule(right=st.integers(0, 8))
    def step(self, right=0):
        """Of every guess the first `right` tokens come true."""
        batch = self.line.next_batch()
        assert bool(batch.parts) == bool(self.open)
        spans = list(zip(batch.parts, batch.step.spans, strict=True))
        alone = [span for part, span in spans if part.sequence.alone]
        assert len(spans) == 1 or not alone
        assert all(span.block_table == tuple(range(span.block_table[0], span.block_table[-1] + 1)) for span in alone)
        for source, target, blocks in batch.step.moves:
            for slot in range(blocks * BLOCK_TOKENS):
                self.memory[target * BLOCK_TOKENS + slot] = self.memory.get(source * BLOCK_TOKENS + slot, (-1, False))
        token_ids = iter(batch.step.token_ids)
        for part, span in spans:
            for place in range(span.start, span.start + span.length):
                self.memory[self.slot(span, place)] = (next(token_ids), part.sequence.alone)
        for part, span in spans:
            read = [self.memory[self.slot(span, place)] for place in range(span.start + span.length)]
            wanted = [*part.sequence.token_ids[: part.sequence.cached], *part.draft]
            assert read == [(token_id, part.sequence.alone) for token_id in wanted]
            assert part.complete == (part.sequence.cached == len(part.sequence.token_ids))
        for part in batch.parts:
            if part.complete:
                self.accept(part.sequence, [*part.draft[:right], 7])

    @staticmethod
    def slot(span, position: int) -> int:
        return span.block_table[position // BLOCK_TOKENS] * BLOCK_TOKENS + position % BLOCK_TOKENS

    def accept(self, planned: Sequence, token_ids: list[int]) -> None:
        for token_id in token_ids:
            planned.accept(token_id)
        assert len(planned.token_ids) <= planned.capacity
        if len(planned.token_ids) == planned.capacity:
            self.line.finish(planned)
            del self.open[planned.id]

    @invariant()
    def first_come_first_served(self):
        order = [int(one.id) for one in [*self.line.running, *self.line.waiting]]
        assert order == sorted(order)

    @invariant()
    def blocks_are_conserved(self):
        held = Counter(block for running in self.line.running for block in running.table.blocks)
        assert all(self.line.pool.references(block) == held[block] for block in range(self.BLOCKS))
        assert self.line.pool.free_count == self.BLOCKS - len(held)
        assert not any(waiting.table.blocks for waiting in self.line.waiting)

    @invariant()
    def every_request_is_somewhere(self):
        there = [one.id for one in [*self.line.waiting, *self.line.running]]
        assert sorted(there) == sorted(self.open)
        assert len(self.line.running) <= self.LIMITS.running

    def teardown(self):
        for _ in range(3000):
            if not self.line.has_work:
                break
            self.step(right=2)
        assert not self.open and self.line.pool.free_count == self.BLOCKS


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
