"""Guesses come from what was there before, and cost nothing where nothing repeats."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_runtime.draft import PromptLookup


def test_what_followed_the_same_tokens_is_proposed():
    ids = [1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 21, 2, 3, 4]
    assert PromptLookup(ids).propose(9) == (5, 6, 7)
    assert PromptLookup(ids).propose(2) == (5, 6)
    assert PromptLookup(ids).propose(0) == ()


def test_three_tokens_that_match_are_enough_and_four_are_preferred():
    assert PromptLookup([1, 2, 3, 4, 5, 6, 9, 2, 3]).propose(8) == ()
    assert PromptLookup([1, 2, 3, 4, 5, 6, 9, 1, 2, 3]).propose(8) == (4, 5, 6)
    assert PromptLookup([0, 1, 2, 3, 50, 51, 52, 7, 1, 2, 3, 60, 61, 62, 0, 1, 2, 3]).propose(2) == (50, 51)


def test_the_latest_of_several_places_counts():
    assert PromptLookup([1, 2, 3, 4, 9, 1, 2, 3, 5, 8, 1, 2, 3]).propose(1) == (5,)


def test_a_text_that_repeats_itself_goes_on_beyond_its_end():
    assert PromptLookup([7, 8, 7, 8, 7, 8]).propose(5) == (7, 8, 7)
    lookup = PromptLookup([6, 7, 7, 7, 7, 7])
    lookup.learn(3, 3)
    assert lookup.propose(9) == (7,) * 9


@pytest.mark.parametrize("ids", [[], [1], [1, 1], [1, 1, 1], [1, 2, 3, 4, 5, 6], [1, 2, 9, 1, 2]])
def test_nothing_is_proposed_where_nothing_matches(ids):
    assert PromptLookup(ids).propose(8) == ()


def test_tokens_that_come_later_are_found_too():
    ids = [1, 2, 3, 4]
    lookup = PromptLookup(ids)
    assert lookup.propose(8) == ()
    ids += [5, 6, 7, 8, 1, 2, 3]
    assert lookup.propose(8) == (4, 5, 6)
    ids += [4]
    assert lookup.propose(2) == (5, 6)


def test_a_guess_that_came_true_as_a_whole_is_followed_by_a_long_one_where_four_tokens_match():
    ids = [*range(20), 99, 0, 1, 2, 3]
    lookup = PromptLookup(ids)
    assert lookup.propose(20) == (4, 5, 6)
    for accepted, wanted in ((3, 15), (14, 3), (0, 0)):
        lookup.learn(3 if accepted == 3 else 15, accepted)
        assert len(lookup.propose(20)) == wanted
    lookup = PromptLookup([*range(20), 99, 1, 2, 3])
    lookup.learn(3, 3)
    assert lookup.propose(20) == (4, 5, 6), "only three match"


def test_after_failures_it_waits_longer_and_longer_and_a_success_ends_that():
    ids = [1, 2, 3] * 5
    lookup = PromptLookup(ids)
    pauses = []
    for _ in range(7):
        lookup.learn(3, 0)
        pauses.append(0)
        while not lookup.propose(8):
            ids.append(ids[-3])
            pauses[-1] += 1
    assert pauses == [1, 3, 7, 15, 16, 16, 16]
    lookup.learn(3, 3)
    assert lookup.propose(8)


def test_a_text_that_repeats_nothing_is_left_alone_after_a_few_tries():
    """Two letters: every triple was there before, and what followed says nothing."""
    chance, ids = random.Random(1), [0, 0, 0, 1, 0, 1, 1, 1, 0, 0]
    lookup, guessed = PromptLookup(ids), 0
    for _ in range(1000):
        if guess := lookup.propose(8):
            guessed += len(guess)
            lookup.learn(len(guess), 0)
        ids.append(chance.randrange(2))
    assert 0 < guessed < 70 * 3


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(0, 12))
def test_a_guess_is_a_continuation_of_the_last_tokens_somewhere_in_the_text(ids, most):
    """By the plain scan that the index replaces."""
    guess = PromptLookup(ids).propose(most)
    ends = [place for place in range(3, len(ids)) if ids[place - 3 : place] == ids[-3:]]
    if not ends or most == 0:
        assert guess == ()
        return
    long = [place for place in ends if place >= 4 and ids[place - 4 : place] == ids[-4:]]
    place, text = (long or ends)[-1], list(ids)
    for offset in range(min(most, 3)):
        text.append(text[place + offset])
    assert guess == tuple(text[len(ids) :])
