"""How the deployments are: readiness with reasons, and the few numbers that the page shows.

One look a second serves every reader, so that a crowd of page views costs the deployments nothing.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ray.exceptions import RayTaskError
from ray.serve.handle import DeploymentHandle

from ingest.sources.sample import stories
from services.http import ModelInfo
from services.remote import RemoteEngine, RemoteScreen, Unavailable, call
from services.settings import Settings

if TYPE_CHECKING:
    from ingest.archiver import ArchiverStats
    from ingest.index import PostIndex, Summary
    from ingest.ingest_stats import IngestStats
    from ingest.sources.arrival import SourceStats
    from model_runtime.group import ModelCard

logger = logging.getLogger(__name__)
Handle = DeploymentHandle[Any]
LOOK_EVERY_S = 1.0
LOOK_TIMEOUT_S = 5.0
INGEST_PARTS = ("screen", "embedder", "index", "dead letters")  # as IngestStats.reason names them
MAX_LAG_RECORDS = 200  # more than this behind the topic: answers would miss what was posted just now


class Pulse:
    """`watch` looks for ever; everything else tells what was seen last."""

    def __init__(
        self,
        safety: Handle,
        index: "PostIndex",
        retriever: Handle,
        publisher: Handle,
        ingester: Handle,
        engine: RemoteEngine,
        suggestions: tuple[str, ...],
    ) -> None:
        self._screen, self._engine = RemoteScreen(safety, LOOK_TIMEOUT_S), engine
        self._index, self._retriever, self._publisher, self._ingester = index, retriever, publisher, ingester
        self._suggestions = suggestions
        self._reasons = ["the deployments are starting"]
        self._summary: Summary | None = None
        self._stats: IngestStats | None = None
        self._archive: ArchiverStats | None = None
        self._source: SourceStats | None = None
        self._card: ModelCard | None = None
        self._running = 0
        self._since_s = int(time.time())

    async def watch(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(LOOK_EVERY_S)

    async def _look(self) -> None:
        verdict, summary, vectors, stats, source, streams = await asyncio.gather(
            self._screen.check("ok", "question"),
            _seen(self._index.summary()),
            _seen(call("Retriever", self._retriever.present.remote([]), LOOK_TIMEOUT_S)),
            _seen(call("Ingester", self._ingester.stats.remote(), LOOK_TIMEOUT_S)),
            _seen(call("Publisher", self._publisher.stats.remote(), LOOK_TIMEOUT_S)),
            _seen(self._engine.streams(LOOK_TIMEOUT_S)),
        )
        reasons = [] if verdict.text == "ok" else ["the safety filter does not answer"]
        parts = {"index": summary, "retriever": vectors, "feed": stats, "model": streams}
        reasons += [
            f"the {part} does not answer ({seen})" for part, seen in parts.items() if isinstance(seen, Unavailable)
        ]
        if not isinstance(summary, Unavailable):
            self._summary = summary
        if not isinstance(stats, Unavailable):
            self._stats, self._archive = stats
            reasons += _feed_reasons(self._stats)
        if not isinstance(source, Unavailable):
            self._source = source
        if not isinstance(streams, Unavailable):
            self._running = streams
            if self._card is None:
                card = await _seen(self._engine.card())
                self._card = None if isinstance(card, Unavailable) else card
        self._reasons = reasons

    async def ready(self) -> list[str]:
        """Why not ready, one reason a part; [] when ready."""
        return self._reasons

    async def models(self) -> list[ModelInfo]:
        if self._card is None:
            return []
        card = self._card
        details = {
            "checkpoint": card.name,
            "experts": card.num_experts,
            "active_experts": card.active_experts,
            "shards": card.shards,
            "dtype": card.dtype,
        }
        return [ModelInfo("groundswell", self._since_s, "groundswell", card.context_tokens, details)]

    async def status(self) -> dict[str, Any]:
        """The numbers of the status line. Ages in milliseconds; None: nothing yet."""
        return {
            "posts": self.live_posts(),
            "newest_age_ms": self._newest_age_ms(),
            "lag": self._stats.lag_records if self._stats else None,
            "running": self._running,
            "suggestions": self._suggestions,
        }

    async def feed(self) -> dict[str, Any]:
        """Everything that is known of the feed and the index, by the names of IngestStats, Summary, SourceStats
        and ArchiverStats."""
        return {
            "object": "feed",
            "newest_age_ms": self._newest_age_ms(),
            "ingest": None if self._stats is None else asdict(self._stats),
            "index": None if self._summary is None else asdict(self._summary),
            "source": None if self._source is None else asdict(self._source),
            "archive": None if self._archive is None else asdict(self._archive),
        }

    def _newest_age_ms(self) -> int | None:
        newest_ms = None if self._summary is None else self._summary.newest_ms
        return None if newest_ms is None else max(0, time.time_ns() // 1_000_000 - newest_ms)

    def live_posts(self) -> int:
        return 0 if self._summary is None else self._summary.posts


def suggestions(settings: Settings) -> tuple[str, ...]:
    """Questions worth asking the feed that is published here; in English, which the default model speaks."""
    if settings.source != "sample":
        return ()
    return tuple(story.questions[0].ask for story in stories() if story.questions[0].lang == "en")


def _feed_reasons(stats: "IngestStats") -> list[str]:
    if not stats.healthy:
        part = stats.reason.partition(":")[0]
        return [f"ingest waits for the {part}" if part in INGEST_PARTS else "the feed is not connected"]
    if stats.lag_records > MAX_LAG_RECORDS:
        return [f"the feed is {stats.lag_records} records behind"]
    return []


async def _seen(answer: Awaitable[Any]) -> Any:
    """What a part raised on purpose (a checkpoint it cannot read, ...) is no fault of the gateway's: a reason too."""
    try:
        return await answer
    except Unavailable as error:
        return error
    except RayTaskError as error:
        logger.error("a part does not work: %s", type(error.cause).__name__)
        return Unavailable(type(error.cause).__name__)
