"""The embedded index: one Qdrant Edge shard in a folder. Blocking, and the one owner of its folder.

Edge holds the GIL for the whole of every call, so that one call is kept short (index.slices) and the process that owns
the index does nothing else. A kill loses nothing: Edge logs each operation before it applies it. `optimize` is never
called: it would freeze the process for seconds; a flat index answers 20,000 posts in milliseconds.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import qdrant_edge as edge

from ingest.index import (
    ApplyReport,
    Entry,
    Payload,
    Query,
    check,
    fold,
    match_of,
    payload_of,
    point_id,
    slices,
    storable,
    tombstone,
    without_reposts,
)
from ingest.index_bm25 import Question, post_terms, question_terms
from ingest.post import Match, Passage, Removal
from ingest.rank import fuse, recency

PointId = int | UUID | str  # as Edge's stubs have it; ours are all str
DENSE, BM25 = "dense", "bm25"
# A flush stops searches for about 0.25 s; it bounds the log that is replayed after a kill (1.6 s for 40,000 posts).
FLUSH_S, FLUSH_CHANGES = 60.0, 10_000
CANDIDATES = 100  # by words, and as many by meaning
TOMBSTONES_KEPT_MS = 8 * 24 * 3600 * 1000  # longer than Kafka keeps a topic by default (7 days)
PAYLOAD_INDEXES: dict[str, Any] = {
    "sort_ms": edge.IntegerIndexParams(lookup=False, range=True),
    "number": edge.IntegerIndexParams(lookup=True, range=False),
    "pieces": edge.IntegerIndexParams(lookup=True, range=False),  # 0 of a removed post
    "language": edge.PayloadSchemaType.Keyword,
    "source": edge.PayloadSchemaType.Keyword,
    "author_id": edge.PayloadSchemaType.Keyword,
    "repost_of": edge.PayloadSchemaType.Keyword,
    "removed_ms": edge.IntegerIndexParams(lookup=False, range=True),  # of a removed post
}


class IndexUnusable(RuntimeError):
    """The folder cannot be opened as an index of posts: it is damaged, in use, or of another kind or dimension."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"index {self.path}: {self.reason}"


@dataclass(slots=True)
class Candidates:
    """[n] each; what a search knows of its candidates before it fetches them."""

    ids: list[str]
    bm25: np.ndarray
    cosine: np.ndarray
    sort_ms: np.ndarray


class EdgeIndex:
    """Opens the folder, or makes it; raises IndexUnusable. Calls from several threads take turns.

    `clock` gives epoch milliseconds: from then on a removal is remembered for TOMBSTONES_KEPT_MS and the window.
    """

    def __init__(
        self, path: Path, dim: int = 384, clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    ) -> None:
        self._dim, self._clock = dim, clock
        self._lock = threading.Lock()
        self._shard = _open(path, dim)
        self._unflushed, self._flushed_at = 0, time.monotonic()

    def apply(self, passages: Sequence[Passage], removals: Sequence[Removal]) -> ApplyReport:
        """By the version rule (`index.fold`); found, or gone, for the very next search.

        A removal takes the reposts of the post with it, which hold its text, and admits none until the post is back.
        All pieces of a version come in one call, one after another. Raises BadPassages before anything is applied.
        """
        check(passages, removals, self._dim)
        report = ApplyReport()
        for some_passages, some_removals in slices(passages, removals):
            with self._lock:
                reposted = {p.post.repost_of for p in some_passages if p.post.repost_of is not None}
                changing = {*(p.post.id for p in some_passages), *(r.post_id for r in some_removals)}
                stored = self._entries(changing | reposted)
                changed, outcome = fold(stored, some_passages, some_removals)
                self._write(without_reposts(stored, changed), stored)
                report += outcome
                self._unflushed += len(some_passages) + len(some_removals)
        if self._unflushed >= FLUSH_CHANGES or time.monotonic() - self._flushed_at > FLUSH_S:
            self.flush()
        return report

    def search(self, query: Query) -> list[Match]:
        """Best first. `why`: bm25 and cosine as they are, relevance (fused), recency (a factor), and `words`, the share
        of the question's words that the match holds; 0.0 for a question without any."""
        question = question_terms(query.text)
        with self._lock:
            found = self._candidates(query, question)
            relevance = fuse(found.bm25, found.cosine)
            factor = recency(found.sort_ms, query.now_ms) if query.now_ms is not None else np.ones(len(relevance))
            best = np.lexsort((-found.sort_ms, -relevance * factor))[: query.limit]
            records = self._shard.retrieve([found.ids[i] for i in best], True, True)
        record_of = {str(record.id): record for record in records}
        matches = []
        for i in best:
            payload, vector, terms = _stored(record_of[found.ids[i]])
            why = {"bm25": found.bm25[i], "cosine": found.cosine[i], "relevance": relevance[i], "recency": factor[i]}
            why["words"] = question.share_in(terms)
            score = float(relevance[i] * factor[i])
            matches.append(match_of(payload, score, {name: float(part) for name, part in why.items()}, vector))
        return matches

    def present(self, post_ids: Sequence[str]) -> set[str]:
        """Those of the posts that can still be found."""
        with self._lock:
            return {post_id for post_id, entry in self._entries(set(post_ids)).items() if entry.pieces}

    def count(self) -> int:
        """Posts that can be found; removed ones are not counted, and one of several pieces counts once."""
        with self._lock:
            return int(self._shard.count(edge.CountRequest(filter=_where([_equals("number", 0)]))))

    def newest_ms(self) -> int | None:
        """The newest post's `sort_ms`; None when there is none."""
        newest = edge.OrderBy("sort_ms", edge.Direction.Desc)
        with self._lock:
            records, _ = self._shard.scroll(edge.ScrollRequest(limit=1, order_by=newest, with_payload=["sort_ms"]))
        return int(_payload(records[0])["sort_ms"]) if records else None

    def expire(self, before_ms: int) -> int:
        """Deletes posts with `sort_ms` before this, and tombstones too old to matter. Returns how many posts went."""
        old_posts = _where([_range("sort_ms", lt=before_ms)])
        old_removals = _where([_equals("pieces", 0), _range("removed_ms", lt=before_ms - TOMBSTONES_KEPT_MS)])
        with self._lock:
            before = edge.CountRequest(filter=_where([_range("sort_ms", lt=before_ms), _equals("number", 0)]))
            expired = int(self._shard.count(before))
            for condition in (old_posts, old_removals):
                self._shard.update(edge.UpdateOperation.delete_points_by_filter(condition))
        return expired

    def flush(self) -> None:
        """Writes everything to the segments on disk, and shortens the log."""
        with self._lock:
            self._shard.flush()
            self._unflushed, self._flushed_at = 0, time.monotonic()

    def close(self) -> None:
        """Flushes and gives the folder free."""
        with self._lock:
            self._shard.close()

    def _entries(self, post_ids: set[str]) -> dict[str, Entry]:
        """What is stored of these posts; those never heard of are left out."""
        post_of = {point_id(post_id): post_id for post_id in post_ids}
        records = self._shard.retrieve(list(post_of), ["version_us", "pieces"], False)
        payloads = {post_of[str(record.id)]: _payload(record) for record in records}
        return {post_id: Entry(payload["version_us"], payload["pieces"]) for post_id, payload in payloads.items()}

    def _write(self, changed: Mapping[str, Entry], stored: Mapping[str, Entry]) -> None:
        """Surplus pieces go first: were the process killed in between, the old head tells the next try of them."""
        surplus: list[PointId] = [
            point_id(post_id, number)
            for post_id, entry in changed.items()
            if post_id in stored
            for number in range(max(entry.pieces, 1), stored[post_id].pieces)
        ]
        if surplus:
            self._shard.update(edge.UpdateOperation.delete_points(surplus))
        if changed:
            now_ms = self._clock()
            points = [point for post_id, entry in changed.items() for point in _points(post_id, entry, now_ms)]
            self._shard.update(edge.UpdateOperation.upsert_points(points))
        if removed := [storable(post_id) for post_id, entry in changed.items() if not entry.pieces]:
            reposts = _where([edge.FieldCondition("repost_of", match=edge.MatchAny(removed))])
            self._shard.update(edge.UpdateOperation.delete_points_by_filter(reposts))

    def _candidates(self, query: Query, question: Question) -> Candidates:
        """The best by words and the best by meaning, each with both scores."""
        ways = {}
        if question.vector.indices:
            ways[BM25] = edge.Query.Nearest(question.vector, using=BM25)
        if query.vector:
            ways[DENSE] = edge.Query.Nearest(list(query.vector), using=DENSE)
        scores: dict[str, dict[str, float]] = {BM25: {}, DENSE: {}}
        sort_ms: dict[str, int] = {}
        limits = _limits(query)
        top = max(CANDIDATES, query.limit)
        for way, nearest in ways.items():
            for point in self._points(nearest, _where(limits), top):
                scores[way][str(point.id)] = point.score
                sort_ms[str(point.id)] = _payload(point)["sort_ms"]
        for way, nearest in ways.items():
            missing: set[PointId] = {*sort_ms.keys() - scores[way].keys()}
            if missing:
                for point in self._points(nearest, _where([edge.HasIdCondition(missing)]), len(missing)):
                    scores[way][str(point.id)] = point.score
        ids = list(sort_ms)
        by_words, by_meaning = (np.array([scores[way].get(i, 0.0) for i in ids]) for way in (BM25, DENSE))
        return Candidates(ids, by_words, by_meaning, np.array([sort_ms[i] for i in ids], dtype=np.int64))

    def _points(self, nearest: edge.Query, condition: edge.Filter, limit: int) -> list[edge.ScoredPoint]:
        request = edge.QueryRequest(limit=limit, query=nearest, filter=condition, with_payload=["sort_ms"])
        return list(self._shard.query(request))


def _open(path: Path, dim: int) -> edge.EdgeShard:
    config = edge.EdgeConfig(
        vectors={DENSE: edge.EdgeVectorParams(size=dim, distance=edge.Distance.Dot)},
        sparse_vectors={BM25: edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf)},
    )
    is_index = (path / "edge_config.json").is_file()
    if not is_index and path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise IndexUnusable(str(path), "is neither an index nor an empty folder")
    try:
        path.mkdir(parents=True, exist_ok=True)
        shard = (edge.EdgeShard.load if is_index else edge.EdgeShard.create)(str(path), config)
        for name in PAYLOAD_INDEXES.keys() - shard.info().payload_schema.keys():
            shard.update(edge.UpdateOperation.create_field_index(name, PAYLOAD_INDEXES[name]))
    except Exception as error:  # Edge raises Exception itself: for damage, a lock, a wrong dimension
        raise IndexUnusable(str(path), str(error)) from error
    return shard


def _points(post_id: str, entry: Entry, now_ms: int) -> Iterator[edge.Point]:
    if not entry.pieces:
        yield edge.Point(point_id(post_id), {}, tombstone(entry.version_us, now_ms))
    for passage in entry.passages:
        vectors: dict[str, Any] = {DENSE: list(passage.vector), BM25: post_terms(passage.text, passage.post.lang)}
        yield edge.Point(point_id(post_id, passage.number), vectors, payload_of(passage, entry.pieces))


def _limits(query: Query) -> list[Any]:
    conditions = []
    if query.since_ms is not None or query.until_ms is not None:
        conditions.append(_range("sort_ms", gte=query.since_ms, lte=query.until_ms))
    for key, values in (("language", query.languages), ("source", query.sources), ("author_id", query.authors)):
        if values:
            conditions.append(edge.FieldCondition(key, match=edge.MatchAny(list(values))))
    return conditions


def _where(conditions: Iterable[Any]) -> edge.Filter:
    return edge.Filter(must=list(conditions))


def _equals(key: str, value: int) -> edge.FieldCondition:
    return edge.FieldCondition(key, match=edge.MatchValue(value))


def _range(key: str, **bounds: float | None) -> edge.FieldCondition:
    return edge.FieldCondition(key, range=edge.RangeFloat(**bounds))


def _stored(record: edge.Record) -> tuple[Payload, tuple[float, ...], frozenset[int]]:
    """A piece's payload, its vector and its BM25 terms."""
    vectors: Any = record.vector
    terms = vectors.get(BM25)
    return _payload(record), tuple(vectors[DENSE]), frozenset(terms.indices if terms else ())


def _payload(point: edge.Record | edge.ScoredPoint) -> Payload:
    assert point.payload is not None
    return point.payload
