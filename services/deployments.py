"""Thin shells over the plain objects: construct, forward, and raise in check_health when what they hold has died.

Heavy imports happen in the constructors, inside the replica that needs them. Serve calls a constructor on the replica's
event loop, so tasks may start there.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from ray.serve.handle import DeploymentHandle

from ingest.post import AccountChange, Match, Passage, Receipt, Removal
from model_runtime.request import Finished, GenerationRequest, Token
from safety.verdict import Surface, Verdict
from services.remote import RemoteEngine, RemoteIndex, RemoteRetriever, RemoteScreen
from services.settings import Settings

if TYPE_CHECKING:
    import numpy as np
    from starlette.types import ASGIApp

    from ingest.archiver import Archiver, ArchiverStats
    from ingest.ask import Ask
    from ingest.feed import KafkaFeed
    from ingest.index import ApplyReport, Copy, PostIndex, Query, Summary
    from ingest.ingest_stats import IngestStats
    from ingest.rerank import Reranker
    from ingest.retrieve import Found
    from ingest.sources.arrival import SourceStats
    from model_runtime.card import ModelCard
    from model_runtime.group import WorkerGroup
    from model_runtime.upstream import UpstreamEngine

Handle = DeploymentHandle[Any]
logger = logging.getLogger(__name__)
MAINTAIN_EVERY_S = 60.0


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
    """The index, or the shard of that number. The embedded one has one owner: never more than one replica each."""

    def __init__(self, settings: Settings, shard: int = 0) -> None:
        _log_with_serve()
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[PostIndex] = loop.create_future()
        if settings.index.url:
            self.opened = loop.create_task(connected_index(settings))
        else:  # at once: a folder that cannot be used ends the start with its reason
            self.opened.set_result(embedded_index(settings, shard))
        self.maintaining = loop.create_task(self._maintain())

    async def apply(
        self, passages: Sequence[Passage], removals: Sequence[Removal], accounts: Sequence[AccountChange] = ()
    ) -> "ApplyReport":
        return await (await self.opened).apply(passages, removals, accounts)

    async def search(self, query: "Query") -> list[Match]:
        return await (await self.opened).search(query)

    async def fetch(self, post_ids: Sequence[str]) -> dict[str, Match]:
        return await (await self.opened).fetch(post_ids)

    async def present(self, post_ids: Sequence[str]) -> set[str]:
        return await (await self.opened).present(post_ids)

    async def copies(self, matches: Sequence[Match], limit: int) -> "dict[str, list[Copy]]":
        return await (await self.opened).copies(matches, limit)

    async def receipt(self, post_id: str) -> Receipt | None:
        return await (await self.opened).receipt(post_id)

    async def summary(self) -> "Summary":
        return await (await self.opened).summary()

    async def check_health(self) -> None:
        for task in (self.opened, self.maintaining):
            if task.done():
                await task

    async def _maintain(self) -> None:
        """What a full disk or a server that is away has stopped is tried again: a restart would only stop searches."""
        index = await self.opened
        while True:
            await asyncio.sleep(MAINTAIN_EVERY_S)
            try:
                await index.maintain(time.time_ns() // 1_000_000)
            except OSError as error:
                logger.error("the index was not maintained: %s", type(error).__name__)

    async def __del__(self) -> None:
        if not hasattr(self, "maintaining"):  # the folder could not be opened
            return
        self.maintaining.cancel()
        await asyncio.gather(self.maintaining, return_exceptions=True)
        if self.opened.done() and not self.opened.cancelled() and self.opened.exception() is None:
            await self.opened.result().close()


async def connected_index(settings: Settings) -> "PostIndex":
    """Raises IndexUnavailable."""
    from ingest.index_server import connect

    given = settings.index
    return await connect(
        given.url,
        api_key=settings.secret(given.api_key_file),
        collection=given.collection,
        shards=given.shards,
        replicas=given.replicas,
        window_h=given.window_h,
        max_posts=given.max_posts,
        warm_days=given.warm_days,
    )


def embedded_index(settings: Settings, shard: int) -> "PostIndex":
    """Blocks for about a second when the folder holds much. Raises IndexUnusable."""
    from ingest.index_embedded import EmbeddedIndex

    given = settings.index
    path = settings.index_dir if given.shards == 1 else settings.index_dir / f"shard-{shard}"
    return EmbeddedIndex(
        path,
        window_h=given.window_h,
        max_posts=given.max_posts // given.shards,
        warm_days=given.warm_days,
        shard=shard,
        shards=given.shards,
    )


class Retriever:
    """Questions go before ingest: both share the embedder's one thread."""

    def __init__(self, settings: Settings, indexes: Sequence[Handle]) -> None:
        _log_with_serve()
        from ingest.embed import Embedder
        from ingest.embed_queue import EmbedQueue
        from ingest.retrieve import Retrieval, warm_up

        self.embedder = EmbedQueue(Embedder(settings.embedder_dir))
        self.index = remote_index(indexes)
        self.retrieval = Retrieval(
            self.embedder,
            self.index,
            window_h=settings.index.window_h,
            time_zone=settings.index.time_zone,
            reranker=reranker_for(settings),
        )

        warm_up()

    async def search(self, ask: "Ask") -> "Found":
        return await self.retrieval.search(ask, time.time_ns() // 1_000_000)

    async def embed(self, texts: Sequence[str], urgent: bool) -> "np.ndarray":
        return await self.embedder.embed(texts, urgent=urgent)

    async def present(self, post_ids: Sequence[str]) -> set[str]:
        return await self.index.present(post_ids)


def reranker_for(settings: Settings) -> "Reranker | None":
    if settings.index.reranker is None:
        return None
    from ingest.rerank import Reranker

    return Reranker(settings.index.reranker)


def remote_index(indexes: Sequence[Handle]) -> "PostIndex":
    """The whole index behind the handles of its shards."""
    if len(indexes) == 1:
        return RemoteIndex(indexes[0])
    from ingest.index_shards import ShardedIndex

    return ShardedIndex([RemoteIndex(index) for index in indexes])


class Publisher:
    """The embedded broker, when no other is configured, and the feed that the service itself publishes."""

    def __init__(self, settings: Settings) -> None:
        _log_with_serve()
        from services.supply import Supply

        self.supply = Supply(settings)
        self.task = asyncio.get_running_loop().create_task(self.supply.run())

    async def stats(self) -> "SourceStats | None":
        return self.supply.stats()

    async def look_up(self, question: str) -> list[str]:
        """Asks the network itself, where that is set up, and publishes what it gives. The ids of the posts."""
        return await self.supply.look_up(question)

    async def check_health(self) -> None:
        """The broker's death takes the topic with it: a new replica starts another and seeds it again."""
        if self.task.done():
            await self.task

    async def __del__(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.supply.close()


class Ingester:
    """A member of the consumer group; where posts are archived, of the archive's group, too."""

    def __init__(self, settings: Settings, safety: Handle, retriever: Handle, indexes: Sequence[Handle]) -> None:
        _log_with_serve()
        from ingest.feed import KafkaFeed
        from ingest.language import Languages
        from ingest.loop import IngestLoop

        # Kafka refuses sessions under 6 s; the embedded broker makes the first member wait for half of one.
        patience = {"session_timeout_s": 2.0, "stall_s": 5.0} if settings.has_embedded_broker else {}
        feed = KafkaFeed(settings.brokers, settings.feed.topic, settings.feed.group, **patience)
        screen, embedder = RemoteScreen(safety), RemoteRetriever(retriever)
        self.loop = IngestLoop(feed, screen, embedder, remote_index(indexes), Languages())
        self.tasks = [asyncio.get_running_loop().create_task(self.loop.run())]
        self.archiver: Archiver | None = None
        if settings.archive.url:
            feed = KafkaFeed(settings.brokers, settings.feed.topic, f"{settings.feed.group}-archive", **patience)
            archiving = self._archive(settings.archive.url, settings.archive.flush_s, feed, screen)
            self.tasks.append(asyncio.get_running_loop().create_task(archiving))

    async def _archive(self, url: str, flush_s: float, feed: "KafkaFeed", screen: RemoteScreen) -> None:
        from ingest.archive import Archive
        from ingest.archive_store import ArchiveUnusable
        from ingest.archiver import Archiver

        pause_s = 1.0
        while self.archiver is None:
            try:
                self.archiver = Archiver(feed, screen, await asyncio.to_thread(Archive, url), flush_s)
            except (ArchiveUnusable, OSError, ValueError, ImportError) as error:  # ingest goes on without it
                logger.error("the archive cannot be opened: %s", error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, 60.0)
        await self.archiver.run()

    async def stats(self) -> "tuple[IngestStats, ArchiverStats | None]":
        return self.loop.stats(), None if self.archiver is None else self.archiver.stats()

    async def check_health(self) -> None:
        self.loop.check()
        if self.archiver is not None:
            self.archiver.check()
        for task in self.tasks:
            if task.done():
                await task

    async def __del__(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


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
        indexes: Sequence[Handle],
        retriever: Handle,
        publisher: Handle,
        ingester: Handle,
        generator: Handle,
    ) -> None:
        _log_with_serve()
        from services.accounts import ApiKeys
        from services.chat import Chat
        from services.pulse import Pulse, suggestions
        from services.search import Search

        engine, screen, index = RemoteEngine(generator), RemoteScreen(safety), remote_index(indexes)
        self.pulse = Pulse(safety, index, retriever, publisher, ingester, engine, suggestions(settings))
        self.watching = asyncio.get_running_loop().create_task(self.pulse.watch())
        self.keys = ApiKeys.from_file(settings.gateway.api_keys_file)
        fresh = RemoteRetriever(retriever, publisher if settings.x.search else None)
        self.chat = Chat(screen, fresh, engine, self.pulse.live_posts)
        self.search = Search(screen, fresh, index)

    def __serve_build_asgi_app__(self) -> "ASGIApp":
        from services.http import build_app

        # Serve's proxy writes the x-request-id header itself.
        return build_app(self.chat, self.search, self.pulse, self.keys, writes_request_id=False)

    async def check_health(self) -> None:
        if self.watching.done():
            await self.watching
