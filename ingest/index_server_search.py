"""A question -> the best matches of the index on a Qdrant server, in three round trips. Changes nothing."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from qdrant_client import models

from ingest.index import Query
from ingest.index_bm25 import Question, question_terms, search_vector
from ingest.index_points import Condition, conditions, match_of
from ingest.index_server_calls import Calls, payload_in
from ingest.index_server_collection import BM25, DENSE
from ingest.index_server_filter import among, where
from ingest.post import Match
from ingest.rank import best_first, score

CANDIDATES = 100  # by words, and as many by meaning
FIELDS = ["post_id", "sort_ms", "clock"]
# Never `indexed_only`: what has just been written is not in the graph yet. The int8 copies choose, the vectors decide.
PARAMS = models.SearchParams(
    hnsw_ef=128,
    indexed_only=False,
    quantization=models.QuantizationSearchParams(rescore=True, oversampling=2.0),
)


@dataclass(slots=True)
class Candidate:
    """What a search knows of a piece before it fetches it."""

    point_id: str
    post_id: str
    sort_ms: int
    is_believed: bool
    scores: dict[str, float] = field(default_factory=dict)


async def search(calls: Calls, query: Query, also: Iterable[Condition] = ()) -> list[Match]:
    """Best first. `why`: bm25 and cosine as they are, relevance (fused), recency (a factor), and `words`, the share of
    the question's words that the match holds; 0.0 for a question without any. `also` has to hold of each."""
    question = question_terms(query.text)
    found = await _candidates(calls, query, question, where([*conditions(query), *also]))
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
    records = await calls.retrieve([found[i].point_id for i in best], with_vectors=True)
    matches = []
    for i in best:
        record = records.get(found[i].point_id)
        if record is None or not payload_in(record)["pieces"]:
            continue  # removed since
        why = {"bm25": bm25[i], "cosine": cosine[i], "relevance": scores.relevance[i], "recency": scores.recency[i]}
        vector, terms = _vectors(record)
        why["words"] = question.share_in(terms)
        whys = {name: float(part) for name, part in why.items()}
        matches.append(match_of(payload_in(record), float(total[i]), whys, vector))
    return matches


async def _candidates(calls: Calls, query: Query, question: Question, limits: models.Filter) -> list[Candidate]:
    """The best by words and the best by meaning, each with both scores."""
    ways: dict[str, Any] = {}
    terms = search_vector(question, query.terms)
    if terms.indices:
        ways[BM25] = models.SparseVector(indices=list(terms.indices), values=list(terms.values))
    if query.vector:
        ways[DENSE] = list(query.vector)
    top = max(CANDIDATES, query.limit)
    answers = await calls.query([_nearest(way, vector, limits, top, FIELDS) for way, vector in ways.items()])
    found: dict[str, Candidate] = {}
    for way, points in zip(ways, answers, strict=True):
        for point in points:
            payload = payload_in(point)
            candidate = Candidate(str(point.id), payload["post_id"], payload["sort_ms"], not payload.get("clock"))
            found.setdefault(candidate.point_id, candidate).scores[way] = point.score
    missing = {way: [i for i, candidate in found.items() if way not in candidate.scores] for way in ways}
    missing = {way: ids for way, ids in missing.items() if ids}
    answers = await calls.query(
        [_nearest(way, ways[way], among(ids), len(ids), []) for way, ids in missing.items()]
    )  # fmt: skip
    for way, points in zip(missing, answers, strict=True):
        for point in points:
            found[str(point.id)].scores[way] = point.score
    return list(found.values())


def _nearest(way: str, vector: Any, limits: models.Filter, limit: int, fields: Sequence[str]) -> models.QueryRequest:
    return models.QueryRequest(
        query=models.NearestQuery(nearest=vector),
        using=way,
        filter=limits,
        limit=limit,
        params=PARAMS if way == DENSE else None,
        with_payload=list(fields) or False,
    )


def _vectors(record: models.Record) -> tuple[tuple[float, ...], frozenset[int]]:
    """A piece's vector and its BM25 terms."""
    vectors: Any = record.vector
    terms = vectors.get(BM25)
    return tuple(vectors[DENSE]), frozenset(terms.indices if terms else ())
