from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.duplicates import collapse, is_retweet, repeat_key, saying
from tests.ingest.made import found


def test_case_space_width_urls_and_leading_mentions_make_no_difference():
    key = repeat_key("Bridge closed!")
    assert repeat_key("  BRIDGE\n closed! https://t.co/abc") == key
    assert repeat_key("RT @ana.example: Bridge closed!") == key
    assert repeat_key(".@ana @ben_2 bridge closed! www.example.org/x") == key
    assert repeat_key("\uff22ridge closed!") == key


def test_marks_that_cannot_be_seen_make_no_difference():
    assert repeat_key("Bri\u200bdge clo\u2060sed!\ufe0f") == repeat_key("Bridge closed!")


def test_other_words_and_other_marks_make_one():
    key = repeat_key("Bridge closed!")
    assert repeat_key("Bridge closed?") != key
    assert repeat_key("Bridge is closed!") != key
    assert repeat_key("Bridge closed! @ana") != key


def test_texts_that_are_nothing_but_a_link_or_emoji_are_themselves():
    assert repeat_key("https://a.example") != repeat_key("https://b.example")
    assert repeat_key("\U0001f62d") != repeat_key("\U0001f602")
    assert repeat_key("@ana") != repeat_key("@ben")


def test_a_saying_is_a_short_hash_and_of_nothing_is_nothing():
    assert saying("Bridge closed!") == saying("bridge CLOSED! https://t.co/x") != saying("Bridge open!")
    assert len(saying("Bridge closed!")) == 24
    assert saying("") == saying(" \n") == ""


@given(st.text())
def test_any_text_has_a_saying_and_a_retweet_of_it_has_the_same(text):
    assert saying(text) == saying(text + "  ")
    if repeat_key(text) and not text.lstrip().startswith(("@", ".@", ":")):
        assert saying(f"RT @ana: {text}") == saying(text)


def test_a_retweet_by_hand_is_known_by_its_lead():
    assert is_retweet("RT @ana: Bridge closed")
    assert is_retweet(" rt @ana.example Bridge closed")
    assert not is_retweet("Bridge closed rt @ana")
    assert not is_retweet("RTL says the bridge is closed")


def test_the_earliest_stands_for_the_repeats_with_the_best_score():
    late = found("b", "Bridge closed", score=0.9, sort_ms=20, author="x")
    early = found("a", "bridge closed https://t.co/1", score=0.4, sort_ms=10, author="y")
    again = found("c", "Bridge  closed", score=0.3, sort_ms=30, author="x")
    other = found("d", "Storm coming", score=0.6)
    first, second = collapse([late, other, early, again])
    assert (first.match.post_id, first.match.text, first.match.score) == ("a", "bridge closed https://t.co/1", 0.9)
    assert first.match.why == late.why
    assert [match.post_id for match in first.members] == ["a", "b", "c"]
    assert [match.post_id for match in second.members] == ["d"]


def test_the_saying_that_the_index_keeps_is_taken():
    one, other = (
        replace(found(name, text), saying="s") for name, text in (("a", "Bridge closed"), ("b", "Storm coming"))
    )
    assert len(collapse([one, other])) == 1


def test_reposts_collapse_into_the_original_even_when_they_are_older_by_clock():
    original = found("a", "Bridge closed, avoid", sort_ms=50)
    repost = found("b", "quoting this", repost_of="a", score=0.9, sort_ms=10)
    (said,) = collapse([repost, original])
    assert (said.match.post_id, len(said.members), said.match.score) == ("a", 2, 0.9)


def test_reposts_of_an_original_that_was_not_found_stand_for_each_other():
    (said,) = collapse([found("b", "x", repost_of="a", sort_ms=20), found("c", "y", repost_of="a", sort_ms=10)])
    assert (said.match.post_id, len(said.members)) == ("c", 2)


def test_two_groups_become_one_when_a_later_match_belongs_to_both():
    text_twin = found("t", "Bridge closed", score=0.9, sort_ms=30)
    original = found("a", "The bridge is shut", score=0.8, sort_ms=20)
    joins = found("r", "bridge closed", repost_of="a", score=0.1, sort_ms=40)
    (said,) = collapse([text_twin, original, joins])
    assert (said.match.post_id, len(said.members)) == ("a", 3)


def test_pieces_of_one_post_count_once_and_the_better_piece_is_shown():
    (said,) = collapse([found("a", "second part", number=1, score=0.9), found("a", "first part", score=0.2)])
    assert (said.match.number, said.others) == (1, ())


def test_nearly_the_same_words_are_one_and_other_numbers_are_not():
    one = found("a", "Criminal probe opened after the oil train derailed near the lake, officials say")
    near = found("b", "BREAKING: criminal probe opened after the oil train derailed near the lake, officials say")
    assert len(collapse([one, near])) == 1
    six, seven = (
        found(f"n{i}", f"Air quality update: the index is {i} at {i}pm in the northern district") for i in (6, 7)
    )
    assert len(collapse([six, seven])) == 2


@pytest.mark.parametrize("texts", [["\U0001f62d", "\U0001f602"], ["#flood", "#flood \U0001f62d now"]])
def test_texts_with_next_to_no_letters_are_not_near_each_other(texts):
    assert len(collapse([found(str(i), text) for i, text in enumerate(texts)])) == 2


def test_nothing_found_is_nothing():
    assert collapse([]) == []
