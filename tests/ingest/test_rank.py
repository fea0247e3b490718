from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.rank import (
    BM25_SHARE,
    DIVERSITY,
    FLOOR_UNSPACED,
    MAX_PER_AUTHOR,
    RECENCY_BOOST,
    RECENCY_HALF_LIFE_MS,
    above_floor,
    best_first,
    cap_authors,
    diversify,
    recency,
    relevance,
    rescore,
    score,
)
from tests.ingest.made import found, vector

NOW_MS = 1_900_000_000_000
HOUR_MS = 3_600_000


def test_words_count_relative_to_the_best_and_meaning_as_it_is():
    scores = relevance(np.array([8.0, 4.0, 0.0]), np.array([0.0, 0.5, 0.9]))
    assert np.allclose(scores, [0.5, 0.5, 0.45])


@pytest.mark.parametrize(("share", "expected"), [(1.0, [1.0, 0.5]), (0.0, [0.2, 0.8]), (0.25, [0.4, 0.725])])
def test_the_share_of_the_words_is_the_callers(share, expected):
    assert np.allclose(relevance(np.array([8.0, 4.0]), np.array([0.2, 0.8]), share), expected)


def test_without_words_the_meaning_decides_and_opposite_meaning_counts_nothing():
    assert np.allclose(relevance(np.zeros(2), np.array([0.8, -0.4])), [0.4, 0])
    assert relevance(np.zeros(0), np.zeros(0)).shape == (0,)


def test_recency_halves_with_each_half_life_and_never_punishes():
    ages = np.array([0, 1, 2, 10_000]) * RECENCY_HALF_LIFE_MS
    factors = recency(NOW_MS - ages, np.ones(4, bool), NOW_MS)
    assert np.allclose(factors, [1 + RECENCY_BOOST, 1 + RECENCY_BOOST / 2, 1 + RECENCY_BOOST / 4, 1])


def test_the_half_life_is_the_callers_from_minutes_to_days():
    ages = np.array([5 * 60_000, HOUR_MS])
    factors = recency(NOW_MS - ages, np.ones(2, bool), NOW_MS, 5 * 60_000)
    assert factors[0] == pytest.approx(1 + RECENCY_BOOST / 2)
    assert factors[1] == pytest.approx(1 + RECENCY_BOOST / 2**12)


def test_a_clock_that_is_ahead_gains_nothing_and_one_that_is_not_believed_nothing_at_all():
    assert recency(np.array([NOW_MS + 10**9]), np.array([True]), NOW_MS) == recency(
        np.array([NOW_MS]), np.array([True]), NOW_MS
    )
    assert recency(np.array([NOW_MS]), np.array([False]), NOW_MS) == [1.0]


def test_the_total_is_relevance_times_recency_and_without_a_now_it_is_relevance():
    arrays = (np.array([8.0, 4.0]), np.array([0.3, 0.4]), np.array([NOW_MS, NOW_MS - HOUR_MS]), np.array([True, False]))
    weights = {"bm25_share": BM25_SHARE, "half_life_ms": RECENCY_HALF_LIFE_MS}
    scores = score(*arrays, **weights, now_ms=NOW_MS)
    assert np.allclose(scores.total, scores.relevance * scores.recency)
    assert scores.recency.tolist() == [1 + RECENCY_BOOST, 1.0]
    assert np.allclose(score(*arrays, **weights, now_ms=None).total, scores.relevance)


def test_t21_of_equal_scores_the_newer_is_first_then_the_smaller_id():
    """T21: equal times are ordered by id, the same on every index."""
    order = best_first(np.array([0.5, 0.5, 0.5, 0.9]), np.array([1, 2, 1, 0]), ["b", "c", "a", "z"])
    assert order == [3, 1, 2, 0]


candidate = st.tuples(
    st.floats(0, 30), st.floats(-1, 1), st.integers(NOW_MS - 100 * HOUR_MS, NOW_MS + HOUR_MS), st.booleans()
)


@given(st.lists(candidate, min_size=1, max_size=20), st.integers(1, 5), st.integers(1, 25))
def test_what_several_shards_found_is_ordered_as_one_index_orders_it(candidates, shards, limit):
    matches = [
        replace(
            found(f"p{i:02}", "x", sort_ms=sort_ms),
            why={"bm25": bm25, "cosine": cosine},
            clock="" if believed else "future",
        )
        for i, (bm25, cosine, sort_ms, believed) in enumerate(candidates)
    ]
    weights = {"bm25_share": 0.5, "half_life_ms": HOUR_MS, "now_ms": NOW_MS}
    whole = rescore(matches, limit=limit, **weights)
    of_shards = [match for shard in range(shards) for match in matches[shard::shards]]
    assert rescore(of_shards, limit=limit, **weights) == whole
    assert len(whole) == min(limit, len(matches))
    assert [match.score for match in whole] == sorted((match.score for match in whole), reverse=True)
    for match in whole:
        assert match.score == pytest.approx(match.why["relevance"] * match.why["recency"])


def test_each_author_has_their_best_two():
    matches = [found(str(i), str(i), author="busy") for i in range(5)] + [found("z", "z", author="other")]
    assert cap_authors(matches) == [0, 1, 5]
    assert MAX_PER_AUTHOR == 2
    assert cap_authors([]) == []


def test_the_same_author_id_in_two_networks_is_two_authors():
    matches = [replace(found(str(i), str(i), author="7"), source="ab"[i % 2]) for i in range(4)]
    assert len(cap_authors(matches)) == 4


def test_an_author_whose_id_is_not_shown_is_known_by_the_account():
    matches = [replace(found(str(i), str(i)), author_id="", account="abc") for i in range(4)]
    assert cap_authors(matches) == [0, 1]


def test_posts_without_an_author_are_each_their_own():
    assert len(cap_authors([replace(found(str(i), str(i)), author_id="") for i in range(5)])) == 5


def test_the_floor_asks_for_a_word_and_for_meaning():
    def is_above(cosine, words, **floor):
        return above_floor(replace(found("a", "a"), why={"cosine": cosine, "words": words}), **floor)

    assert is_above(0.6, 0.5)
    assert is_above(0.42, 1.0)
    assert not is_above(0.3, 1.0)
    assert not is_above(0.45, 0.5)
    assert is_above(0.75, 0.33)
    assert not is_above(0.65, 0.33)
    assert not is_above(0.95, 0.0)
    assert is_above(0.51, 0.5, floor=FLOOR_UNSPACED)
    assert not is_above(0.49, 0.5, floor=FLOOR_UNSPACED)


def test_the_second_of_two_alike_gives_way_to_one_that_says_something_else():
    same, other = vector("a"), vector("b")
    vectors = np.array([same, same, other])
    (first, one), (second, two), (third, damped) = diversify([1.0, 0.95, 0.94], vectors, 3)
    assert (first, second, third) == (0, 2, 1)
    assert (one, damped) == (1.0, pytest.approx(1 - DIVERSITY))
    assert two > 0.95


def test_diversity_never_puts_a_poor_match_before_a_good_one():
    vectors = np.array([vector("a"), vector("a"), vector("b")])
    assert [i for i, _ in diversify([1.0, 0.9, 0.5], vectors, 3)] == [0, 1, 2]
    assert [i for i, _ in diversify([1.0, 0.9, 0.5], vectors, 1)] == [0]


@given(st.lists(st.tuples(st.floats(0.01, 2), st.integers(0, 4)), min_size=1, max_size=12), st.integers(1, 12))
def test_scores_after_diversity_never_rise(items, limit):
    scores, vectors = [score for score, _ in items], np.array([vector(seed) for _, seed in items])
    taken = diversify(scores, vectors, limit)
    assert len({i for i, _ in taken}) == len(taken) == min(limit, len(items))
    totals = [scores[i] * factor for i, factor in taken]
    assert all(later <= earlier + 1e-9 for earlier, later in zip(totals, totals[1:], strict=False))
