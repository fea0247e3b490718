"""Where an answer is cut: at sentence and line ends, never inside an identifier, and always in the same places."""

import random

import pytest
from hard_streams import WITH_PII, WITHOUT
from hypothesis import given
from hypothesis import strategies as st

from safety.normalise import normalise
from safety.pii import identify
from safety.sentences import HARD_CHARS, LAST_CHARS, Sentences, split


def fed(parts: list[str]) -> list[str]:
    sentences = Sentences()
    return [piece for part in parts for piece in sentences.feed(part)] + sentences.close()


@pytest.mark.parametrize(
    "pieces",
    [
        ["Hello there.", " How are you?", " Fine!", " Bye"],
        ["I paid 3.5 in the U.S. market.", " Dr. Smith left."],
        ['He said "no!"', " Then (later.)", " he left..."],
        ["第一句。", "第二句！", "“真的？”他说。", "好"],
        ["هل أنت بخير؟", " نعم.", " حسنا"],
        ["one\n", "two\n\n", "1. item one\n", "2. item two"],
        ["Phone:\nnone\n", "ok"],
        ["Call 510-555-0130. ", "It rings."],
        ["In 2024. ", "Then 15 came.", " And 2024. 15 more.", " Yes"],
        ["z. B. heute.", " Ja."],
    ],
)
def test_sentences_and_lines(pieces: list[str]) -> None:
    assert split("".join(pieces)) == pieces


def test_a_boundary_waits_for_the_next_character() -> None:
    sentences = Sentences()
    assert sentences.feed("Costs 3.") == []
    assert sentences.feed("5 now.") == []
    assert sentences.feed(" Yes") == ["Costs 3.5 now."]
    assert sentences.close() == [" Yes"]
    assert sentences.close() == []


@pytest.mark.parametrize("text", WITH_PII + WITHOUT)
def test_every_cut_in_two_gives_the_same_pieces(text: str) -> None:
    whole = split(text)
    assert "".join(whole) == text
    for first in range(len(text) + 1):
        assert fed([text[:first], text[first:]]) == whole


@pytest.mark.parametrize("text", WITH_PII)
def test_every_cut_in_three_gives_the_same_pieces(text: str) -> None:
    whole = split(text)
    for first in range(len(text)):
        for second in range(first + 1, len(text)):
            assert fed([text[:first], text[first:second], text[second:]]) == whole


def test_ten_thousand_random_cuts() -> None:
    chosen = random.Random(20)
    for _ in range(10_000):
        text = " ".join(chosen.sample(WITH_PII + WITHOUT, 2))
        cuts = sorted(chosen.sample(range(len(text) + 1), chosen.randint(1, min(12, len(text)))))
        parts = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        assert fed(parts) == split(text)


PARTS = st.sampled_from(
    [
        *WITH_PII,
        " ",
        "\n",
        ". ",
        "word ",
        "4111 ",
        "1111",
        "jane@",
        "example",
        ".com",
        " at ",
        " dot ",
        "a" * 90,
        "12 " * 40,
        "a.b-" * 30,
        "\u200b",
        "。",
        "(",
        "+",
        "x" * 250,
        "@",
        "GB82 WEST ",
        "\ud800",
        "1: ",
    ]
)


@given(st.lists(PARTS, max_size=14), st.integers(0, 2**32))
def test_any_text_is_cut_alike_and_its_pieces_stay_whole(parts: list[str], seed: int) -> None:
    text = "".join(parts)
    whole = split(text)
    assert "".join(whole) == text
    assert fed(parts) == whole
    assert fed(list(text)) == whole
    assert all(split(piece) == [piece] for piece in whole)
    assert max(map(len, whole), default=0) <= LAST_CHARS


IDENTIFIERS = [
    "jane.doe@example.co.uk",
    "j\u200bane@example.com",
    "jane [at] example [dot] com",
    "jane at example dot com",
    "4111 1111 1111 1111",
    "GB82 WEST 1234 5698 7654 32",
    "510-555-0130 x12",
    "+44 (20) 7946 0958",
    "12345678 Z",
    "QQ 12 34 56 C",
    "6e40:4041:c617:e898:c11:40d2:c669:2eb4",
]


def ends_inside(text: str) -> list[tuple[int, str]]:
    """The ends of pieces that fall inside an identifier of the whole text."""
    ends = set()
    place = 0
    for piece in split(text):
        place += len(piece)
        ends.add(place)
    seen = normalise(text)
    spans = [(found.label, *seen.raw_span(found.start, found.end)) for found in identify(seen)]
    assert spans
    return [(end, label) for label, start, stop in spans for end in ends if start < end < stop]


@pytest.mark.parametrize("identifier", IDENTIFIERS)
@pytest.mark.parametrize("filler", ["word ", "\u597d"])
def test_no_cut_falls_inside_an_identifier(identifier: str, filler: str) -> None:
    """A piece is cut for its length from 200 characters on: every place of the identifier around that, with spaces to
    cut at and without."""
    for length in range(160, 280):
        before = (filler * length)[:length]
        assert ends_inside(f"{before} {identifier} tail") == []
        if filler == "\u597d":
            assert ends_inside(f"{before}{identifier}\u597d") == []


def test_a_row_without_end_is_cut_between_cards() -> None:
    assert ends_inside("4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 " * 60) == []


@pytest.mark.parametrize("filler", ["word ", "x", "好", "\u200b", "1 ", "a@", ". ", "a at ", "\n", "at10 "])
def test_nothing_is_held_forever(filler: str) -> None:
    pieces = split(filler * (6000 // len(filler)))
    assert max(map(len, pieces)) <= LAST_CHARS
    if filler in ("word ", "好"):
        assert max(map(len, pieces)) <= HARD_CHARS
