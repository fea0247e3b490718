"""What a model may not write: markers of its own, images, links to elsewhere."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.markup import clean, is_open, without_openings

POST_URL = "https://social.example/ana"
URLS = frozenset({POST_URL})


@pytest.mark.parametrize(
    ("written", "shown", "named"),
    [
        ("The bridge is closed [2].", "The bridge is closed.", [2]),
        ("Closed [1, 2] and late [1][3].", "Closed and late.", [1, 2, 1, 3]),
        ("Closed \u30101\u3011.", "Closed.", [1]),
        ("Closed\u30103\u2020source\u3011.", "Closed.", [3]),
        ("Closed (post 1).", "Closed.", [1]),
        ("Closed (see posts 1 and 3).", "Closed.", [1, 3]),
        ("Closed [post 4].", "Closed.", [4]),
        ("Closed [1-3].", "Closed.", [1, 2, 3]),
        ("Closed [^2].", "Closed.", [2]),
        ("Closed [1](https://evil.example/1).", "Closed.", [1]),
        (f"Closed [[1]]({POST_URL}).", "Closed.", [1]),
        ("Closed [\uff12] [\u0663].", "Closed.", [2, 3]),
        ("Closed [[1]2].", "Closed.", [1, 2]),
        ("Closed since (1) one and [email].", "Closed since (1) one and [email].", []),
        ("Line one\n[2] line two", "Line one\n line two", [2]),
    ],
)
def test_markers_are_taken_out_and_remembered(written: str, shown: str, named: list[int]) -> None:
    text, numbers = clean(written, URLS)
    assert text == shown
    assert sorted(numbers) == sorted(named)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("Look ![map](https://evil.example/?q=secret) here", "Look here"),
        ("Look ![map][ref] here", "Look here"),
        ("Read [the news](https://evil.example/a) now", "Read the news now"),
        ("Read [the news](javascript:alert(1)) now", "Read the news now"),
        ("Read [the (new) news](https://evil.example/a(b)) now", "Read the (new) news now"),
        ("Read https://evil.example/a?b=c. Now", "Read. Now"),
        ("Read www.evil.example, now", "Read, now"),
        ("Read HTTPS://EVIL.example now", "Read now"),
        ("Read <https://evil.example/a> now", "Read now"),
        (f"Read [her post]({POST_URL}) now", f"Read [her post]({POST_URL}) now"),
        (f"Read {POST_URL}.", f"Read {POST_URL}."),
        (f"Read {POST_URL}/../other", "Read"),
        (f"Look ![map]({POST_URL})", "Look"),
    ],
)
def test_only_addresses_of_the_posts_stay(written: str, shown: str) -> None:
    assert clean(written, URLS)[0] == shown


PIECES = st.lists(
    st.sampled_from(
        [
            "[",
            "]",
            "(",
            ")",
            "!",
            "1",
            "23",
            "[2]",
            " ",
            "\n",
            "\u3010",
            "\u3011",
            "post ",
            "a",
            "http://e.x/",
            POST_URL,
            ", ",
            "and",
            "^",
            "<",
            ">",
        ]
    ),
    max_size=14,
).map("".join)


@settings(deadline=None)
@given(PIECES)
def test_no_number_in_brackets_and_no_address_is_left_however_it_was_nested(written: str) -> None:
    text, _ = clean(written, URLS)
    assert not re.search(r"\[\d+\]", text)
    assert "http://e.x" not in text
    assert clean(text, URLS)[0] == text


@pytest.mark.parametrize("text", ["Closed [", "Closed [2", "See [the map](https://a.b/c", "\u3010", "a] [b"])
def test_what_may_still_become_a_marker_is_open(text: str) -> None:
    assert is_open(text)
    assert not is_open(without_openings(text))


@pytest.mark.parametrize("text", ["Closed.", "Closed [email].", "[a](b) c", "a]"])
def test_the_rest_is_not(text: str) -> None:
    assert not is_open(text)
