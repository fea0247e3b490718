"""How fast posts become findable, how many a second, and what a search costs meanwhile.

Against the whole service (`serve run services.app`), through the broker, the screen, the language detector, the
embedder and the index; the search is the Retriever's own.

* freshness: from the moment a post is handed to the producer to the first search that returns it, at a steady rate.
* drain: a backlog of real tweets, published at once; searches while it drains, and afterwards.
* peers: sentence-transformers on the same tweets, one at a time and in its default batches of 32, in float32 on all
  cores; it only embeds, the drain does everything. And this project's embedder alone, in the turns of the service.

    python -m bench.ingest [--quick] [--only freshness,drain,peers] [--data ../shared/data]
"""

import argparse
import asyncio
import gzip
import json
import random
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from aiokafka import AIOKafkaProducer
from ray import serve
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from bench.embed_peers import Peers, measure_peers
from bench.figures import figure, hardware, median, percentile, say
from ingest.ask import Ask
from ingest.index import Query
from tests.e2e.running import Service, service

PARTS = ("freshness", "drain", "peers")
RATES = (20.0, 100.0)
BACKLOG, QUICK_BACKLOG = 100_000, 6_000
AUTHORS = 20_000
TOPIC = "posts"
QUERY_EVERY_S = 0.5  # a busy desk: two questions a second
# A post of 14 words, about as long for the embedder as a tweet.
WORDS = "harbour bridge closed storm market tram river school council goal power queue".split()  # noqa: SIM905
QUESTIONS = (
    "Which bridges are closed after the floods?",
    "How many people died in the train crash?",
    "Where can people give blood in Boston?",
    "typhoon damage in the Philippines",
    "What do witnesses say about the explosion?",
    "evacuation of Alberta towns",
    "terremoto en Guatemala v\u00edctimas",
    "Is the airport open again?",
)


def post(id: str, number: int, rng: random.Random) -> dict[str, Any]:
    """A post with a word of its own: a search for its text finds it first."""
    word = f"zq{uuid.uuid4().hex[:10]}"
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    text = f"{word} reports: {' '.join(rng.choices(WORDS, k=14))}."
    return {"id": f"bench:{id}", "text": text, "created_at": now, "author": {"id": f"a{number % 500}"}}


@contextmanager
def running_service(**settings: str) -> Iterator[Service]:
    """Ready, and with Ray connected to it."""
    with (
        tempfile.TemporaryDirectory(prefix="gsb") as folder,
        service(Path(folder) / "data", None, GROUNDSWELL_FEED__SOURCE="none", **settings) as running,
    ):
        running.wait_until_ready()
        ray.init(address=running.ray_address(), namespace="serve", log_to_driver=False)
        try:
            yield running
        finally:
            ray.shutdown()


async def produce(brokers: str, rate: float, seconds: float, sent: dict[str, tuple[float, str]]) -> None:
    rng, run = random.Random(7), uuid.uuid4().hex[:8]
    producer = AIOKafkaProducer(bootstrap_servers=brokers, linger_ms=0)
    await producer.start()
    try:
        started = time.perf_counter()
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, started + number / rate - time.perf_counter()))
            made = post(f"{run}:{number}", number, rng)
            sent[made["id"]] = (time.perf_counter(), made["text"])
            await producer.send(TOPIC, json.dumps(made).encode(), made["id"].encode())
    finally:
        await producer.stop()


async def probe(index: Any, sent: dict[str, tuple[float, str]], seconds: float) -> list[float]:
    """Takes the newest post, searches the index for its word until it is found, and again. Milliseconds."""
    ages: list[float] = []
    end = time.perf_counter() + seconds
    last = ""
    while time.perf_counter() < end:
        newest = next(reversed(sent), "")
        if newest == last:
            await asyncio.sleep(0.002)
            continue
        last = newest
        at, text = sent[newest]
        query = Query(text.split()[0], limit=5)
        while newest not in {match.post_id for match in await index.search.remote(query)}:
            if time.perf_counter() - at > 30:
                raise SystemExit(f"post {newest} was not found in 30 s")
            await asyncio.sleep(0.01)
        ages.append((time.perf_counter() - at) * 1000)
    return ages


async def freshness(running: Service, rate: float, seconds: float) -> list[float]:
    index = serve.get_deployment_handle("Index", "default")
    sent: dict[str, tuple[float, str]] = {}
    await produce(running.brokers, 20, 2, {})
    await asyncio.sleep(3)
    producing = asyncio.create_task(produce(running.brokers, rate, seconds + 2, sent))
    ages = await probe(index, sent, seconds)
    await producing
    return ages


def tweets(data: Path) -> list[str]:
    texts = []
    for name in ("t6", "t26"):
        with gzip.open(data / f"retrieval/crisislex/{name}.jsonl.gz", "rt") as lines:
            texts += [json.loads(line)["text"] for line in lines]
    random.Random(7).shuffle(texts)
    return texts


async def publish_backlog(brokers: str, texts: Sequence[str], count: int) -> None:
    """As fast as the broker takes it. Texts are used again when there are too few."""
    producer = AIOKafkaProducer(bootstrap_servers=brokers, linger_ms=20)
    await producer.start()
    try:
        started_s, rng = time.time(), random.Random(7)
        for number in range(count):
            author = rng.randrange(AUTHORS)
            created = time.gmtime(started_s - (count - number) * 0.1)
            made: dict[str, Any] = {
                "id": f"crisislex:{number}",
                "text": texts[number % len(texts)],
                "created_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", created),
                "author": {"id": str(author), "handle": f"user{author}", "name": f"User {author}"},
            }
            await producer.send(TOPIC, json.dumps(made).encode(), made["id"].encode())
    finally:
        await producer.stop()


async def searches(retriever: Any, until: asyncio.Event, found_ms: list[float]) -> None:
    for number in range(10**9):
        if until.is_set():
            return
        started = time.perf_counter()
        await retriever.search.remote(Ask(QUESTIONS[number % len(QUESTIONS)]))
        found_ms.append((time.perf_counter() - started) * 1000)
        await asyncio.sleep(max(0.0, QUERY_EVERY_S - found_ms[-1] / 1000))


async def drain(running: Service, texts: Sequence[str], count: int) -> tuple[float, list[float], list[float]]:
    """Posts/s from when all are on the topic, and milliseconds of searches meanwhile and afterwards."""
    ingester = serve.get_deployment_handle("Ingester", "default")
    retriever = serve.get_deployment_handle("Retriever", "default")
    ended, quiet = asyncio.Event(), asyncio.Event()
    beside: list[float] = []
    afterwards: list[float] = []
    await publish_backlog(running.brokers, texts, count)
    columns = (TextColumn("backlog"), BarColumn(), MofNCompleteColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("backlog", total=count)
        searching = asyncio.create_task(searches(retriever, ended, beside))
        started, before, done = time.perf_counter(), -1, 0
        while done < count:
            stats, _ = await ingester.stats.remote()
            done = stats.records - stats.records_in_flight
            before = done if before < 0 else before
            progress.update(bar, completed=done)
            await asyncio.sleep(0.2)
        per_s = (count - before) / (time.perf_counter() - started)
    ended.set()
    await searching
    asyncio.get_running_loop().call_later(min(30.0, count / 1000), quiet.set)
    await searches(retriever, quiet, afterwards)
    return per_s, beside, afterwards


def report_freshness(quick: bool) -> None:
    with running_service() as running:
        for rate in RATES:
            ages = asyncio.run(freshness(running, rate, 10.0 if quick else 60.0))
            say(f"{len(ages)} posts followed at {rate:.0f} posts/s")
            for name, value in (("p50", median(ages)), ("p99", percentile(ages, 0.99))):
                figure(f"freshness.{name}", value, "ms", rate=rate, runs=len(ages), quick=quick)


def report_drain(texts: Sequence[str], peers: Peers | None, quick: bool) -> None:
    count = QUICK_BACKLOG if quick else BACKLOG
    with running_service() as running:
        per_s, beside, afterwards = asyncio.run(drain(running, texts, count))
    for peer, theirs in peers.rates.items() if peers else [("", 0.0)]:
        about = {"peer": peer, "theirs": theirs} if peers else {}
        figure("ingest.posts_per_s", per_s, "posts/s", posts=count, **about, runs=1, quick=quick)
    for draining, found_ms in ((True, beside), (False, afterwards)):
        for name, value in (("p50", median(found_ms)), ("p99", percentile(found_ms, 0.99))):
            figure(f"ingest.query_ms.{name}", value, "ms", draining=draining, runs=len(found_ms), quick=quick)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer posts, shorter")
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder that holds retrieval/")
    parser.add_argument("--model", type=Path, default=Path.home() / ".local/share/groundswell/models/all-minilm-l6-v2")
    given = parser.parse_args()
    parts = given.only.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    say(hardware())
    if "freshness" in parts:
        report_freshness(given.quick)
    if not (given.data / "retrieval/crisislex").is_dir():
        say(f"{given.data}/retrieval/crisislex is absent: no drain and no peers")
        return
    texts = tweets(given.data)
    peers = measure_peers(given.model, texts, given.quick) if "peers" in parts else None
    if "drain" in parts:
        report_drain(texts, peers, given.quick)


if __name__ == "__main__":
    main()
