"""Makes a tier anew without what is dead in it, while it goes on being searched and changed.

A process of its own builds the new shard from what is read of the old one, a page at a time. What was removed is then
gone down to the bytes, and a warm tier gets its graph (Edge's `optimize` freezes a process while it works, often for a
minute). What is changed meanwhile is kept in a journal. The pages show no single moment, and need not: the journal is
played from before the first of them, and its operations say how points are to be, not how they change.
"""

import asyncio
import ctypes
import logging
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, get_args

import qdrant_edge as edge

from ingest.index_points import BM25, DENSE
from ingest.index_tier import IndexUnusable, Kind, Tier, open_shard, payload_in

log = logging.getLogger(__name__)
T = TypeVar("T")
OnOwner = Callable[..., Awaitable[Any]]  # runs a blocking call on the thread that owns the tier

HOUR_MS = 3_600_000
REMOVED_KEPT_MS = HOUR_MS  # how long text that was removed may stay in the files
DEAD_SHARE, MIN_DEAD = 0.3, 10_000  # of the points; fewer than that many are not worth it
ADDED_SHARE, MIN_ADDED = 0.2, 20_000  # of a warm tier's points: in no graph yet, they are scanned in every search
PAGE = 128  # points that are read, or operations that are replayed, in one go: about 5 ms
MAX_JOURNAL = 50_000  # points, about 200 MB
NICENESS = 15
_PR_SET_PDEATHSIG = 1


def is_due(tier: Tier, now_ms: int) -> bool:
    points, wear = tier.points, tier.wear
    if wear.removed_ms is not None and now_ms - wear.removed_ms >= REMOVED_KEPT_MS:
        return True
    if wear.dead > max(MIN_DEAD, DEAD_SHARE * points):
        return True
    return tier.kind == "warm" and wear.added > max(MIN_ADDED, ADDED_SHARE * points)


async def vacuum(tier: Tier, on_owner: OnOwner) -> bool:
    """False when it came to nothing: the process died, or too much was changed meanwhile. The tier is as it was then.

    Killed at any moment, the folder opens with everything in it.
    """
    target = tier.generations.next()
    started: list[subprocess.Popen[bytes]] = []  # known even when the call that starts it is cancelled
    try:
        child = await on_owner(_start, tier, target, started)
        if not await _fill(tier, child, on_owner):
            return False
        shard = await on_owner(open_shard, target, tier.dim, tier.kind)
        while await on_owner(_replay, tier, shard, target):
            pass
        return True
    except IndexUnusable as error:
        log.error("vacuum of the %s tier: what was made cannot be opened: %s", tier.kind, error)
        return False
    finally:  # when cancelled, too: after what the owner's thread may still be at
        await on_owner(_stop, tier)
        for child in started:
            await asyncio.to_thread(_end, child)
        await asyncio.to_thread(tier.generations.sweep)


def _start(tier: Tier, target: Path, started: "list[subprocess.Popen[bytes]]") -> "subprocess.Popen[bytes]":
    """On the owner's thread, which lives as long as the tier: the child dies with the thread that started it."""
    tier.journal = []
    tier.journal_points = 0
    tier.wear.begin()
    command = [sys.executable, "-m", "ingest.index_vacuum", str(target), str(tier.dim), tier.kind, str(os.getpid())]
    package = Path(__file__).resolve().parent.parent
    started.append(subprocess.Popen(command, cwd=package, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL))
    return started[0]


async def _fill(tier: Tier, child: "subprocess.Popen[bytes]", on_owner: OnOwner) -> bool:
    """Hands every point over and waits for the shard. The pipe makes a quick owner wait for a slow child."""
    assert child.stdin is not None
    offset: str | None = None
    is_last = False
    try:
        while not is_last:
            page, offset = await on_owner(_page, tier, offset)
            is_last = offset is None
            await asyncio.to_thread(_send, child.stdin, page, is_last)
            if tier.journal_points > MAX_JOURNAL:
                log.info("vacuum of the %s tier put off: too much is changing", tier.kind)
                return False
    except BrokenPipeError:
        pass  # its status says why
    status = await asyncio.to_thread(child.wait)
    if status:
        log.error("vacuum of the %s tier failed: its process ended with status %d", tier.kind, status)
    return status == 0


def _end(child: "subprocess.Popen[bytes]") -> None:
    child.kill()
    child.wait()
    assert child.stdin is not None
    with suppress(BrokenPipeError):  # it still has a page for it
        child.stdin.close()


def _page(tier: Tier, offset: str | None) -> tuple[bytes, str | None]:
    records, following = tier.page(offset, PAGE)
    points = []
    for record in records:
        vectors: Any = record.vector
        terms = vectors.get(BM25)
        sparse = (terms.indices, terms.values) if terms else None
        points.append((str(record.id), payload_in(record), vectors.get(DENSE), sparse))
    return pickle.dumps(points), following


def _send(pipe: Any, page: bytes, is_last: bool) -> None:
    pipe.write(page)
    if is_last:
        pipe.write(pickle.dumps(None))
        pipe.close()
    else:
        pipe.flush()


def _replay(tier: Tier, shard: edge.EdgeShard, target: Path) -> bool:
    """Some of the journal, the oldest first. With the last of it the tier goes on with the new shard: then False."""
    assert tier.journal is not None
    some, tier.journal = tier.journal[:PAGE], tier.journal[PAGE:]
    for operation in some:
        shard.update(operation)
    if tier.journal:
        return True
    tier.adopt(shard, target)
    return False


def _stop(tier: Tier) -> None:
    tier.journal = None


# -- the child


def build(target: Path, dim: int, kind: Kind, pages: BinaryIO) -> None:
    """Pickled lists of points, then None, from our own parent. Raises EOFError when it dies before it has sent all."""
    shard = open_shard(target, dim, kind)
    while (points := pickle.load(pages)) is not None:
        shard.update(edge.UpdateOperation.upsert_points([_point(*point) for point in points]))
    shard.flush()
    if kind == "warm":
        shard.optimize()
        shard.flush()
    shard.close()


def _point(
    point_id: str, payload: dict[str, Any], dense: list[float] | None, sparse: tuple[list[int], list[float]] | None
) -> edge.Point:
    vectors: dict[str, Any] = {}
    if dense is not None:
        vectors[DENSE] = dense
    if sparse is not None:
        vectors[BM25] = edge.SparseVector(*sparse)
    return edge.Point(point_id, vectors, payload)


def main(target: str, dim: str, kind: str, parent: str) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        sys.exit(1)
    os.nice(NICENESS)
    assert kind in get_args(Kind)
    build(Path(target), int(dim), kind, sys.stdin.buffer)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(*sys.argv[1:])
