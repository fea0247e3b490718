"""The indexes that must behave alike, made for tests."""

import asyncio
import os
import uuid
from pathlib import Path

from qdrant_client import AsyncQdrantClient

from ingest.index import Query
from ingest.index_embedded import EmbeddedIndex
from ingest.index_server import ServerIndex
from ingest.index_shards import ShardedIndex
from tests.ingest.made import NOW_MS, vector

HOUR_MS, DAY_MS = 3_600_000, 24 * 3_600_000
WINDOW_H, WARM_DAYS = 72.0, 30.0


class Clock:
    def __init__(self, now_ms=NOW_MS):
        self.now_ms = now_ms

    def __call__(self):
        return self.now_ms


CLOCK = Clock()  # of all of them; the fixture sets it back


async def no_sleep(seconds):
    await asyncio.sleep(0)


async def local(**options):
    """A server index over qdrant-client's local mode, which takes the same calls."""
    client = options.pop("client", None) or AsyncQdrantClient(":memory:")
    given = {"window_h": WINDOW_H, "warm_days": WARM_DAYS, "clock": CLOCK, "sleep": no_sleep} | options
    return await ServerIndex.open(client, "posts", **given)


async def sharded():
    """Two shards, each an index of its own."""
    return ShardedIndex([await local(), await local()])


async def real():
    """On the server that QDRANT_URL names, in a collection that goes with the test."""
    client = AsyncQdrantClient(
        url=os.environ["QDRANT_URL"], api_key=os.environ.get("QDRANT_API_KEY"), check_compatibility=False
    )
    name = f"contract-{uuid.uuid4().hex}"
    index = await ServerIndex.open(client, name, window_h=WINDOW_H, warm_days=WARM_DAYS, clock=CLOCK)

    async def close():
        await client.delete_collection(name)
        await client.close()

    index.close = close
    return index


def embedded(folder: Path):
    return EmbeddedIndex(folder, window_h=WINDOW_H, warm_days=WARM_DAYS, clock=CLOCK)


async def emptied(index: EmbeddedIndex):
    """As new: opening one takes longer than most tests."""
    for tier in index.tiers:
        await index._run(tier.delete_where, [])
        assert tier.points == 0
    index._index._warm_newest_ms = None
    return index


async def words(index, text, **fields):
    """Post ids by words alone, best first."""
    return [match.post_id for match in await index.search(Query(text, **fields))]


async def meaning(index, text, **fields):
    """Post ids by meaning alone; the vector of a text is near to nothing but itself."""
    found = await index.search(Query("", vector(text), **fields))
    return [match.post_id for match in found if match.why["cosine"] > 0.5]
