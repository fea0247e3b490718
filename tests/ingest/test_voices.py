from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.duplicates import Said
from ingest.index import Copy
from ingest.voices import WAVE_GAP_MS, WORDINGS, counted, independent, sayings_of
from tests.ingest.made import found

MINUTE_MS = 60_000


def copy(post_id, account, minute, *, known=False, repost=False):
    return Copy(post_id, account, minute * MINUTE_MS, repost, known)


def test_known_authors_count_each_even_when_they_say_the_same_at_the_same_time():
    assert independent([copy(str(i), f"a{i}", 0, known=True) for i in range(5)]) == 5


def test_many_new_authors_within_a_short_time_are_one_wave():
    assert independent([copy(str(i), f"new{i}", i) for i in range(30)]) == 1


def test_a_wave_beside_two_witnesses_makes_three_voices():
    wave = [copy(f"w{i}", f"new{i}", i) for i in range(10)]
    assert independent([*wave, copy("a", "ana", 3, known=True), copy("b", "ben", 4, known=True)]) == 3


def test_two_newcomers_are_no_wave_and_neither_are_three_hours_apart():
    assert independent([copy("a", "new1", 0), copy("b", "new2", 1)]) == 2
    assert independent([copy(str(i), f"new{i}", i * 61) for i in range(4)]) == 4
    assert WAVE_GAP_MS == 60 * MINUTE_MS


def test_one_author_who_says_it_again_and_again_is_one():
    assert independent([copy(str(i), "ana", i * 600, known=i > 0) for i in range(9)]) == 1


def test_a_repost_is_no_voice_but_somebody_said_it():
    assert independent([copy("a", "ana", 0, known=True), copy("r", "ben", 1, known=True, repost=True)]) == 1
    assert independent([copy("r", "ben", 1, known=True, repost=True)]) == 1


def test_posts_without_an_author_are_each_their_own_and_make_a_wave():
    assert independent([copy("a", "", 0), copy("b", "", 500)]) == 2
    assert independent([copy(str(i), "", i) for i in range(8)]) == 1


copies = st.lists(
    st.builds(
        Copy,
        post_id=st.uuids().map(str),
        account=st.sampled_from(["", "a", "b", "c", "d", "e"]),
        sort_ms=st.integers(0, 10 * WAVE_GAP_MS),
        is_repost=st.booleans(),
        is_known_author=st.booleans(),
    ),
    max_size=20,
)


@given(copies, st.randoms())
def test_the_order_makes_no_difference_and_there_are_never_more_voices_than_posts(some, random):
    voices = independent(some)
    assert 1 <= voices <= max(1, len(some))
    random.shuffle(some)
    assert independent(some) == voices


def test_a_match_is_counted_over_what_was_found_and_what_the_index_knows():
    first = replace(found("first", "Bridge closed", sort_ms=9 * MINUTE_MS), account="ana")
    near = replace(found("near", "The bridge is closed", sort_ms=10 * MINUTE_MS), account="ben")
    match = counted(
        Said(first, (near,)),
        {
            "first": [copy("old", "cem", 1, known=True), copy("first", "ana", 9, known=True)],
            "near": [copy("near", "ben", 10, known=True), copy("r", "dia", 11, repost=True)],
        },
    )
    assert (match.post_id, match.repeats, match.independent, match.first_ms) == ("first", 4, 3, MINUTE_MS)
    assert match.why["authors"] == 3.0


def test_the_first_to_say_it_has_no_earlier_time():
    first = found("first", "Bridge closed", sort_ms=5)
    assert counted(Said(first), {}).first_ms is None
    assert counted(Said(first), {"first": [copy("later", "x", 1)]}).first_ms is None


def test_a_retweet_by_hand_is_no_voice():
    said = Said(found("a", "Bridge closed"), (found("b", "RT @ana: Bridge closed"),))
    assert counted(said, {"b": [copy("b", "ben", 0, known=True)]}).independent == 1


@pytest.mark.parametrize("count", [1, 3, 30])
def test_a_few_wordings_are_looked_up_the_one_that_is_shown_first(count):
    members = [replace(found(str(i), f"text {i}"), saying=f"s{i % 10}") for i in range(count)]
    wordings = sayings_of(Said(members[0], tuple(members[1:])))
    assert wordings[0].post_id == "0"
    assert len(wordings) == len({match.saying for match in wordings}) == min(count, WORDINGS)
