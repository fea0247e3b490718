"""Lines out of bytes that come in pieces of any size."""

from hypothesis import given
from hypothesis import strategies as st

from ingest.sources.ndjson import MAX_LINE, Lines


@given(st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"").rstrip(b"\r")), max_size=6), st.data())
def test_lines_are_the_same_however_they_are_cut(lines, data):
    whole = b"".join(line + data.draw(st.sampled_from([b"\n", b"\r\n"])) for line in lines)
    taken, found = Lines(), []
    while whole:
        size = data.draw(st.integers(1, len(whole)))
        found += taken.feed(whole[:size])
        whole = whole[size:]
    assert found == lines


def test_t32_a_line_without_an_end_takes_no_more_memory_than_the_limit():
    lines = Lines()
    for _ in range(30):
        assert list(lines.feed(b"x" * 100_000)) == []
    (line, after) = lines.feed(b"\nnext\n")
    assert len(line) == MAX_LINE + 1 and after == b"next"
