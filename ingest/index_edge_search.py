"""A question -> the best matches of the embedded index, from one tier or from both. Blocking, changes nothing."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import qdrant_edge as edge

from ingest.index import Query
from ingest.index_bm25 import Question, question_terms, search_vector
from ingest.index_edge_changes import entries
from ingest.index_edge_filter import among, where
from ingest.index_points import conditions, match_of
from ingest.index_tier import BM25, DENSE, Tier, payload_in
from ingest.post import Match
from ingest.rank import best_first, score

CANDIDATES = 100  # by words, and as many by meaning
FIELDS = ("post_id", "sort_ms", "clock")


@dataclass(slots=True)
class Candidate:
    """What a search knows of a piece before it fetches it."""

    tier: Tier
    point_id: str
    post_id: str
    sort_ms: int
    is_believed: bool
    scores: dict[str, float] = field(default_factory=dict)


def search(hot: Tier, warm: Tier | None, query: Query) -> list[Match]:
    """Best first. `why`: bm25 and cosine as they are, relevance (fused), recency (a factor), and `words`, the share of
    the question's words that the match holds; 0.0 for a question without any. `warm` None: only hot is searched."""
    question = question_terms(query.text)
    found = list(_candidates(hot, query, question))
    if warm is not None:
        also = list(_candidates(warm, query, question))
        hot_posts = entries(hot, {candidate.post_id for candidate in also})
        found += [candidate for candidate in also if candidate.post_id not in hot_posts]  # hot is right
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
    total = scores.total
    best = best_first(total, sort_ms, [candidate.post_id for candidate in found])[: query.limit]
    records = _records([found[i] for i in best])
    matches = []
    for i in best:
        record = records[found[i].point_id]
        why = {"bm25": bm25[i], "cosine": cosine[i], "relevance": scores.relevance[i], "recency": scores.recency[i]}
        vector, terms = _vectors(record)
        why["words"] = question.share_in(terms)
        whys = {name: float(part) for name, part in why.items()}
        matches.append(match_of(payload_in(record), float(total[i]), whys, vector))
    return matches


def _candidates(tier: Tier, query: Query, question: Question) -> Iterator[Candidate]:
    """The best by words and the best by meaning, each with both scores."""
    ways = {}
    terms = search_vector(question, query.terms)
    if terms.indices:
        ways[BM25] = edge.Query.Nearest(terms, using=BM25)
    if query.vector:
        ways[DENSE] = edge.Query.Nearest(list(query.vector), using=DENSE)
    limits, top = where(conditions(query)), max(CANDIDATES, query.limit)
    found: dict[str, Candidate] = {}
    for way, nearest in ways.items():
        for point in tier.nearest(nearest, limits, top, FIELDS):
            i, payload = str(point.id), payload_in(point)
            candidate = Candidate(tier, i, payload["post_id"], payload["sort_ms"], not payload.get("clock"))
            found.setdefault(i, candidate).scores[way] = point.score
    for way, nearest in ways.items():
        missing = [i for i, candidate in found.items() if way not in candidate.scores]
        if missing:
            for point in tier.nearest(nearest, among(missing), len(missing), ()):
                found[str(point.id)].scores[way] = point.score
    return iter(found.values())


def _records(best: Sequence[Candidate]) -> Mapping[str, edge.Record]:
    by_tier: dict[int, tuple[Tier, list[str]]] = {}
    for candidate in best:
        by_tier.setdefault(id(candidate.tier), (candidate.tier, []))[1].append(candidate.point_id)
    records: dict[str, edge.Record] = {}
    for tier, ids in by_tier.values():
        records |= tier.retrieve(ids, with_vectors=True)
    return records


def _vectors(record: edge.Record) -> tuple[tuple[float, ...], frozenset[int]]:
    """A piece's vector and its BM25 terms."""
    vectors: Any = record.vector
    terms = vectors.get(BM25)
    return tuple(vectors[DENSE]), frozenset(terms.indices if terms else ())
