"""Thin shells over the plain objects: construct, forward, and raise in check_health when what they hold has died.

Heavy imports happen in the constructors, inside the replica that needs them. Serve calls a constructor on the replica's
event loop, so tasks may start there.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

from ray.serve.handle import DeploymentHandle

from ingest.post import Match, Passage, Removal
from model_runtime.request import Finished, GenerationRequest, Token
from safety.verdict import Surface, Verdict
from services.remote import RemoteEngine, RemoteIndex, RemoteRetriever, RemoteScreen
from services.settings import Settings

if TYPE_CHECKING:
    import numpy as np
    from starlette.types import ASGIApp

    from ingest.index import ApplyReport, Query
    from ingest.loop import IngestStats
    from model_runtime.card import ModelCard
    from model_runtime.group import WorkerGroup
    from model_runtime.upstream import UpstreamEngine

Handle = DeploymentHandle[Any]
EXPIRE_EVERY_S = 60.0
T = TypeVar("T")


def _log_with_serve() -> None:
    """Our loggers write where Serve's does: Serve configures no other, and Python drops what has no handler."""
    serve_logger = logging.getLogger("ray.serve")
    for package in ("services", "ingest", "safety", "model_runtime"):
        ours = logging.getLogger(package)
        ours.handlers, ours.propagate = serve_logger.handlers, False
        ours.setLevel(serve_logger.level)


class SafetyFilter:
    def __init__(self) -> None:
        _log_with_serve()
        from safety.bias import Bias
        from safety.content import Content
        from safety.pii import Pii
        from safety.screen import Screen

        self.screen = Screen([Pii(), Content(), Bias()])

    async def check_many(self, texts: Sequence[str], surface: Surface) -> list[Verdict]:
        return await asyncio.to_thread(self.screen.check_many, texts, surface)


class Index:
    """The one owner of the embedded index. Edge holds the GIL in every call: one thread, one call at a time."""

    def __init__(self, settings: Settings) -> None:
        _log_with_serve()
        from ingest.index_edge import EdgeIndex

        self.thread = ThreadPoolExecutor(1, "index")
        self.index = EdgeIndex(settings.index_dir)
        self.window_ms = int(settings.index.window_h * 3_600_000)
        self.expiring = asyncio.get_running_loop().create_task(self._expire())

    async def apply(self, passages: Sequence[Passage], removals: Sequence[Removal]) -> "ApplyReport":
        """Slice by slice, so that a search waits for one slice and not for the batch."""
        from ingest.index import ApplyReport, slices

        report = ApplyReport()
        for some_passages, some_removals in slices(passages, removals):
            report += await self._run(self.index.apply, some_passages, some_removals)
        return report

    async def search(self, query: "Query") -> list[Match]:
        return await self._run(self.index.search, query)

    async def present(self, post_ids: Sequence[str]) -> set[str]:
        return await self._run(self.index.present, post_ids)

    async def summary(self) -> dict[str, int | None]:
        """{"posts": live posts, "newest_ms": sort time of the newest}."""
        return await self._run(lambda: {"posts": self.index.count(), "newest_ms": self.index.newest_ms()})

    async def check_health(self) -> None:
        if self.expiring.done():
            await self.expiring

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_EVERY_S)
            await self._run(self.index.expire, time.time_ns() // 1_000_000 - self.window_ms)

    async def _run(self, call: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.thread, call, *arguments)

    def __del__(self) -> None:
        if hasattr(self, "index"):
            self.thread.submit(self.index.close).result()
            self.thread.shutdown()


class Retriever:
    """Questions go before ingest: both share the embedder's one thread."""

    def __init__(self, settings: Settings, index: Handle) -> None:
        _log_with_serve()
        from ingest.embed import Embedder, EmbedQueue
        from ingest.retrieve import Retrieval

        self.embedder = EmbedQueue(Embedder(settings.embedder_dir))
        self.index = RemoteIndex(index)
        self.retrieval = Retrieval(self.embedder, self.index)
        self.window_h = settings.index.window_h

    async def search(self, question: str, limit: int) -> list[Match]:
        now_ms = time.time_ns() // 1_000_000
        return await self.retrieval.search(question, limit=limit, now_ms=now_ms, window_h=self.window_h)

    async def embed(self, texts: Sequence[str], urgent: bool) -> "np.ndarray":
        return await self.embedder.embed(texts, urgent=urgent)

    async def present(self, post_ids: Sequence[str]) -> set[str]:
        return await self.index.present(post_ids)


class Publisher:
    """The embedded broker, when no other is configured, and the feed that the service itself publishes."""

    def __init__(self, settings: Settings) -> None:
        _log_with_serve()
        from services.supply import Supply

        self.supply = Supply(settings)
        self.task = asyncio.get_running_loop().create_task(self.supply.run())

    async def check_health(self) -> None:
        """The broker's death takes the topic with it: a new replica starts another and seeds it again."""
        if self.task.done():
            await self.task

    async def __del__(self) -> None:
        await self.supply.close()


class Ingester:
    def __init__(self, settings: Settings, safety: Handle, retriever: Handle, index: Handle) -> None:
        _log_with_serve()
        from ingest.feed import KafkaFeed
        from ingest.loop import IngestLoop

        # Kafka refuses sessions under 6 s; the embedded broker makes the first member wait for half of one.
        patience = {"session_timeout_s": 2.0, "stall_s": 5.0} if settings.has_embedded_broker else {}
        feed = KafkaFeed(settings.brokers, settings.feed.topic, settings.feed.group, **patience)
        self.loop = IngestLoop(feed, RemoteScreen(safety), RemoteRetriever(retriever), RemoteIndex(index))
        self.task = asyncio.get_running_loop().create_task(self.loop.run())

    async def stats(self) -> "IngestStats":
        return self.loop.stats()

    async def check_health(self) -> None:
        if self.task.done():
            await self.task

    async def __del__(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Generator:
    """Tokens by a group of shard actors, to whom the GPUs belong and not to this replica, or by another server."""

    def __init__(self, settings: Settings) -> None:
        _log_with_serve()
        self.engine = engine_for(settings)
        self.started = asyncio.get_running_loop().create_task(self.engine.start())

    async def generate(self, request: GenerationRequest) -> AsyncIterator[list[Token | Finished]]:
        await self.started
        async with aclosing(self.engine.generate(request)) as batches:
            async for batch in batches:
                yield batch

    async def card(self) -> "ModelCard":
        await self.started
        return self.engine.card()

    async def streams(self) -> int:
        await self.started
        return self.engine.streams

    async def check_health(self) -> None:
        if self.started.done():
            await self.started
            self.engine.check()

    async def __del__(self) -> None:
        self.started.cancel()
        await self.engine.stop()


def engine_for(settings: Settings) -> "WorkerGroup | UpstreamEngine":
    """Raises ValueError for an upstream's URL or key file that cannot be used."""
    if settings.model.upstream_url:
        from model_runtime.upstream import UpstreamEngine

        return UpstreamEngine(settings.model)
    from model_runtime.group import WorkerGroup

    return WorkerGroup(settings.model, settings.model_file)


class Gateway:
    """The ingress: everything that comes by HTTP."""

    def __init__(
        self,
        settings: Settings,
        safety: Handle,
        index: Handle,
        retriever: Handle,
        publisher: Handle,
        ingester: Handle,
        generator: Handle,
    ) -> None:
        _log_with_serve()
        from services.accounts import ApiKeys
        from services.chat import Chat
        from services.pulse import Pulse, suggestions

        engine = RemoteEngine(generator)
        # The publisher is bound only to be deployed: Serve starts what the ingress reaches.
        self.pulse = Pulse(safety, index, retriever, ingester, engine, suggestions(settings))
        self.watching = asyncio.get_running_loop().create_task(self.pulse.watch())
        self.keys = ApiKeys.from_file(settings.gateway.api_keys_file)
        self.chat = Chat(RemoteScreen(safety), RemoteRetriever(retriever), engine, self.pulse.live_posts)

    def __serve_build_asgi_app__(self) -> "ASGIApp":
        from services.http import build_app

        # Serve's proxy writes the x-request-id header itself.
        return build_app(self.chat, self.pulse, self.keys, writes_request_id=False)

    async def check_health(self) -> None:
        if self.watching.done():
            await self.watching
