"""Markers in an answer: where they stand, for whom, and that nothing else looks like one."""

import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safety.content import Content
from safety.pii import Pii
from safety.screen import Screen
from safety.token_window import TokenWindow
from safety.verdict import Surface, Verdict
from services.citations import MAX_HELD_CHARS, Citer
from services.compose import cite
from services.events import Delta
from tests.fakes import embed as hashed
from tests.fakes import match

CLOSED = "The harbour bridge is closed in both directions"
FREE = "The ferry takes foot passengers for free today"
POSTS = [
    match("ana", "Harbour bridge is closed in both directions after the inspection."),
    match("bo", f"{FREE}."),
    match("chen", "地铁2号线因信号故障停运，预计18:30恢复。"),
    match("dia", "Ferry takes foot passengers for free today!"),
]
CITATIONS = [cite(number, post) for number, post in enumerate(POSTS, 1)]
ANSWER = [
    "Here is what people say:\n",
    CLOSED + ". ",
    FREE + ". ",
    "Scientists discovered seventeen penguins downtown. ",
    "地铁2号线因信号故障停运。",
    "That's all!",
]
MARKED = (
    "Here is what people say:\n"
    f"{CLOSED}. [1] "
    f"{FREE}. [2][4] "
    "Scientists discovered seventeen penguins downtown. "
    "地铁2号线因信号故障停运。[3]"
    "That's all!"
)


async def embed(texts: Sequence[str]) -> np.ndarray:
    """All alike: words alone decide, so that these tests need no model."""
    return np.ones((len(texts), 1))


class Live:
    """The posts that exist."""

    def __init__(self) -> None:
        self.removed: set[str] = set()
        self.asked: list[list[str]] = []

    async def __call__(self, post_ids: Sequence[str]) -> set[str]:
        self.asked.append(list(post_ids))
        return set(post_ids) - self.removed


class LocalJudge:
    """The real screen, in this process."""

    SCREEN = Screen([Pii(), Content()])

    async def check(self, text: str, surface: Surface) -> Verdict:
        return self.SCREEN.check(text, surface)


JUDGE = LocalJudge()


def citer(live: Live | None = None) -> Citer:
    posts = [match(post.post_id, post.text, vector=(1.0,)) for post in POSTS]
    return Citer(CITATIONS, posts, embed, live or Live(), JUDGE)


async def written(pieces: Sequence[str], by: Citer | None = None) -> list[Delta]:
    by = by or citer()
    deltas = [delta for piece in pieces for delta in await by.write(piece)]
    return deltas + await by.finish()


def text_of(deltas: Sequence[Delta]) -> str:
    return "".join(delta.text for delta in deltas)


def assert_marks_are_exact(deltas: Sequence[Delta]) -> None:
    text, position, marks = text_of(deltas), 0, []
    for delta in deltas:
        for mark in delta.marks:
            assert position <= mark.start < mark.end <= position + len(delta.text), "a mark lies inside its delta"
            marks.append(mark)
        position += len(delta.text)
    for mark in marks:
        assert text[mark.start : mark.end] == f"[{mark.citation.number}]"
    assert [found.span() for found in re.finditer(r"\[\d+\]", text)] == [(mark.start, mark.end) for mark in marks]


async def test_each_supported_sentence_is_marked_before_its_trailing_space() -> None:
    by = citer()
    deltas = await written(ANSWER, by)
    assert text_of(deltas) == MARKED
    assert_marks_are_exact(deltas)
    assert [one.number for one in by.cited()] == [1, 2, 3, 4]
    assert by.unsupported_sentences == 1


async def test_a_sentence_leaves_as_soon_as_it_ends() -> None:
    by = citer()
    assert await by.write("The harbour bridge is ") == []
    assert text_of(await by.write("closed in both directions.")) == f"{CLOSED}. [1]"
    assert text_of(await by.write(" ")) == ""
    assert text_of(await by.finish()) == " "


@settings(deadline=None)
@given(st.lists(st.integers(0, len("".join(ANSWER))), max_size=12))
async def test_the_text_is_the_same_however_its_sentences_are_cut(cuts: list[int]) -> None:
    """A cut right after a full stop that ends no sentence is the screen's to avoid; here there is none."""
    whole = "".join(ANSWER)
    places = sorted({0, *cuts, len(whole)})
    deltas = await written([whole[a:b] for a, b in zip(places, places[1:], strict=False)])
    assert text_of(deltas) == MARKED
    assert_marks_are_exact(deltas)


MARKUP = ["[", "]", "(", ")", "!", "[2]", "[9]", "[1, 2]", "\u30104\u3011", "(post 2)", "[a](http://evil.example)"]
WORDS = [
    CLOSED,
    FREE,
    "信号故障停运",
    "http://evil.example/x",
    "javascript:alert",
    CITATIONS[0].url,
    "x" * 50,
    "word " * 20,
]
WILD = st.lists(st.sampled_from([*MARKUP, *WORDS, ". ", ".", "\n", " ", "1", "3", "。", "\U0001f680"]), max_size=25)


@settings(max_examples=200, deadline=None)
@given(WILD)
async def test_whatever_is_written_only_our_markers_are_in_the_answer(pieces: list[str]) -> None:
    by = citer()
    deltas = await written(pieces, by)
    assert_marks_are_exact(deltas)
    text = text_of(deltas)
    assert "evil.example/x" not in text
    assert "](http://evil" not in text
    assert "](javascript" not in text
    assert not re.search(r"!\[[^\]]*\]\(", text)
    assert {one.number for one in by.cited()} == {mark.citation.number for delta in deltas for mark in delta.marks}
    assert {one.number for one in by.cited()} <= {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        ([f"{CLOSED} [1]."], f"{CLOSED}. [1]"),
        ([f"{CLOSED}. [1]\n"], f"{CLOSED}. [1]\n"),
        ([CLOSED + ". ", "[1] Nice."], f"{CLOSED}. [1] Nice."),
        ([f"{CLOSED} [4]."], f"{CLOSED}. [1]"),
        ([f"{CLOSED} [", "7] today.\n"], f"{CLOSED} today. [1]\n"),
        (["Penguins moved into the old lighthouse [1]."], "Penguins moved into the old lighthouse."),
        (["Wow!", f"[her post]({CITATIONS[0].url}) "], f"Wow! [her post]({CITATIONS[0].url}) "),
    ],
)  # fmt: skip
async def test_the_models_own_markers_are_kept_only_where_they_are_right(pieces: list[str], shown: str) -> None:
    deltas = await written(pieces)
    assert text_of(deltas) == shown
    assert_marks_are_exact(deltas)


async def test_two_sentences_in_one_piece_are_marked_each() -> None:
    piece = f"{CLOSED}. {FREE}."
    shown = f"{CLOSED}. [1] {FREE}. [2][4]"
    assert text_of(await written([piece])) == shown


async def test_a_removed_post_is_never_marked_and_another_stands_in() -> None:
    live = Live()
    live.removed = {"bo"}
    by = citer(live)
    deltas = await written([FREE + ". ", f"{CLOSED}."], by)
    assert text_of(deltas).startswith(f"{FREE}. [4] ")
    assert live.asked == [["bo", "dia"], ["ana"]], "asked once for each sentence that would get a marker"
    live.removed.add("ana")
    kept, removed = await by.check_present()
    assert [one.post_id for one in kept] == ["dia"]
    assert removed == (1, 2), "marked or not"


async def test_a_sentence_whose_only_post_was_removed_counts_as_unsupported() -> None:
    live = Live()
    live.removed = {"ana"}
    by = citer(live)
    assert text_of(await written([f"{CLOSED}."], by)).endswith("directions.")
    assert by.unsupported_sentences == 1
    assert await by.check_present() == ((), (1,))


async def test_an_answer_without_end_is_not_held_for_ever() -> None:
    by = citer()
    held = "word " * (MAX_HELD_CHARS // 5)
    assert await by.write(held) == []
    assert text_of(await by.write("and on ")) == held + "and on "
    open_bracket = "[" + "word " * (MAX_HELD_CHARS // 5)
    assert "[" not in text_of([*await by.write(open_bracket), *await by.write("on [")])


async def test_the_authors_name_is_no_evidence_but_no_obstacle_either() -> None:
    deltas = await written(
        ["According to @ana.example, the harbour bridge is closed in both directions.", " Ana says so."]
    )
    assert (
        text_of(deltas)
        == "According to @ana.example, the harbour bridge is closed in both directions. [1] Ana says so."
    )


async def test_posts_without_vectors_are_embedded_once() -> None:
    asked: list[int] = []

    async def counted(texts: Sequence[str]) -> np.ndarray:
        asked.append(len(texts))
        return hashed(texts)

    posts = [match(post.post_id, post.text, vector=()) for post in POSTS]
    by = Citer(CITATIONS, posts, counted, Live(), JUDGE)
    assert await by.attribute("Harbour bridge is closed in both directions after the inspection.") == [1]
    assert await by.attribute(f"{FREE}.") == [2, 4]
    assert asked == [4, 1, 1]


CARD_DIGITS = "4111111111111111"
REBUILT = [
    "Her card is 4111[1]1111[1]1111[1]1111 today.",
    "Her card is 4111 (post 1) 1111 (post 1) 1111 (post 1) 1111 today.",
    "Her card is 4111.[1] 1111. [1] 1111. [1] 1111. [1]",
    "Write to ana.lopez[1]@example.com now.",
    "Write to ana@exam![x](y)ple.com now.",
    "Write to ana@exam[ple](http://evil.example).com now.",
    "Write to ana\u30101\u3011@example.com[2].",
    "Write to ana.lopez@exam[1][2]ple.com",
]


async def answered(pieces: Sequence[str], cut_by: Sequence[str] | None = None) -> str:
    """What a reader sees of what a model wrote: by the real screen, window and citer."""
    window, by = TokenWindow(JUDGE), citer()
    shown = ""
    for piece in pieces:
        for sentence in await window.push(piece):
            shown += text_of(await by.write(sentence))
    for sentence in await window.finish(cut_by):
        shown += text_of(await by.write(sentence))
    return shown + text_of(await by.finish(cut_by))


def assert_nothing_personal(shown: str, written: str) -> None:
    unmarked = re.sub(r"\s*\[\d+\]", "", shown)
    assert "@" not in shown, (written, shown)
    assert CARD_DIGITS not in re.sub(r"\D", "", unmarked), (written, shown)
    assert LocalJudge.SCREEN.check(shown, "question").text == shown, (written, shown)


@pytest.mark.parametrize("written", REBUILT)
async def test_taking_markup_out_never_puts_an_identifier_together(written: str) -> None:
    for cut in range(len(written)):
        shown = await answered([written[:cut], written[cut:]])
        assert_nothing_personal(shown, written)
        assert shown.startswith(("Her card is", "Write to"))


MARKUPS = st.sampled_from(["[1]", " [2]", "(post 1)", " (post 1)", "![x](y)", "\u30101\u3011", "[1][2]"])
SECRETS = st.sampled_from(["4111 1111 1111 1111", CARD_DIGITS, "ana.lopez@example.com"])


@settings(max_examples=150, deadline=None)
@given(SECRETS, st.lists(st.tuples(st.integers(1, 30), MARKUPS), min_size=1, max_size=4), st.integers(0, 80))
async def test_wherever_markup_stands_in_an_identifier_it_does_not_leave(
    secret: str, places: list[tuple[int, str]], cut: int
) -> None:
    for place, markup in sorted(places, reverse=True):
        secret = secret[:place] + markup + secret[place:]
    written = f"Her card or mail is {secret} today."
    shown = await answered([written[:cut], written[cut:]])
    assert "ana.lopez@example.com" not in shown.replace(" ", "")
    assert CARD_DIGITS not in re.sub(r"[\s.]", "", shown)


async def test_a_long_row_parted_by_markers_leaves_in_no_part() -> None:
    lead = "word " * (MAX_HELD_CHARS // 5 - 3)
    written = f"{lead}card 4111 [1] 1111 [1] 1111 [1] 1111 and on and on and on and on."
    for cut in range(len(lead), len(written)):
        shown = await answered([written[:cut], written[cut:]])
        assert "1111" not in shown, shown


async def test_what_cleaning_makes_forbidden_is_withheld() -> None:
    by = citer()
    assert text_of(await by.write(f"{CLOSED}. ")) == f"{CLOSED}. [1] "
    assert await by.write("I will ki[1]ll you and your family. ") == []
    assert by.blocked is not None and by.blocked.reason == "threat"
    assert await by.write(f"{FREE}.") == await by.finish() == []


@pytest.mark.parametrize("written", ["Her card is 4111 [1] 1111 [1] 11", "Write to ana.lopez[1]@example"])
async def test_a_cut_answer_shows_no_front_of_what_markup_held_apart(written: str) -> None:
    for cut in range(len(written)):
        shown = await answered([written[:cut], written[cut:]], ())
        assert "11" not in shown and "@" not in shown and "ana" not in shown, shown
