"""A question -> the best matches of the embedded index, from one tier or from both. Blocking, changes nothing."""

from typing import Any

import qdrant_edge as edge

from ingest.index import Query
from ingest.index_bm25 import Question, question_terms, search_vector
from ingest.index_candidates import CANDIDATES, FIELDS, Candidate, matched, ranked
from ingest.index_edge_changes import entries
from ingest.index_edge_filter import among, where
from ingest.index_points import BM25, DENSE, conditions
from ingest.index_tier import Tier, payload_in
from ingest.post import Match


def search(hot: Tier, warm: Tier | None, query: Query) -> list[Match]:
    """Best first. `warm` None: only hot is searched."""
    question = question_terms(query.text)
    found = _candidates(hot, query, question)
    tier_of = dict.fromkeys((candidate.point_id for candidate in found), hot)
    if warm is not None:
        also = _candidates(warm, query, question)
        hot_posts = entries(hot, {candidate.post_id for candidate in also})
        also = [candidate for candidate in also if candidate.post_id not in hot_posts]  # hot is right
        tier_of |= dict.fromkeys((candidate.point_id for candidate in also), warm)
        found += also
    best = ranked(found, query)
    records: dict[str, edge.Record] = {}
    for tier in (hot, warm):
        ids = [one.candidate.point_id for one in best if tier_of[one.candidate.point_id] is tier]
        if tier is not None and ids:
            records |= tier.retrieve(ids, with_vectors=True)
    matches = []
    for one in best:
        record = records[one.candidate.point_id]
        vectors: Any = record.vector
        matches.append(matched(one, question, payload_in(record), vectors))
    return matches


def _candidates(tier: Tier, query: Query, question: Question) -> list[Candidate]:
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
            candidate = Candidate.of(str(point.id), payload_in(point))
            found.setdefault(candidate.point_id, candidate).scores[way] = point.score
    for way, nearest in ways.items():
        missing = [i for i, candidate in found.items() if way not in candidate.scores]
        if missing:
            for point in tier.nearest(nearest, among(missing), len(missing), ()):
                found[str(point.id)].scores[way] = point.score
    return list(found.values())
