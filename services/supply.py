"""What the service itself publishes: the embedded broker, the sample feed or a network's, when they are wanted."""

import asyncio
import json
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

from ingest.broker import BrokerFailed, EmbeddedBroker
from ingest.cursor import CursorFile
from ingest.payload import Refused
from ingest.post import AccountChange, Malformed, Post, Removal
from ingest.publish import BrokerUnreachable, Publisher
from ingest.sources.arrival import Arrival, Source, SourceEnded, SourceStats
from ingest.sources.jsonl import read_events
from ingest.sources.replay import replay
from ingest.sources.sample import NOW, sample_records
from ingest.transfer import transfer
from services.settings import Settings
from services.sources import source_for, x_search_for

if TYPE_CHECKING:
    from ingest.sources.x_search import XSearch

logger = logging.getLogger(__name__)
RETRY_S = 5.0
LOOK_UP_POSTS = 20
LOOK_AGAIN_EVERY_S = 60.0


class Supply:
    """The broker's memory is the topic: when the broker dies, `run` raises, and a new Supply seeds a new one."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        log_path = settings.data_dir / "logs" / "broker.log"
        log_path.parent.mkdir(parents=True, exist_ok=True)
        self._broker: EmbeddedBroker | None = None
        self._source: Source | None = None
        self._x_search: XSearch | None = None
        if settings.has_embedded_broker:
            self._broker = EmbeddedBroker(settings.broker_binary, settings.feed.broker_port, log_path)

    async def run(self) -> None:
        """Never returns. Raises an ExceptionGroup when the embedded broker cannot start or has died, or publishing has
        failed for another reason than a broker that does not answer."""
        async with asyncio.TaskGroup() as parts:
            if self._broker is not None:
                await self._broker.start()
                parts.create_task(self._watch(self._broker))
            parts.create_task(self._publish())
            if self._settings.x.search and self._settings.source != "x":
                parts.create_task(self._look_again())

    @staticmethod
    async def _watch(broker: EmbeddedBroker) -> None:
        raise BrokerFailed(f"the broker ended with status {await broker.wait()}")

    async def close(self) -> None:
        if self._x_search is not None:
            await self._x_search.close()
        if self._broker is not None:
            await self._broker.stop()

    def stats(self) -> SourceStats | None:
        """Of the network that is published; None for the sample feed and for none."""
        return None if self._source is None else self._source.stats

    async def look_up(self, question: str) -> list[str]:
        """Asks X's search, where that is set up, and publishes what it finds. The ids of the posts; [] for none."""
        if not self._settings.x.search:
            return []
        records = await self._publish_all(await self._asked(lambda search: search.search(question, LOOK_UP_POSTS)))
        return [record.id for record in records or () if isinstance(record, Post) and record.text]

    async def _look_again(self) -> None:
        """Without X's stream nobody tells that a post which was looked up has been removed."""
        arrival: Arrival | None = None
        while True:
            await asyncio.sleep(LOOK_AGAIN_EVERY_S)
            if arrival is None:  # to ask again says that all of the last was published (x_recheck.py)
                arrival = await self._asked(lambda search: search.look_again())
            if await self._publish_all(arrival) is not None:
                arrival = None

    async def _asked(self, ask: "Callable[[XSearch], Awaitable[Arrival | None]]") -> Arrival | None:
        """None, too, when its files cannot be used: then nothing is asked, and the broker must not end for it."""
        try:
            if self._x_search is None:
                self._x_search = x_search_for(self._settings)
            return await ask(self._x_search)
        except sqlite3.Error as error:
            logger.error("X is not asked, its files cannot be used: %s", type(error).__name__)
            return None

    async def _publish_all(self, arrival: Arrival | None) -> list[Post | Removal | AccountChange] | None:
        """What was published; None when the broker cannot be reached."""
        given = () if arrival is None else arrival.records
        records = [record for record in given if not isinstance(record, Malformed)]
        if not records:
            return []
        published = []
        try:
            async with Publisher(self._settings.brokers, self._settings.feed.topic) as publisher:
                for record in records:
                    try:
                        published.append(await publisher.publish(record))
                    except Refused as refused:
                        logger.warning("a post that was looked up is none for the topic: %s", refused.reason)
        except BrokerUnreachable as error:
            logger.warning("what was looked up could not be published: %s", error)
            return None
        return published

    async def _publish(self) -> None:
        source = self._settings.source
        if source == "none":
            return await _for_ever()
        if source == "sample":
            return await self._publish_sample()
        self._source = source_for(source, self._settings)
        cursors = CursorFile(self._settings.cursors_dir / source)
        try:
            await transfer(self._source, self._settings.brokers, self._settings.feed.topic, cursors)
        except SourceEnded as error:  # nothing that a new try would mend: what was published stays searchable
            logger.error("the source has ended: %s", error)
            self._source.stats.fault = error.reason
            await _for_ever()

    async def _publish_sample(self) -> None:
        feed = self._settings.feed
        turn = 0
        while True:
            events = read_events(_records(turn))
            present_us = round(NOW.timestamp() * 1_000_000) if turn == 0 else None
            try:
                async with Publisher(self._settings.brokers, feed.topic) as publisher:
                    published = await publisher.run(replay(events, speed=feed.speed, present_us=present_us))
            except BrokerUnreachable as error:
                logger.warning("the sample feed waits: %s", error)
                await asyncio.sleep(RETRY_S)
                continue
            logger.info("the sample feed ended: %d posts, %d removals", published.posts, published.removals)
            turn += 1


def _records(turn: int) -> Iterator[dict[str, Any]]:
    """The feed, again and again: the same stories under new post ids."""
    for record in sample_records():
        text = json.dumps(record)
        yield json.loads(text if turn == 0 else text.replace('"sample:', f'"sample:{turn}-'))


async def _for_ever() -> None:
    await asyncio.Event().wait()
