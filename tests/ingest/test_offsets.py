"""T8: only what has nothing unfinished before it may be committed."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ingest.offsets import Offsets


def test_offsets_after_an_unfinished_one_wait_for_it() -> None:
    """T8: 1, 2, 3, 5, 6, 7 are done, 4 is not: the next to read is 4."""
    offsets = Offsets()
    for offset in range(1, 8):
        offsets.hand_out(0, offset + 1, 1)
    for offset in (1, 2, 3, 5, 6, 7):
        assert offsets.finish(0, offset + 1)
    assert (offsets.due(), offsets.unfinished_records) == ({0: 4}, 1)
    offsets.committed({0: 4})
    assert offsets.due() == {}
    offsets.finish(0, 5)
    assert (offsets.due(), offsets.unfinished_records) == ({0: 8}, 0)


def test_offsets_that_are_missing_in_the_topic_are_no_gap() -> None:
    """Compaction, and the marks of transactions, leave holes."""
    offsets = Offsets()
    offsets.hand_out(3, 10, 2)
    offsets.hand_out(3, 500, 1)
    offsets.finish(3, 500)
    assert offsets.due() == {}
    offsets.finish(3, 10)
    assert offsets.due() == {3: 500}


def test_a_commit_that_failed_is_due_again() -> None:
    offsets = Offsets()
    offsets.hand_out(0, 5, 5)
    offsets.finish(0, 5)
    assert offsets.due() == offsets.due() == {0: 5}


def test_what_was_forgotten_is_not_ours_to_commit() -> None:
    offsets = Offsets()
    for partition in (0, 1):
        offsets.hand_out(partition, 5, 5)
    offsets.forget([0, 7])
    assert not offsets.finish(0, 5) and offsets.finish(1, 5)
    assert offsets.due() == {1: 5}
    offsets.committed({0: 5, 1: 5})
    offsets.forget()
    offsets.hand_out(1, 3, 3)  # read again, from further back
    assert offsets.unfinished_records == 3
    offsets.finish(1, 3)
    assert offsets.due() == {1: 3}


class Machine(RuleBasedStateMachine):
    """Beside a model that keeps every offset by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets = Offsets()
        self.spans: dict[int, list[tuple[int, int, bool]]] = {}  # partition -> (next offset, records, finished)

    @rule(partition=st.integers(0, 2), step=st.integers(1, 5), records=st.integers(1, 5))
    def hand_out(self, partition: int, step: int, records: int) -> None:
        spans = self.spans.setdefault(partition, [])
        end = (spans[-1][0] if spans else 0) + step
        self.offsets.hand_out(partition, end, records)
        spans.append((end, records, False))

    @precondition(lambda self: self.spans)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        partition = data.draw(st.sampled_from(sorted(self.spans)))
        position = data.draw(st.integers(0, len(self.spans[partition]) - 1))
        end, records, _ = self.spans[partition][position]
        assert self.offsets.finish(partition, end)
        self.spans[partition][position] = (end, records, True)

    @rule()
    def commit(self) -> None:
        self.offsets.committed(self.offsets.due())
        assert self.offsets.due() == {}

    @precondition(lambda self: self.spans)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        partition = data.draw(st.sampled_from(sorted(self.spans)))
        self.offsets.forget([partition])
        del self.spans[partition]
        assert not self.offsets.finish(partition, 1)

    @invariant()
    def nothing_unfinished_is_passed(self) -> None:
        unfinished = 0
        for spans in self.spans.values():
            unfinished += sum(records for _, records, is_finished in spans if not is_finished)
        assert self.offsets.unfinished_records == unfinished
        for partition, due in self.offsets.due().items():
            ends = [end for end, _, _ in self.spans[partition]]
            assert all(is_finished for end, _, is_finished in self.spans[partition] if end <= due)
            after = ends.index(due) + 1
            assert after == len(ends) or not self.spans[partition][after][2]


TestMachine = Machine.TestCase


@given(st.permutations(range(1, 9)))
def test_in_whatever_order_all_of_it_is_committed_in_the_end(order: list[int]) -> None:
    offsets = Offsets()
    for end in range(1, 9):
        offsets.hand_out(0, end, 1)
    highest = 0
    for end in order:
        offsets.finish(0, end)
        due = offsets.due().get(0, highest)
        assert due >= highest
        highest = due
        offsets.committed(offsets.due())
    assert highest == 8
