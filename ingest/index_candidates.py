"""What a search knows of a piece before it fetches it, and what becomes of the best, whatever the vector store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ingest.index import Query
from ingest.index_bm25 import Question
from ingest.index_points import BM25, DENSE, Payload, match_of
from ingest.post import Match
from ingest.rank import best_first, score

CANDIDATES = 100  # by words, and as many by meaning
FIELDS = ("post_id", "sort_ms", "clock")  # of the payload


@dataclass(slots=True)
class Candidate:
    """`scores`: by BM25 and by DENSE, as the store gave them; one that is missing counts as 0."""

    point_id: str
    post_id: str
    sort_ms: int
    is_believed: bool
    scores: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, point_id: str, payload: Payload) -> "Candidate":
        return cls(point_id, payload["post_id"], payload["sort_ms"], not payload.get("clock"))


@dataclass(frozen=True, slots=True)
class Ranked:
    """`why`: bm25 and cosine as they are, relevance (fused), recency (a factor)."""

    candidate: Candidate
    score: float
    why: dict[str, float]


def ranked(found: Sequence[Candidate], query: Query) -> list[Ranked]:
    """Best first, as many as the query wants."""
    bm25, cosine = (np.array([candidate.scores.get(way, 0.0) for candidate in found]) for way in (BM25, DENSE))
    sort_ms = np.array([candidate.sort_ms for candidate in found], dtype=np.int64)
    scores = score(
        bm25,
        cosine,
        sort_ms,
        np.array([candidate.is_believed for candidate in found], dtype=bool),
        bm25_share=query.bm25_share,
        half_life_ms=query.half_life_ms,
        now_ms=query.now_ms,
    )
    parts = {"bm25": bm25, "cosine": cosine, "relevance": scores.relevance, "recency": scores.recency}
    best = best_first(scores.total, sort_ms, [candidate.post_id for candidate in found])[: query.limit]
    return [
        Ranked(found[i], float(scores.total[i]), {name: float(part[i]) for name, part in parts.items()}) for i in best
    ]


def matched(one: Ranked, question: Question, payload: Payload, vectors: Mapping[str, Any]) -> Match:
    """Adds `words` to why: the share of the question's words that the match holds; 0.0 for a question without any."""
    terms = vectors.get(BM25)
    words = question.share_in(frozenset(terms.indices if terms else ()))
    return match_of(payload, one.score, {**one.why, "words": words}, tuple(vectors[DENSE]))
