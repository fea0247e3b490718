"""What the service itself publishes: the embedded broker and the sample feed, when they are wanted."""

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

from ingest.broker import BrokerFailed, EmbeddedBroker
from ingest.publish import BrokerUnreachable, Publisher
from ingest.sources.jsonl import read_events
from ingest.sources.replay import replay
from ingest.sources.sample import NOW, sample_records
from services.settings import Settings

logger = logging.getLogger(__name__)
RETRY_S = 5.0


class Supply:
    """The broker's memory is the topic: when the broker dies, `run` raises, and a new Supply seeds a new one."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        log_path = settings.data_dir / "logs" / "broker.log"
        log_path.parent.mkdir(parents=True, exist_ok=True)
        self._broker: EmbeddedBroker | None = None
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

    @staticmethod
    async def _watch(broker: EmbeddedBroker) -> None:
        raise BrokerFailed(f"the broker ended with status {await broker.wait()}")

    async def close(self) -> None:
        if self._broker is not None:
            await self._broker.stop()

    async def _publish(self) -> None:
        feed = self._settings.feed
        if self._settings.source == "none":
            return await _for_ever()
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
