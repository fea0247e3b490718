"""One Qdrant Edge shard in a folder: what the embedded index keeps hot, or what it keeps warm. Blocking.

Edge holds the GIL for the whole of every call, and one shard has one owner. A kill loses nothing: Edge logs each
operation before it applies it. `optimize` is never called here (index_vacuum.py): it would freeze the process.
"""

import logging
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import qdrant_edge as edge

from ingest.index_edge_filter import where, where_any
from ingest.index_generations import Generations
from ingest.index_points import BM25, DENSE, KEYWORDS, NO_POST, POSTS, RANGES, UNFOUND, Condition, Payload
from ingest.index_wear import Wear

log = logging.getLogger(__name__)

Kind = Literal["hot", "warm"]
PointId = int | UUID | str  # as Edge's stubs have it; ours are all str
# A flush stops searches for about 0.25 s; it bounds the log that is replayed after a kill (1.6 s for 40,000 posts).
FLUSH_S, FLUSH_CHANGES = 60.0, 10_000


class IndexUnusable(RuntimeError):
    """The folder cannot be opened as an index of posts: it is damaged, in use, or of another kind or dimension."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"index {self.path}: {self.reason}"


class Tier:
    """Opens the folder, or makes it; raises IndexUnusable."""

    def __init__(self, path: Path, dim: int, kind: Kind) -> None:
        self.path, self.dim, self.kind = path, dim, kind
        self.generations = Generations(path)
        self._shard = self._open()
        self.wear = Wear(path / "wear.json")
        self.journal: list[edge.UpdateOperation] | None = None  # of what is applied while a vacuum runs
        self.journal_points = 0  # that it holds, about
        self._unflushed, self._flushed_at = 0, time.monotonic()

    def _open(self) -> edge.EdgeShard:
        current = self.generations.current
        if current is None:  # new, or killed while it was made: nothing that was ever acknowledged
            current = self.generations.next()
            shard = open_shard(current, self.dim, self.kind)
            self.generations.switch(current)
        elif not (current / "edge_config.json").is_file():
            raise IndexUnusable(str(self.path), f"CURRENT names {current.name}, which is no shard")
        else:
            shard = open_shard(current, self.dim, self.kind)
        self.generations.sweep()
        return shard

    # -- changing

    def upsert(self, points: Sequence[edge.Point]) -> None:
        if points:
            self._update(edge.UpdateOperation.upsert_points(list(points)), len(points))
            self.wear.added += len(points)

    def delete(self, ids: Sequence[str]) -> None:
        if ids:
            self._update(edge.UpdateOperation.delete_points(list(ids)), len(ids))
            self.wear.dead += len(ids)

    def delete_where(self, conditions: Iterable[Condition]) -> int:
        """How many points went."""
        condition = where(conditions)
        if count := int(self._shard.count(edge.CountRequest(filter=condition))):
            self._update(edge.UpdateOperation.delete_points_by_filter(condition), count)
            self.wear.dead += count
        return count

    def set_where(self, conditions: Iterable[Condition], payload: Payload) -> None:
        self._update(edge.UpdateOperation.set_payload_by_filter(where(conditions), payload), 1)

    def _update(self, operation: edge.UpdateOperation, changes: int) -> None:
        self._shard.update(operation)
        self._unflushed += changes
        if self.journal is not None:
            self.journal.append(operation)
            self.journal_points += changes

    # -- asking

    def nearest(
        self, query: edge.Query, condition: edge.Filter, limit: int, fields: Sequence[str]
    ) -> list[edge.ScoredPoint]:
        request = edge.QueryRequest(
            limit=limit, query=query, filter=condition, with_payload=list(fields), params=_SEARCH[self.kind]
        )
        return list(self._shard.query(request))

    def retrieve(
        self, ids: Iterable[str], fields: Sequence[str] | None = None, with_vectors: bool = False
    ) -> dict[str, edge.Record]:
        """By point id; `fields` None: the whole payload."""
        wanted: list[PointId] = list(ids)
        if not wanted:
            return {}
        records = self._shard.retrieve(wanted, list(fields) if fields is not None else True, with_vectors)
        return {str(record.id): record for record in records}

    def scroll(
        self,
        conditions: Iterable[Condition],
        fields: Sequence[str],
        limit: int,
        offset: str | None = None,
        order: edge.OrderBy | None = None,
    ) -> tuple[list[Payload], str | None]:
        """Payloads, and where the next page begins; None at the end, and with an `order`."""
        request = edge.ScrollRequest(
            offset=offset, limit=limit, filter=where(conditions), with_payload=list(fields), order_by=order
        )
        records, following = self._shard.scroll(request)
        return [payload_in(record) for record in records], None if following is None else str(following)

    def page(self, offset: str | None, limit: int) -> tuple[list[edge.Record], str | None]:
        """Everything there is, in the order of the ids, for a vacuum."""
        request = edge.ScrollRequest(offset=offset, limit=limit, with_payload=True, with_vector=True)
        records, following = self._shard.scroll(request)
        return records, None if following is None else str(following)

    def oldest(self, limit: int, fields: Sequence[str] = ("post_id", "pieces", "sort_ms")) -> list[Payload]:
        """The posts that are oldest by their sort time, once each."""
        return self.scroll(POSTS, fields, limit, order=edge.OrderBy("sort_ms", edge.Direction.Asc))[0]

    def newest_ms(self, conditions: Iterable[Condition]) -> int | None:
        order = edge.OrderBy("sort_ms", edge.Direction.Desc)
        found, _ = self.scroll(conditions, ["sort_ms"], 1, order=order)
        return int(found[0]["sort_ms"]) if found else None

    def count(self, conditions: Iterable[Condition]) -> int:
        return int(self._shard.count(edge.CountRequest(filter=where(conditions))))

    @property
    def points(self) -> int:
        """All of them, with pieces, tombstones and accounts."""
        return int(self._shard.info().points_count)

    @property
    def posts(self) -> int:
        return self.points - int(self._shard.count(edge.CountRequest(filter=where_any(NO_POST))))

    @property
    def found_posts(self) -> int:
        """Those that a search may find."""
        return self.points - int(self._shard.count(edge.CountRequest(filter=where_any(UNFOUND))))

    # -- keeping

    def flush_if_due(self) -> None:
        is_due = self._unflushed and time.monotonic() - self._flushed_at > FLUSH_S
        if is_due or self._unflushed >= FLUSH_CHANGES:
            self.flush()

    def flush(self) -> None:
        """Writes everything to the segments on disk, and shortens the log."""
        self._shard.flush()
        self.wear.save()
        self._unflushed, self._flushed_at = 0, time.monotonic()

    def close(self) -> None:
        """Flushes and gives the folder free."""
        self.wear.save()
        self._shard.close()

    def adopt(self, shard: edge.EdgeShard, path: Path) -> None:
        """Goes on with another generation, which holds the same. The old one is dropped, not closed: that would write
        all of it once more."""
        self.generations.switch(path)
        self._shard = shard
        self.journal = None
        self.wear.reset()
        self._unflushed, self._flushed_at = 0, time.monotonic()


def open_shard(path: Path, dim: int, kind: Kind) -> edge.EdgeShard:
    """Loads the shard, or makes it where there is none; raises IndexUnusable."""
    try:
        is_shard = (path / "edge_config.json").is_file()
        if not is_shard:
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)
        _read_ahead(path)
        shard = (edge.EdgeShard.load if is_shard else edge.EdgeShard.create)(str(path), _config(dim, kind))
        schema = _payload_schema(kind)
        for name in schema.keys() - shard.info().payload_schema.keys():
            shard.update(edge.UpdateOperation.create_field_index(name, schema[name]))
    except Exception as error:  # Edge raises Exception itself: for damage, a lock, a wrong dimension
        raise IndexUnusable(str(path), str(error)) from error
    return shard


def _read_ahead(path: Path) -> None:
    """Edge reads quantised vectors page by page in no order: 5 s for 20,000 posts on a slow disk, 0.3 s after this."""
    for file in path.glob("segments/*/vector_storage-*/quantized.data"):
        with file.open("rb") as opened:
            while opened.read(1 << 20):
                pass


_COLD, _CACHED = edge.Memory.Cold, edge.Memory.Cached
_SEARCH: Mapping[Kind, edge.SearchParams | None] = {
    "hot": None,
    "warm": edge.SearchParams(hnsw_ef=128, quantization=edge.QuantizationSearchParams(rescore=True, oversampling=2.0)),
}


def _config(dim: int, kind: Kind) -> edge.EdgeConfig:
    """Hot stays flat: a scan of what a time filter leaves is quick and exact. Warm gets a graph by its vacuum.

    Half precision makes a scan of 40,000 vectors take 2.0 ms instead of 5.6, with the same best hundred.
    """
    half = edge.VectorStorageDatatype.Float16
    sparse = edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf, memory=_COLD if kind == "warm" else None)
    if kind == "hot":
        dense = edge.EdgeVectorParams(size=dim, distance=edge.Distance.Dot, datatype=half)
        optimizers = edge.EdgeOptimizersConfig(indexing_threshold=10**9)
        return edge.EdgeConfig({DENSE: dense}, {BM25: sparse}, optimizers=optimizers)
    quantised = edge.ScalarQuantizationConfig(edge.ScalarType.Int8, memory=_CACHED)
    dense = edge.EdgeVectorParams(
        size=dim, distance=edge.Distance.Dot, datatype=half, memory=_COLD, quantization_config=quantised
    )
    graph = edge.HnswIndexConfig(m=16, ef_construct=100, full_scan_threshold=10_000, max_indexing_threads=1)
    optimizers = edge.EdgeOptimizersConfig(indexing_threshold=10_000)  # KB of vectors
    return edge.EdgeConfig({DENSE: dense}, {BM25: sparse}, hnsw_config=graph, optimizers=optimizers)


def _payload_schema(kind: Kind) -> dict[str, Any]:
    memory = _COLD if kind == "warm" else None
    keywords = {key: edge.KeywordIndexParams(memory=memory, enable_hnsw=False) for key in KEYWORDS}
    ranges = {
        key: edge.IntegerIndexParams(lookup=False, range=True, memory=memory, enable_hnsw=False) for key in RANGES
    }
    return {**keywords, **ranges}


def payload_in(point: edge.Record | edge.ScoredPoint) -> Payload:
    assert point.payload is not None
    return point.payload
