"""Pseudo-relevance feedback: what the best posts say besides the question's words is searched for as well.

Chosen on TREC Microblog 2011 and 2012 (bench/retrieval.py): there it adds .05 and .03 to the nDCG@10 of the hybrid.
What was tried and left out is in docs/retrieval.md.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from math import log1p

import numpy as np

from ingest.duplicates import saying
from ingest.index_bm25 import Question, post_terms
from ingest.post import Match
from ingest.rank import BM25_SHARE, RECENCY_HALF_LIFE_MS, rescore

Terms = tuple[tuple[int, float], ...]

SEARCHED = 50  # posts found by words, of which the best tell what else to look for
POSTS, TERMS = 20, 10
MOST_WORDS = 8  # of a question; a longer one says enough, and new words lead away from it (CheckThat: .950 -> .911)
SHARE = 0.5  # of the weight, for the new terms; the rest is the question's


def is_short(question: Question) -> bool:
    """Whether there is something to gain."""
    return 0 < len(question.words) <= MOST_WORDS


def expanded_terms(question: Question, found: Sequence[Match], vector: np.ndarray) -> Terms:
    """`found`: what the question's words alone found; `vector`: [dim] of the question. () when that is too little to
    learn from: few different posts, or no words. A text counts once, however often it was posted."""
    asked = dict(zip(question.vector.indices, question.vector.values, strict=True))
    posts = _distinct(_by_relevance(found, vector))
    if len(posts) <= POSTS or not asked:
        return ()
    new = _telling([_terms(match) for match in posts], [match.score for match in posts[:POSTS]])
    scale, new_scale = (1 - SHARE) / sum(asked.values()), SHARE / sum(new.values())
    return tuple(
        (term, asked.get(term, 0.0) * scale + new.get(term, 0.0) * new_scale) for term in dict.fromkeys([*asked, *new])
    )


def _by_relevance(found: Sequence[Match], vector: np.ndarray) -> list[Match]:
    """By words and meaning; not by time, since what an older post says tells as much."""
    cosines = (float(np.dot(match.vector, vector)) for match in found)
    both = [replace(match, why={**match.why, "cosine": cosine}) for match, cosine in zip(found, cosines, strict=True)]
    return rescore(both, limit=len(both), bm25_share=BM25_SHARE, half_life_ms=RECENCY_HALF_LIFE_MS, now_ms=None)


def _distinct(matches: Sequence[Match]) -> list[Match]:
    return list({match.saying or saying(match.text): match for match in reversed(matches)}.values())[::-1]


def _terms(match: Match) -> dict[int, float]:
    terms = post_terms(match.text, match.lang)
    return dict(zip(terms.indices, terms.values, strict=True))


def _telling(terms: Sequence[dict[int, float]], scores: Sequence[float]) -> dict[int, float]:
    """The terms that are frequent in the first posts, weighted by their scores, and rare in all that were found."""
    posts_with = Counter(term for post in terms for term in post)
    weights: dict[int, float] = defaultdict(float)
    for post, score in zip(terms, scores, strict=False):
        for term, weight in post.items():
            weights[term] += weight * score
    for term in weights:
        weights[term] *= log1p((len(terms) - posts_with[term] + 0.5) / (posts_with[term] + 0.5))
    return dict(sorted(weights.items(), key=lambda item: (-item[1], item[0]))[:TERMS])
