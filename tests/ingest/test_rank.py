from dataclasses import replace

import numpy as np

from ingest.rank import MAX_PER_AUTHOR, RECENCY_BOOST, RECENCY_HALF_LIFE_MS, above_floor, cap_authors, fuse, recency
from tests.ingest.made import found

NOW_MS = 1_900_000_000_000


def test_fusion_takes_words_relative_to_the_best_and_meaning_as_it_is():
    scores = fuse(np.array([8.0, 4.0, 0.0]), np.array([0.0, 0.5, 0.9]))
    assert np.allclose(scores, [0.5, 0.5, 0.45])


def test_without_words_the_meaning_decides_and_opposite_meaning_counts_nothing():
    assert np.allclose(fuse(np.zeros(2), np.array([0.8, -0.4])), [0.4, 0])
    assert fuse(np.zeros(0), np.zeros(0)).shape == (0,)


def test_recency_halves_with_each_half_life_and_never_punishes():
    ages = np.array([0, 1, 2, 10_000]) * RECENCY_HALF_LIFE_MS
    factors = recency(NOW_MS - ages, NOW_MS)
    assert np.allclose(factors, [1 + RECENCY_BOOST, 1 + RECENCY_BOOST / 2, 1 + RECENCY_BOOST / 4, 1])


def test_a_clock_that_is_ahead_gains_nothing():
    assert recency(np.array([NOW_MS + 10**9]), NOW_MS)[0] == recency(np.array([NOW_MS]), NOW_MS)[0]


def test_at_most_two_of_one_author_and_the_rest_move_up():
    matches = [found(str(i), str(i), author="busy") for i in range(5)] + [found("z", "z", author="other")]
    assert [match.post_id for match in cap_authors(matches, 4)] == ["0", "1", "z"]
    assert MAX_PER_AUTHOR == 2
    assert cap_authors(matches, 1) == matches[:1]
    assert cap_authors(matches, 0) == []


def test_the_same_author_id_in_two_networks_is_two_authors():
    matches = [replace(found(str(i), str(i), author="7"), source="ab"[i % 2]) for i in range(4)]
    assert len(cap_authors(matches, 10)) == 4


def test_posts_without_an_author_are_each_their_own():
    assert len(cap_authors([replace(found(str(i), str(i)), author_id="") for i in range(5)], 10)) == 5


def test_the_floor_asks_for_a_word_and_for_meaning():
    def is_above(cosine, words):
        return above_floor(replace(found("a", "a"), why={"cosine": cosine, "words": words}))

    assert is_above(0.6, 0.5)
    assert is_above(0.4, 1.0)
    assert not is_above(0.3, 1.0)
    assert not is_above(0.45, 0.5)
    assert is_above(0.75, 0.33)
    assert not is_above(0.65, 0.33)
    assert not is_above(0.95, 0.0)
