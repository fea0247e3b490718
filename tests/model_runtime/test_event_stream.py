"""Events are the same however their bytes arrive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_runtime.event_stream import MOST_BYTES, EventStream, EventTooLong

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=8)
LINES = st.one_of(
    TEXTS.map("data: {}".format), TEXTS.map(":{}".format), st.sampled_from(["event: x", "data", "id:7", ""])
)


def by_definition(lines: list[str]) -> list[str]:
    """The data lines of every block that an empty line ends."""
    events, data = [], []
    for line in lines:
        if not line and data:
            events.append("\n".join(data))
        if not line:
            data = []
        elif line == "data" or line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
    return events


@given(st.lists(LINES, max_size=12), st.sampled_from(["\n", "\r\n", "\r"]), st.lists(st.integers(0, 200), max_size=9))
def test_events_are_the_same_however_the_bytes_fall(lines: list[str], end: str, cuts: list[int]):
    whole = "".join(line + end for line in [*lines, ": the end"]).encode()
    stream, found, start = EventStream(), [], 0
    for cut in [*sorted(cuts), len(whole)]:
        found += stream.push(whole[start:cut])
        start = max(start, cut)
    assert found == by_definition(lines)


def test_an_event_without_an_end_is_too_long_some_day():
    for beginning in (b"data: ", b": comment", b"data: x\ndata: "):
        stream = EventStream()
        stream.push(beginning)
        with pytest.raises(EventTooLong):
            for _ in range(MOST_BYTES // 65_536 + 1):
                stream.push(b"x" * 65_536)
    stream = EventStream()
    with pytest.raises(EventTooLong):
        for _ in range(MOST_BYTES // 65_536 + 1):
            stream.push(b"data: " + b"x" * 65_536 + b"\n")


def test_events_together_may_be_longer():
    stream = EventStream()
    for _ in range(MOST_BYTES // 65_536 + 1):
        assert stream.push(b"data: " + b"x" * 65_536 + b"\n\n") == ["x" * 65_536]
