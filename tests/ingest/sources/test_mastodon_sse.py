"""An event stream cut anywhere gives the same events, and the same as httpx-sse reads (T27)."""

import httpx
import httpx_sse
from hypothesis import example, given
from hypothesis import strategies as st

from ingest.sources.sse import EventLines, SentEvent

MOST = 1000
SAMPLE = (
    '\ufeffevent: update\n:)\n:thump\ndata: {"text": "caf\u00e9 \U0001f600 \u2028 \u0085 end"}\n\n'
    "event:delete\r\ndata:108914354907984653\r\n\r\n:thump\rdata: one\rdata:  two\r\rid: 7\nretry: 5\nevent: x\n\n"
    "event: filters_changed\ndata: undefined\n\n"
).encode()
EVENTS = [
    SentEvent("update", '{"text": "caf\u00e9 \U0001f600 \u2028 \u0085 end"}'.encode()),
    SentEvent("delete", b"108914354907984653"),
    SentEvent("message", b"one\n two"),
    SentEvent("filters_changed", b"undefined"),
]


def events_of(*pieces: bytes) -> list[SentEvent]:
    lines = EventLines(MOST)
    return [event for piece in pieces for event in lines.feed(piece)]


def cut(content: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(content) + 1) for place in places), len(content)]
    return [content[start:end] for start, end in zip(edges, edges[1:], strict=False)]


@given(st.lists(st.integers(0, 10_000), max_size=12))
@example(list(range(len(SAMPLE))))
def test_t27_a_stream_cut_anywhere_gives_the_same_events(places: list[int]) -> None:
    assert events_of(*cut(SAMPLE, places)) == EVENTS


def test_t27_what_is_half_there_at_the_end_is_dropped() -> None:
    for end in range(len(SAMPLE)):
        found = events_of(SAMPLE[:end])
        assert found == EVENTS[: len(found)]
    assert events_of(b'event: update\ndata: {"id"') == []
    assert events_of(b"event: update\ndata: {}\n") == []


LINES = st.lists(
    st.one_of(
        st.sampled_from(["", "", "data", "data:", "event: a", "event:", ":thump", "other: x", "data: \u2028", "\x0b"]),
        st.text(st.characters(exclude_characters="\r\n\x00", exclude_categories=["Cs"]), max_size=10).map(
            lambda text: f"data: {text}"
        ),
    ),
    max_size=20,
)


@given(LINES, st.sampled_from(["\n", "\r\n", "\r"]), st.lists(st.integers(0, 10_000), max_size=5))
def test_it_reads_what_httpx_sse_reads(lines: list[str], end: str, places: list[int]) -> None:
    """But for an event with empty data, which the specification does not dispatch."""
    content = "".join(line + end for line in lines).encode()
    response = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=content)
    theirs = [
        SentEvent(event.event, event.data.encode())
        for event in httpx_sse.EventSource(response).iter_sse()
        if event.data
    ]
    assert [event for event in events_of(*cut(content, places)) if event.data] == theirs


def test_bytes_that_are_no_utf8_are_kept_for_the_reader_to_refuse() -> None:
    assert events_of(b"data: \xff\xfe\n\n") == [SentEvent("message", b"\xff\xfe")]


def test_too_long_an_event_is_cut_one_byte_over_the_limit_and_the_next_is_whole() -> None:
    long = b"event: update\ndata: " + b"x" * 5000 + b"\n\ndata: next\n\n"
    many = b"data: y\n" * 5000 + b"\ndata: next\n\n"
    for content in (long, many):
        for size in (1, 7, 10_000):
            first, second = events_of(*(content[at : at + size] for at in range(0, len(content), size)))
            assert len(first.data) == MOST + 1
            assert second.data == b"next"


def test_a_line_without_an_end_takes_no_memory() -> None:
    lines = EventLines(MOST)
    for _ in range(1000):
        assert lines.feed(b"x" * 10_000) == []
    assert lines.feed(b"\n\ndata: next\n\n") == [SentEvent("message", b"next")]
    assert len(lines._partial) <= MOST + 10
