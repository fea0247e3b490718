"""How long a search of the embedded index takes, and what 100,000 posts cost in memory: JSON lines.

    python -m bench.search [--quick]

Posts are made up: vectors of 384 numbers around 400 centres (neighbours at a cosine of about 0.5, others near 0), 14
words each by Zipf's law, spread evenly over 72 hours. The peer holds the same vectors and times in numpy and answers by
one product over all of them and a partial sort: by meaning alone, without words, other filters, reasons or text.
"""

import argparse
import asyncio
import gc
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from bench.figures import figure, hardware, percentile, say
from ingest.index import Query
from ingest.index_embedded import EmbeddedIndex
from ingest.index_rules import MAX_POINTS
from ingest.post import Author, Passage, Post, account_of

DIM, CENTRES, VOCABULARY, WORDS, AUTHORS = 384, 400, 30_000, 14, 20_000
NOW_MS = 1_900_000_000_000
HOUR_MS, DAY_MS = 3_600_000, 24 * 3_600_000
WINDOW_H, WARM_DAYS = 72, 30
LIMIT, TOP = 40, 100
RATE, BATCHES = 50, 10  # posts and batches a second, while ingesting
PEER = "numpy, one product over all vectors, by meaning alone"


class World:
    """The same posts and questions each time."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        centres = rng.normal(size=(CENTRES, DIM)).astype(np.float32)
        self._centres = centres / np.linalg.norm(centres, axis=1, keepdims=True)
        self._cumulated = np.cumsum(1 / np.arange(1, VOCABULARY + 1))
        self._words = np.array([f"w{i}ord" for i in range(VOCABULARY)])

    def vectors(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """[count, DIM] float32, unit length."""
        noise = rng.normal(size=(count, DIM)).astype(np.float32) / np.sqrt(DIM)
        rows = self._centres[rng.integers(0, CENTRES, count)] + noise
        unit: np.ndarray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return unit

    def texts(self, rng: np.random.Generator, count: int, words: int = WORDS) -> list[str]:
        places = np.searchsorted(self._cumulated, rng.random((count, words)) * self._cumulated[-1])
        return [" ".join(row) for row in self._words[places]]

    def posts(self, first: int, count: int, age_ms: tuple[int, int]) -> Iterator[Passage]:
        """`age_ms`: the youngest and the oldest."""
        for start in range(first, first + count, 1000):
            rng = np.random.default_rng(start)
            size = min(1000, first + count - start)
            vectors, texts = self.vectors(rng, size), self.texts(rng, size)
            ages = rng.integers(*age_ms, size)
            authors = rng.zipf(1.3, size) % AUTHORS
            for i in range(size):
                author, ms = f"did:plc:{authors[i]:024d}", NOW_MS - int(ages[i])
                post = Post(
                    id=f"bluesky:at://{author}/app.bsky.feed.post/{start + i:013d}",
                    source="bluesky",
                    version_us=ms * 1000,
                    text=texts[i],
                    created_ms=ms,
                    received_ms=ms,
                    author=Author(author, f"user{authors[i]}.bsky.social", f"User {authors[i]}"),
                    lang="en",
                    url=f"https://bsky.app/profile/{author}/post/{start + i:013d}",
                    account=account_of("bluesky", author),
                )
                yield Passage(post, 0, texts[i], tuple(vectors[i].tolist()))


class Flat:
    """The peer."""

    def __init__(self, posts: int) -> None:
        self._vectors, self._ms = np.empty((posts, DIM), np.float32), np.empty(posts, np.int64)
        self._filled = 0

    def add(self, passage: Passage) -> None:
        self._vectors[self._filled], self._ms[self._filled] = passage.vector, passage.post.sort_ms
        self._filled += 1

    def search(self, query: Query) -> np.ndarray:
        scores = self._vectors @ np.array(query.vector, np.float32)
        if query.since_ms is not None:
            scores[self._ms < query.since_ms] = -1.0
        best = np.argpartition(-scores, TOP)[:TOP]
        order: np.ndarray = best[np.argsort(-scores[best])][:LIMIT]
        return order


async def fill(index: EmbeddedIndex, world: World, posts: int, age_ms: tuple[int, int]) -> Flat:
    flat, batch = Flat(posts), []
    for passage in world.posts(0, posts, age_ms):
        flat.add(passage)
        batch.append(passage)
        if len(batch) == MAX_POINTS:
            await index.apply(batch, [])
            batch = []
    await index.apply(batch, [])
    return flat


async def ingest(index: EmbeddedIndex, world: World, first: int) -> None:
    """RATE posts a second, for ever."""
    size, number = RATE // BATCHES, 0
    while True:
        started_s = time.monotonic()
        await index.apply(list(world.posts(first + number, size, (1, 1000))), [])
        number += size
        await asyncio.sleep(max(0.0, 1 / BATCHES - (time.monotonic() - started_s)))


def questions(world: World, since_ms: int | None) -> Iterator[Query]:
    rng = np.random.default_rng(99)
    while True:
        (vector,), (text,) = world.vectors(rng, 1), world.texts(rng, 1, 4)
        yield Query(text, tuple(vector.tolist()), limit=LIMIT, now_ms=NOW_MS, since_ms=since_ms)


async def measure(
    index: EmbeddedIndex, world: World, flat: Flat, since_ms: int | None, seconds: float
) -> dict[str, list[float]]:
    """Milliseconds of each search, and of the peer's."""
    took: dict[str, list[float]] = {"ours": [], "theirs": []}
    until_s = time.monotonic() + seconds
    for query in questions(world, since_ms):
        started_s = time.perf_counter()
        await index.search(query)
        took["ours"].append((time.perf_counter() - started_s) * 1000)
        if len(took["ours"]) % 10 == 0:
            started_s = time.perf_counter()
            flat.search(query)
            took["theirs"].append((time.perf_counter() - started_s) * 1000)
        await asyncio.sleep(0.005)
        if time.monotonic() > until_s and took["theirs"]:
            return took
    raise AssertionError("there is always another question")


def report(took: dict[str, list[float]], quick: bool, **fields: object) -> None:
    for name, share in (("search.p50", 0.5), ("search.p99", 0.99)):
        ours, theirs = (percentile(took[side], share) for side in ("ours", "theirs"))
        figure(name, ours, "ms", runs=len(took["ours"]), quick=quick, **fields, peer=PEER, theirs=theirs)


def memory_mb() -> float:
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise OSError("no VmRSS in /proc/self/status")


async def hot(world: World, folder: Path, posts: int, quick: bool) -> None:
    before_mb = memory_mb()
    index = EmbeddedIndex(folder, DIM, window_h=WINDOW_H, max_posts=10 * posts, warm_days=0, clock=lambda: NOW_MS)
    flat = await fill(index, world, posts, (0, WINDOW_H * HOUR_MS))
    grown_mb = memory_mb() - before_mb - posts * (DIM * 4 + 8) / 2**20  # less the peer's
    figure("search.memory_mb", grown_mb * 100_000 / posts, "MB a 100,000 posts", runs=1, quick=quick, posts=posts)
    for ingesting in (0, RATE):
        filling = asyncio.create_task(ingest(index, world, posts)) if ingesting else None
        for window, since_ms in (("24h", NOW_MS - DAY_MS), ("none", None)):
            say(f"{posts} posts, {ingesting} posts/s, window {window}")
            seconds = (3.0 if ingesting else 2.0) if quick else (65.0 if ingesting else 15.0)  # a flush every 60 s
            took = await measure(index, world, flat, since_ms, seconds)
            report(took, quick, posts=posts, ingesting=ingesting, window=window, tier="hot")
        if filling:
            filling.cancel()
            with suppress(asyncio.CancelledError):
                await filling
    await index.close()


async def warm(world: World, folder: Path, posts: int, quick: bool) -> None:
    """Posts of the days before the window, after a vacuum: on disk, quantised, in a graph."""
    index = EmbeddedIndex(folder, DIM, window_h=1, max_posts=10 * posts, warm_days=WARM_DAYS, clock=lambda: NOW_MS)
    flat = await fill(index, world, posts, (2 * HOUR_MS, 20 * DAY_MS))
    await index.maintain(NOW_MS)
    say(f"vacuum of {posts} warm posts")
    started_s = time.monotonic()
    await index.vacuum(index.tiers[1])
    figure("search.vacuum_s", time.monotonic() - started_s, "s", runs=1, quick=quick, posts=posts, tier="warm")
    for window, since_ms in (("24h", NOW_MS - DAY_MS), ("20d", NOW_MS - 20 * DAY_MS)):
        took = await measure(index, world, flat, since_ms, 2.0 if quick else 15.0)
        report(took, quick, posts=posts, ingesting=0, window=window, tier="warm")
    await index.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few posts and few searches")
    parser.add_argument("--folder", type=Path, help="where the indexes are made; gone afterwards")
    arguments = parser.parse_args()
    say(f"{hardware()}, load {os.getloadavg()[0]:.1f}")
    world = World()
    for posts in (4_000,) if arguments.quick else (20_000, 200_000):
        for part in (hot, warm):
            if part is warm and posts > 20_000:
                continue
            with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
                asyncio.run(part(world, Path(folder) / "index", posts, arguments.quick))


if __name__ == "__main__":
    main()
