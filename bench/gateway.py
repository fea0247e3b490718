"""What a user waits for over HTTP, and what the gateway and the Serve hops add to it.

The same chat runs twice in one run: through HTTP, the gateway and every deployment; and as plain objects in this
process on a worker group of its own ("direct"). Both answer the same question from the same five posts. An answer is
screened sentence by sentence, so its first text comes after its first sentence; to compare equal work, fixed lengths
are asked for: the time of 8 and of 24 tokens gives the time per token and the rest before the first.

    python -m bench.gateway [--quick]
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import ray

from bench.figures import figure, hardware, median, say
from ingest.ask import Ask
from ingest.embed import Embedder
from ingest.embed_queue import EmbedQueue
from ingest.index_embedded import EmbeddedIndex
from ingest.post import Author, Passage, Post
from ingest.retrieve import Found, Retrieval
from model_runtime.group import WorkerGroup
from model_runtime.settings import ModelSettings
from safety.bias import Bias
from safety.content import Content
from safety.pii import Pii
from safety.screen import Screen
from safety.verdict import Surface, Verdict
from services.chat import Chat, now_ms
from services.events import ChatRequest, Delta, Done, Message
from tests.e2e.running import Service, eventually, service

QUESTION = "What is known about the Quillfeather aqueduct? Tell me everything about it, in many long sentences."
SHORT, LONG = 8, 24  # the small model seldom writes more
TEXTS = (
    "The Quillfeather aqueduct was closed at noon because a crack was found in its third arch, the council says.",
    "Engineers at the Quillfeather aqueduct expect the repair of the crack to take four days and want no visitors.",
    "Buses on line 7 go round the Quillfeather aqueduct by Mill Road and need eleven minutes more than usual today.",
    "The Quillfeather aqueduct was built in 1874 and carries water to about nine thousand homes in Marrowdale.",
    "Water pressure is low in the streets below the Quillfeather aqueduct; tankers stand at the school and the church.",
)


class PlainScreen:
    def __init__(self) -> None:
        self._screen = Screen([Pii(), Content(), Bias()])

    async def check(self, text: str, surface: Surface) -> Verdict:
        return self._screen.check(text, surface)

    async def check_many(self, texts: Sequence[str], surface: Surface) -> list[Verdict]:
        return self._screen.check_many(texts, surface)


class PlainRetriever:
    def __init__(self, embedder_dir: Path, index_dir: Path) -> None:
        self.embedder = Embedder(embedder_dir)
        self.queue = EmbedQueue(self.embedder)
        self.index = EmbeddedIndex(index_dir)
        self.retrieval = Retrieval(self.queue, self.index, window_h=72)

    async def add(self, posts: Sequence[Post]) -> None:
        vectors = self.embedder.embed([post.text for post in posts])
        made = [Passage(post, 0, post.text, tuple(row.tolist())) for post, row in zip(posts, vectors, strict=True)]
        await self.index.apply(made, [])

    async def search(self, ask: Ask) -> Found:
        return await self.retrieval.search(ask, now_ms())

    async def embed_now(self, texts: Sequence[str]) -> Any:
        return await self.queue.embed(texts, urgent=True)

    async def present(self, post_ids: Sequence[str]) -> set[str]:
        return await self.index.present(post_ids)


class PlainEngine:
    def __init__(self, group: WorkerGroup) -> None:
        self.group = group

    async def card(self) -> Any:
        return self.group.card()

    def generate(self, request: Any) -> AsyncIterator[Any]:
        return self.group.generate(request)


async def ask_direct(chat: Chat, number: int, max_tokens: int) -> tuple[float, float, int]:
    """(ms to the first text, ms in all, tokens)"""
    started, first = time.perf_counter(), 0.0
    request = ChatRequest(f"bench-{number}", (Message("user", QUESTION),), max_tokens=max_tokens)
    tokens = 0
    async for event in chat.stream(request):
        if isinstance(event, Delta) and not first:
            first = time.perf_counter() - started
        if isinstance(event, Done):
            tokens = event.completion_tokens
    return first * 1000, (time.perf_counter() - started) * 1000, tokens


async def ask_served(client: httpx.AsyncClient, number: int, max_tokens: int) -> tuple[float, float, int]:
    started, first, tokens = time.perf_counter(), 0.0, 0
    messages = [{"role": "user", "content": QUESTION}]
    body: dict[str, Any] = {"model": "groundswell", "stream": True, "max_tokens": max_tokens, "messages": messages}
    body["stream_options"] = {"include_usage": True}
    async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line[6:])
            if chunk["choices"] and chunk["choices"][0]["delta"].get("content") and not first:
                first = time.perf_counter() - started
            if chunk.get("usage"):
                tokens = chunk["usage"]["completion_tokens"]
    return first * 1000, (time.perf_counter() - started) * 1000, tokens


async def rounds(ask: Any, streams: int, runs: int, max_tokens: int) -> list[tuple[float, float, int]]:
    seen: list[tuple[float, float, int]] = []
    for run in range(runs):
        seen += await asyncio.gather(*(ask(run * streams + number, max_tokens) for number in range(streams)))
    return [one for one in seen if one[2] == max_tokens]


def split_times(short: list[tuple[float, float, int]], long: list[tuple[float, float, int]]) -> tuple[float, float]:
    """(ms before the first token, ms per token) from the medians of both lengths."""
    assert short and long, "no answer was as long as it was asked to be"
    at_short, at_long = median([one[1] for one in short]), median([one[1] for one in long])
    per_token = (at_long - at_short) / (LONG - SHORT)
    return at_short - SHORT * per_token, per_token


async def measure(running: Service, chat: Chat, runs: int, quick: bool) -> None:
    async with httpx.AsyncClient(base_url=running.url, timeout=300, trust_env=False) as client:

        async def served(number: int, max_tokens: int) -> tuple[float, float, int]:
            return await ask_served(client, number, max_tokens)

        async def direct(number: int, max_tokens: int) -> tuple[float, float, int]:
            return await ask_direct(chat, number, max_tokens)

        for ask in (served, direct):
            await rounds(ask, 1, 2, SHORT)
        for streams in (1, 4):
            times: dict[str, list[list[tuple[float, float, int]]]] = {"served": [[], []], "direct": [[], []]}
            for run in range(runs):
                say(f"{streams} streams, run {run + 1} of {runs}")
                for place, length in enumerate((SHORT, LONG)):
                    times["served"][place] += await rounds(served, streams, 1, length)
                    times["direct"][place] += await rounds(direct, streams, 1, length)
            (ttft, tpot), (plain_ttft, plain_tpot) = (split_times(*times[name]) for name in ("served", "direct"))
            first = median([one[0] for one in times["served"][1]])
            more: dict[str, Any] = {"streams": streams, "runs": runs, "quick": quick, "hardware": hardware()}
            figure("http.first_text", first, "ms", **more)
            figure("http.ttft", ttft, "ms", peer="the same chat, direct", theirs=plain_ttft, **more)
            figure("http.tpot", tpot, "ms", peer="the same chat, direct", theirs=plain_tpot, **more)
            figure("gateway.added_ttft", ttft - plain_ttft, "ms", **more)
            figure("gateway.added_tpot", tpot - plain_tpot, "ms", **more)


async def direct_chat(data_dir: Path, index_dir: Path) -> tuple[Chat, WorkerGroup]:
    group = WorkerGroup(ModelSettings(), data_dir / "models/smollm2-135m-instruct.gguf")
    await group.start()
    retriever = PlainRetriever(data_dir / "models/all-minilm-l6-v2", index_dir)
    at_ms = now_ms()
    posts = [
        Post(f"bench:{n}", "bench", at_ms * 1000, text, at_ms, at_ms, Author(f"a{n}", f"a{n}.example"))
        for n, text in enumerate(TEXTS)
    ]
    await retriever.add(posts)
    return Chat(PlainScreen(), retriever, PlainEngine(group), lambda: len(posts)), group


async def run(running: Service, folder: Path, runs: int, quick: bool) -> None:
    chat, group = await direct_chat(running.data_dir, folder / "direct")
    try:
        await measure(running, chat, runs, quick)
    finally:
        await group.stop()


def main() -> None:
    from tests.e2e.test_spine import publish, topic_object

    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick: bool = parser.parse_args().quick
    with (
        tempfile.TemporaryDirectory(prefix="gsb") as folder,
        service(Path(folder) / "data", GROUNDSWELL_FEED__SOURCE="none") as running,
    ):
        running.wait_until_ready()
        publish(running, *(topic_object(f"bench:{n}", text, f"a{n}") for n, text in enumerate(TEXTS)))
        eventually(lambda: running.status()["posts"] >= len(TEXTS), 30, "the posts are indexed")
        ray.init(address=running.ray_address(), log_to_driver=False)
        try:
            asyncio.run(run(running, Path(folder), 2 if quick else 8, quick))
        finally:
            ray.shutdown()  # before the cluster that it has joined ends


if __name__ == "__main__":
    main()
