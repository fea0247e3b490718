"""Scores -> an order. Pure arithmetic over candidates; knows no index and no text.

Chosen on TREC Microblog 2011 and 2012 (bench/retrieval.py): nDCG@10 .558 and .369, where our BM25 alone has .502 and
.344 and BM25 as it comes .453 and .303; on 2013, which chose nothing, .552, .527 and .489.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ingest.post import Match

BM25_SHARE = 0.5  # of BM25 divided by the best candidate's; the rest is cosine
RECENCY_BOOST = 0.3  # a post of this moment counts 1.3 times as much as an old one
RECENCY_HALF_LIFE_MS = 24 * 3600 * 1000
MAX_PER_AUTHOR = 2

# The floor, chosen on 40,000 TREC posts, 28,000 CrisisLex posts and the sample feed: of the questions that these answer
# .97, 1.0 and .98 pass; of 51 to 76 that no feed answers ("What is the capital of France?") .18, .06 and .11 pass, most
# of them to posts that do chat of the same thing. The more posts, the more do: among all 171,124 of TREC it is .44.
FLOOR = 0.65  # of cosine + WORDS_WEIGHT * the share of the question's words that the post holds
WORDS_WEIGHT = 0.3
MIN_WORDS = 0.34  # of the share: where the model knows no language, any two texts are near
CLEAR = 0.8  # with any of the words, enough by itself: "What caused the Driftbox outage?" - "Driftbox is down"


def fuse(bm25: np.ndarray, cosine: np.ndarray) -> np.ndarray:
    """[n] and [n] of the same candidates -> [n] relevance, about 0 to 1."""
    best = bm25.max(initial=0.0)
    words = bm25 / best if best > 0 else bm25
    relevance: np.ndarray = BM25_SHARE * words + (1 - BM25_SHARE) * np.maximum(cosine, 0.0)
    return relevance


def recency(sort_ms: np.ndarray, now_ms: int) -> np.ndarray:
    """[n] factors from 1 (old) to 1 + RECENCY_BOOST (now, or later by a wrong clock)."""
    age_ms = np.maximum(now_ms - sort_ms, 0).astype(np.float64)
    factors: np.ndarray = 1 + RECENCY_BOOST * np.exp2(-age_ms / RECENCY_HALF_LIFE_MS)
    return factors


def above_floor(match: Match) -> bool:
    """Whether the match bears on the question at all. A question without a word of its own ("hello") has none."""
    words = match.why["words"]
    nearness = match.why["cosine"] + WORDS_WEIGHT * words
    return nearness >= (FLOOR if words >= MIN_WORDS else CLEAR) and words > 0


def cap_authors(matches: Sequence[Match], limit: int) -> list[Match]:
    """The first `limit`, at most two of one author. Posts without an author are each their own."""
    taken: Counter[tuple[str, str]] = Counter()
    kept: list[Match] = []
    for match in matches:
        author = (match.source, match.author_id)
        if len(kept) == limit:
            break
        if match.author_id and taken[author] == MAX_PER_AUTHOR:
            continue
        taken[author] += 1
        kept.append(match)
    return kept
