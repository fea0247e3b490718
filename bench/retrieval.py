"""How well posts are found: TREC Microblog 2011 to 2013 and CheckThat 2022 2A, by the real embedder, index and ranking.

    python -m bench.retrieval [--data ../shared/data] [--quick]

TREC: each question sees only the posts up to its own time. nDCG@10 takes exponential gains of the grades 0 to 2; the
ideal is made of the judged posts that the collection holds. The peer: BM25 as it comes (k1 1.2, b 0.75, English stems).
CheckThat: a post is asked, and the claim that it repeats should be found.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import qdrant_edge as edge

from bench.figures import figure, say
from bench.judged import Collection, average_precision, ndcg10, precision, read_claims, read_trec, recall, sample
from bench.off_topic import OFF_TOPIC
from ingest.ask import Ask
from ingest.embed import Embedder
from ingest.index import Query
from ingest.index_embedded import EmbeddedIndex
from ingest.index_points import point_id
from ingest.post import Author, Passage, Post
from ingest.retrieve import Retrieval

BATCH = 2048
AVERAGE_TERMS = 12.0  # of these posts
WINDOW_H = 24.0 * 365 * 30
Values = dict[tuple[str, str], list[float]]  # (figure, set) -> one value for each question
Run = Callable[[Query], Awaitable[list[str]]]  # post ids, best first, 100 at most


class Known:
    """An embedder that has seen each question before."""

    def __init__(self, embedder: Embedder, texts: Sequence[str]) -> None:
        self._vectors = dict(zip(texts, embedder.embed(texts), strict=True))

    async def embed(self, texts: Sequence[str], *, urgent: bool) -> np.ndarray:
        return np.stack([self._vectors[text] for text in texts])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder that holds retrieval/")
    parser.add_argument("--model", type=Path, default=Path.home() / ".local/share/groundswell/models/all-minilm-l6-v2")
    parser.add_argument("--quick", action="store_true", help="a sample of TREC 2011, under a minute")
    arguments = parser.parse_args()
    source = arguments.data / "retrieval"
    if not source.is_dir():
        say(f"{source} is absent: nothing to measure")
        return
    embedder = Embedder(arguments.model)
    asyncio.run(measure_trec(embedder, source / "trec_microblog", arguments.quick))
    if not arguments.quick:
        asyncio.run(measure_claims(embedder, source / "checkthat2022_2a"))


async def measure_trec(embedder: Embedder, folder: Path, quick: bool) -> None:
    collection = read_trec(folder)
    if quick:
        collection = sample(collection)
    with tempfile.TemporaryDirectory() as temporary:
        index = await filled(Path(temporary) / "ours", embedder, collection.posts)
        peer = Bm25AsItComes(Path(temporary) / "peer", collection.posts)
        asked = [question["text"] for question in collection.questions] + on_topic(collection) + list(OFF_TOPIC)
        known = Known(embedder, asked)
        theirs = await judge(collection, peer.search)
        for name, run in runs(index, known).items():
            report(name, await judge(collection, run), theirs, quick)
        await report_floor(Retrieval(known, index, window_h=WINDOW_H), collection, quick)
        await index.close()


async def measure_claims(embedder: Embedder, folder: Path) -> None:
    """The test split, which chose nothing."""
    collection = read_claims(folder)
    with tempfile.TemporaryDirectory() as temporary:
        index = await filled(Path(temporary) / "ours", embedder, collection.posts)
        peer = Bm25AsItComes(Path(temporary) / "peer", collection.posts)
        known = Known(embedder, [question["text"] for question in collection.questions])
        theirs = await judge(collection, peer.search)
        report("hybrid as shipped", await judge(collection, runs(index, known)["as shipped"]), theirs, False)
        await index.close()


async def filled(path: Path, embedder: Embedder, posts: list[dict[str, Any]]) -> EmbeddedIndex:
    newest_ms = max(post["ts_ms"] for post in posts)
    index = EmbeddedIndex(path, embedder.dim, window_h=WINDOW_H, max_posts=10**9, clock=lambda: newest_ms)
    started = time.monotonic()
    for start in range(0, len(posts), BATCH):
        some = posts[start : start + BATCH]
        vectors = embedder.embed([post["text"] for post in some])
        await index.apply([passage(post, vector) for post, vector in zip(some, vectors, strict=True)], [])
        done = start + len(some)
        pace = done / (time.monotonic() - started)
        print(f"\r{done:,} of {len(posts):,} posts, {pace:.0f}/s", end="", file=sys.stderr)
    print(file=sys.stderr)
    return index


def passage(raw: dict[str, Any], vector: np.ndarray) -> Passage:
    ms = raw["ts_ms"]
    post = Post(raw["_id"], "bench", ms * 1000, raw["text"], ms, ms, Author(""), lang="en")
    return Passage(post, 0, post.text, tuple(vector.tolist()))


def runs(index: EmbeddedIndex, known: Known) -> dict[str, Run]:
    """`as shipped` searches twice (ingest.feedback); the floor, and what takes repeats away, come after."""
    shipped = Retrieval(known, index, window_h=WINDOW_H)

    def run(words: bool, meaning: bool, recency: bool) -> Run:
        async def search(query: Query) -> list[str]:
            vector = (await known.embed([query.text], urgent=True))[0]
            asked = replace(
                query,
                text=query.text if words else "",
                vector=tuple(vector.tolist()) if meaning else (),
                now_ms=query.now_ms if recency else None,
            )
            return [match.post_id for match in await index.search(asked)]

        return search

    async def as_shipped(query: Query) -> list[str]:
        return [match.post_id for match in await shipped.candidates(query)]

    return {
        "bm25": run(True, False, False),
        "dense": run(False, True, False),
        "hybrid": run(True, True, False),
        "hybrid+recency": run(True, True, True),
        "as shipped": as_shipped,
    }


class Bm25AsItComes:
    def __init__(self, folder: Path, posts: Sequence[dict[str, Any]]) -> None:
        self._bm25 = edge.Bm25(edge.Bm25Config(k=1.2, b=0.75, avg_len=AVERAGE_TERMS, language="english"))
        config = edge.EdgeConfig(sparse_vectors={"bm25": edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf)})
        folder.mkdir()
        self._shard = edge.EdgeShard.create(str(folder), config)
        time_index = edge.IntegerIndexParams(lookup=False, range=True)
        self._shard.update(edge.UpdateOperation.create_field_index("ts_ms", time_index))
        for start in range(0, len(posts), BATCH):
            points = [self._point(post) for post in posts[start : start + BATCH]]
            self._shard.update(edge.UpdateOperation.upsert_points(points))

    def _point(self, post: dict[str, Any]) -> edge.Point:
        payload = {"id": post["_id"], "ts_ms": post["ts_ms"]}
        return edge.Point(point_id(post["_id"]), {"bm25": self._bm25.embed_document(post["plain"])}, payload)

    async def search(self, query: Query) -> list[str]:
        until = edge.FieldCondition("ts_ms", range=edge.RangeFloat(lte=query.until_ms))
        nearest = edge.Query.Nearest(self._bm25.embed_query(query.text), using="bm25")
        request = edge.QueryRequest(limit=100, query=nearest, filter=edge.Filter(must=[until]), with_payload=True)
        return [(point.payload or {})["id"] for point in self._shard.query(request)]


async def judge(collection: Collection, run: Run) -> Values:
    values: Values = defaultdict(list)
    for question in collection.questions:
        asked_ms, grades = question.get("query_ts"), collection.grades[question["_id"]]
        found = await run(Query(question["text"], limit=100, now_ms=asked_ms, until_ms=asked_ms))
        values["retrieval.ndcg10", question["set"]].append(ndcg10(found, grades))
        if asked_ms is None:
            values["retrieval.map5", question["set"]].append(average_precision(found, grades, 5))
        else:
            values["retrieval.r100", question["set"]].append(recall(found, grades, 100))
            values["retrieval.p30", question["set"]].append(precision(found, grades, 30))
    return values


def report(name: str, values: Values, theirs: Values, quick: bool) -> None:
    for (title, about), ours in values.items():
        peer = {"peer": "BM25 k1 1.2 b 0.75", "theirs": mean(theirs[title, about])}
        figure(title, mean(ours), "share", runs=1, quick=quick, set=about, run=name, **peer)


def on_topic(collection: Collection) -> list[str]:
    return [f"What are people saying about {question['text']}?" for question in collection.questions]


async def report_floor(retrieval: Retrieval, collection: Collection, quick: bool) -> None:
    """The share of questions that are answered: those on what was posted, and those on what was not."""
    times = [question["query_ts"] for question in collection.questions]
    off_topic = [(asked, max(times)) for asked in OFF_TOPIC]
    for name, asked in (
        ("on_topic", list(zip(on_topic(collection), times, strict=True))),
        ("off_topic", off_topic),
    ):
        passed = [
            bool((await retrieval.search(Ask(text, until_ms=asked_ms, read_time_words=False), asked_ms)).matches)
            for text, asked_ms in asked
        ]
        about = {"set": f"trec, {len(collection.posts)} posts", "run": name, "questions": len(asked)}
        figure("retrieval.floor", mean(passed), "share answered", runs=1, quick=quick, **about)


if __name__ == "__main__":
    main()
