from dataclasses import replace

from ingest.explain import explain
from tests.ingest.made import found

WHY = {
    "bm25": 5.21,
    "cosine": 0.714,
    "words": 0.75,
    "relevance": 0.62,
    "recency": 1.29,
    "diversity": 0.95,
    "authors": 3.0,
}


def match(**changes):
    return replace(found("a", "text", score=0.76, sort_ms=1_900_000_000_000), **({"why": WHY} | changes))


def test_every_part_of_a_score_is_a_sentence():
    assert explain(match(repeats=12, independent=3, first_ms=1_799_999_940_000)) == [
        "It holds 75% of the words asked for (BM25 5.2).",
        "Its meaning is close to the question's (cosine 0.71).",
        "Words and meaning together make its relevance 0.62.",
        "Being new, it counts 1.29 times.",
        "Being like a match above it, it counts 0.95 times.",
        "Its score is 0.76.",
        "It stands for 12 posts that say the same, 3 authors by themselves.",
        "It was first said at 2027-01-15 07:59 UTC.",
    ]


def test_what_changed_nothing_is_not_said():
    plain = match(why=WHY | {"recency": 1.0, "diversity": 1.0})
    assert len(explain(plain)) == 4


def test_a_reranked_match_says_what_took_the_place_of_relevance():
    sentences = explain(match(why=WHY | {"rerank": 0.5}))
    assert "The cross-encoder, which read both together, gave it 0.50." in sentences
    assert not any("relevance" in sentence for sentence in sentences)


def test_t21_a_clock_that_is_not_believed_is_said():
    assert "It is dated ahead of its arrival, so it does not count as new." in explain(match(clock="future"))
    assert "It is dated long before its arrival, so it does not count as new." in explain(match(clock="backdated"))
