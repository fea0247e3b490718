"""Scores -> an order. Pure arithmetic over candidates; knows no index and no text.

Chosen on TREC Microblog 2011 and 2012 (bench/retrieval.py; the figures are in docs/retrieval.md).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ingest.post import Match

BM25_SHARE = 0.5  # of BM25 divided by the best candidate's; the rest is cosine
RECENCY_BOOST = 0.3  # a post of this moment counts 1.3 times as much as an old one
RECENCY_HALF_LIFE_MS = 24 * 3600 * 1000
MAX_PER_AUTHOR = 2
DIVERSITY = 0.15  # nDCG@10 of 2011 and 2012 as without (.609, .418 and .608, .417); at 0.3 .602, .407

# The floor, chosen on all 171,124 TREC posts, 9,000 CrisisLex posts and the sample feed: of the questions that these
# answer .994, 1.0 and .98 pass; of 39 that no feed answers ("What is the capital of France?") .39, .0 and .05 pass, to
# posts that do chat of the same thing. Rarity of the words as a weight of the share was tried: no better.
FLOOR = 0.7  # of cosine + WORDS_WEIGHT * the share of the question's words that the post holds
FLOOR_UNSPACED = 0.65  # of a script without spaces, whose words are smaller and more
WORDS_WEIGHT = 0.3
MIN_WORDS = 0.34  # of the share: where the model knows no language, any two texts are near
CLEAR = 0.8  # with any of the words, enough by itself: "What caused the Driftbox outage?" - "Driftbox is down"


@dataclass(frozen=True, slots=True)
class Scores:
    """[n] float64 each, of the same candidates: `total` = `relevance` * `recency`."""

    relevance: np.ndarray
    recency: np.ndarray

    @property
    def total(self) -> np.ndarray:
        total: np.ndarray = self.relevance * self.recency
        return total


def score(
    bm25: np.ndarray,
    cosine: np.ndarray,
    sort_ms: np.ndarray,
    is_believed: np.ndarray,
    *,
    bm25_share: float,
    half_life_ms: int,
    now_ms: int | None,
) -> Scores:
    """[n] each, of ALL the candidates of a question, as BM25 counts relative to the best of them.

    `is_believed`: whether the post's clock can be (`Post.clock` is ""). `now_ms` None: without recency.
    """
    fresh = np.ones(len(bm25)) if now_ms is None else recency(sort_ms, is_believed, now_ms, half_life_ms)
    return Scores(relevance(bm25, cosine, bm25_share), fresh)


def best_first(total: np.ndarray, sort_ms: np.ndarray, post_ids: Sequence[str]) -> list[int]:
    """Positions of the candidates, best first; of equals the newer, then the smaller id, so that every index and every
    try gives the same order."""
    return sorted(range(len(post_ids)), key=lambda i: (-total[i], -sort_ms[i], post_ids[i]))


def rescore(
    matches: Iterable[Match], *, limit: int, bm25_share: float, half_life_ms: int, now_ms: int | None
) -> list[Match]:
    """What several indexes found for one question -> one order, scored together by why["bm25"] and why["cosine"]."""
    found = list(matches)
    bm25, cosine = (np.array([match.why[part] for match in found]) for part in ("bm25", "cosine"))
    sort_ms = np.array([match.sort_ms for match in found], dtype=np.int64)
    is_believed = np.array([not match.clock for match in found], dtype=bool)
    scores = score(bm25, cosine, sort_ms, is_believed, bm25_share=bm25_share, half_life_ms=half_life_ms, now_ms=now_ms)
    total = scores.total
    return [
        replace(
            found[i],
            score=float(total[i]),
            why={**found[i].why, "relevance": float(scores.relevance[i]), "recency": float(scores.recency[i])},
        )
        for i in best_first(total, sort_ms, [match.post_id for match in found])[:limit]
    ]


def relevance(bm25: np.ndarray, cosine: np.ndarray, bm25_share: float = BM25_SHARE) -> np.ndarray:
    """[n] and [n] of the same candidates -> [n], about 0 to 1. A question without words, or without a vector, has only
    the other part: its scores are all 0."""
    best = bm25.max(initial=0.0)
    words = bm25 / best if best > 0 else bm25
    fused: np.ndarray = bm25_share * words + (1 - bm25_share) * np.maximum(cosine, 0.0)
    return fused


def recency(
    sort_ms: np.ndarray, is_believed: np.ndarray, now_ms: int, half_life_ms: int = RECENCY_HALF_LIFE_MS
) -> np.ndarray:
    """[n] factors from 1 (old, or of a clock that is not believed) to 1 + RECENCY_BOOST (now, or later)."""
    age_ms = np.maximum(now_ms - sort_ms, 0).astype(np.float64)
    factors: np.ndarray = np.where(is_believed, 1 + RECENCY_BOOST * np.exp2(-age_ms / half_life_ms), 1.0)
    return factors


def above_floor(match: Match, floor: float = FLOOR) -> bool:
    """Whether the match bears on the question at all. A question without a word of its own ("hello") has none."""
    words = match.why["words"]
    nearness = match.why["cosine"] + WORDS_WEIGHT * words
    return nearness >= (floor if words >= MIN_WORDS else CLEAR) and words > 0


def cap_authors(matches: Sequence[Match]) -> list[int]:
    """Positions that are left when each author has their best MAX_PER_AUTHOR. Posts without an author are each their
    own; an account that is not shown is told apart by `Match.account`."""
    taken: Counter[str] = Counter()
    kept: list[int] = []
    for position, match in enumerate(matches):
        author = match.account or (f"{match.source} {match.author_id}" if match.author_id else "")
        if not author or taken[author] < MAX_PER_AUTHOR:
            kept.append(position)
        taken[author] += 1
    return kept


def diversify(scores: Sequence[float], vectors: np.ndarray, limit: int) -> list[tuple[int, float]]:
    """Maximal marginal relevance: (position, factor) of the `limit` to show, in their order.

    `vectors`: [n, dim] unit rows. Each time the best is taken by score times a factor, from 1 (like nothing that is
    taken already) to 1 - DIVERSITY (the same), so that score times factor never rises from one to the next.
    """
    left = np.array(scores, dtype=np.float64)
    likeness = np.zeros(len(left))
    taken: list[tuple[int, float]] = []
    while len(taken) < min(limit, len(scores)):
        factors = 1 - DIVERSITY * likeness
        best = int(np.argmax(np.where(np.isnan(left), -np.inf, left * factors)))
        taken.append((best, float(factors[best])))
        left[best] = np.nan
        likeness = np.maximum(likeness, vectors @ vectors[best])
    return taken
