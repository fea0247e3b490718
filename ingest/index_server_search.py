"""A question -> the best matches of the index on a Qdrant server, in three round trips. Changes nothing."""

from collections.abc import Iterable, Sequence
from typing import Any

from qdrant_client import models

from ingest.index import Query
from ingest.index_bm25 import Question, question_terms, search_vector
from ingest.index_candidates import CANDIDATES, FIELDS, Candidate, matched, ranked
from ingest.index_points import BM25, DENSE, Condition, conditions
from ingest.index_server_calls import Calls, payload_in
from ingest.index_server_filter import among, where
from ingest.post import Match

# Never `indexed_only`: what has just been written is not in the graph yet. The int8 copies choose, the vectors decide.
PARAMS = models.SearchParams(
    hnsw_ef=128,
    indexed_only=False,
    quantization=models.QuantizationSearchParams(rescore=True, oversampling=2.0),
)


async def search(calls: Calls, query: Query, also: Iterable[Condition] = ()) -> list[Match]:
    """Best first. `also` has to hold of each."""
    question = question_terms(query.text)
    found = await _candidates(calls, query, question, where([*conditions(query), *also]))
    best = ranked(found, query)
    records = await calls.retrieve([one.candidate.point_id for one in best], with_vectors=True)
    matches = []
    for one in best:
        record = records.get(one.candidate.point_id)
        if record is None or not payload_in(record)["pieces"]:
            continue  # removed since
        vectors: Any = record.vector
        matches.append(matched(one, question, payload_in(record), vectors))
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
            candidate = Candidate.of(str(point.id), payload_in(point))
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
