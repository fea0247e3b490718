"""Freshness: from the moment a post is handed to the producer to the first search that returns it.

Against the whole service (`serve run services.app`), at a steady rate, through the embedded broker, the screen, the
embedder and the index; the search is the Retriever's own.

    python -m bench.ingest [--quick] [--rate 20] [--seconds 60]
"""

import argparse
import asyncio
import json
import random
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import ray
from aiokafka import AIOKafkaProducer
from ray import serve

from bench.figures import figure, hardware, median, percentile, say
from tests.e2e.running import Service, service

WORDS = (
    "harbour",
    "bridge",
    "closed",
    "storm",
    "market",
    "tram",
    "river",
    "school",
    "council",
    "goal",
    "power",
    "queue",
)


def post(id: str, number: int, rng: random.Random) -> dict[str, Any]:
    """A post with a word of its own: a search for its text finds it first."""
    word = f"zq{uuid.uuid4().hex[:10]}"
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    text = f"{word} reports: {' '.join(rng.choices(WORDS, k=20))}."
    return {"id": f"bench:{id}", "text": text, "created_at": now, "author": {"id": f"a{number % 500}"}}


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
            await producer.send("posts", json.dumps(made).encode(), made["id"].encode())
    finally:
        await producer.stop()


async def probe(retriever: Any, sent: dict[str, tuple[float, str]], seconds: float) -> list[float]:
    """Takes the newest post, searches until it is found, and again. Milliseconds."""
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
        while newest not in {found.post_id for found in await retriever.search.remote(text, 5)}:
            if time.perf_counter() - at > 30:
                raise SystemExit(f"post {newest} was not found in 30 s")
        ages.append((time.perf_counter() - at) * 1000)
    return ages


async def measure(running: Service, rate: float, seconds: float) -> list[float]:
    retriever = serve.get_deployment_handle("Retriever", "default")
    sent: dict[str, tuple[float, str]] = {}
    await produce(running.brokers, 20, 2, {})
    await asyncio.sleep(3)
    producing = asyncio.create_task(produce(running.brokers, rate, seconds + 2, sent))
    ages = await probe(retriever, sent, seconds)
    await producing
    return ages


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rate", type=float, default=20)
    parser.add_argument("--seconds", type=float, default=60)
    given = parser.parse_args()
    seconds = 10.0 if given.quick else given.seconds
    with (
        tempfile.TemporaryDirectory(prefix="gsb") as folder,
        service(Path(folder) / "data", GROUNDSWELL_FEED__SOURCE="none") as running,
    ):
        running.wait_until_ready()
        ray.init(address=running.ray_address(), namespace="serve", log_to_driver=False)
        ages = asyncio.run(measure(running, given.rate, seconds))
        ray.shutdown()
    say(f"{len(ages)} posts followed on {hardware()}")
    for name, value in (("p50", median(ages)), ("p99", percentile(ages, 0.99))):
        figure(f"freshness.{name}", value, "ms", rate=given.rate, runs=len(ages), quick=given.quick)


if __name__ == "__main__":
    main()
