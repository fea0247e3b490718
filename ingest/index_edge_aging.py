"""Old posts leave the hot tier for the warm one, and the warm one for good, a few at a time. Blocking."""

from dataclasses import dataclass

import qdrant_edge as edge

from ingest.index_edge_changes import entries
from ingest.index_points import Condition, point_id
from ingest.index_rules import MAX_POINTS, TOMBSTONES_KEPT_MS
from ingest.index_tier import Tier, payload_in


@dataclass(frozen=True, slots=True)
class Retention:
    """`warm_ms`: posts older than this, by their sort time, are kept nowhere; none are while it is 0."""

    window_ms: int
    max_posts: int
    warm_ms: int


def age(hot: Tier, warm: Tier | None, keep: Retention, now_ms: int) -> bool:
    """One slice of what is due. False when nothing is: then what is known of old removals is forgotten, too."""
    if due := _due(hot, now_ms - keep.window_ms, keep.max_posts):
        if warm is not None:
            _copy(hot, warm, due)
        _drop(hot, due)
        return True
    if warm is not None and (due := _due(warm, now_ms - max(keep.warm_ms, keep.window_ms))):
        _drop(warm, due)
        return True
    before_ms = now_ms - keep.window_ms - TOMBSTONES_KEPT_MS
    hot.delete_where([Condition("removed_ms", lte=before_ms - 1)])
    hot.delete_where([Condition("account_state", ("active",)), Condition("changed_ms", lte=before_ms - 1)])
    return False


def _due(tier: Tier, before_ms: int, max_posts: int | None = None) -> dict[str, int]:
    """Post id -> pieces, of the oldest that are too old or too many."""
    oldest = tier.oldest(MAX_POINTS)
    excess = 0 if max_posts is None else max(0, tier.posts - max_posts)
    old = sum(post["sort_ms"] < before_ms for post in oldest)
    return {post["post_id"]: post["pieces"] for post in oldest[: max(old, excess)]}


def _copy(hot: Tier, warm: Tier, due: dict[str, int]) -> None:
    """An older copy may be left in warm by a kill: its surplus pieces go."""
    left = entries(warm, due)
    warm.delete([point_id(i, n) for i, entry in left.items() for n in range(due[i], entry.pieces)])
    records = hot.retrieve(_ids(due), with_vectors=True)
    points = []
    for i, record in records.items():
        vectors = record.vector
        assert isinstance(vectors, dict)
        points.append(edge.Point(i, vectors, payload_in(record)))
    warm.upsert(points)


def _drop(tier: Tier, due: dict[str, int]) -> None:
    tier.delete(_ids(due))


def _ids(due: dict[str, int]) -> list[str]:
    return [point_id(post_id, number) for post_id, pieces in due.items() for number in range(pieces)]
