"""Records -> the topic, each checked by the rules of the topic before it is sent and acknowledged after."""

import time
from asyncio import Future
from collections import Counter, deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from ingest.kafka import ensure_topic, plain_producer, stop
from ingest.payload import Refused
from ingest.post import AccountChange, Malformed, Post, Removal
from ingest.record import decode, encode, json_bytes
from ingest.sources.jsonl import BadLine, Event

WINDOW = 500  # sent and not yet acknowledged, at most

Sent = Post | Removal | AccountChange


class BrokerUnreachable(ConnectionError):
    """The broker cannot be reached or did not acknowledge in time."""

    def __init__(self, brokers: str, fault: str) -> None:
        super().__init__(brokers, fault)
        self.brokers, self.fault = brokers, fault

    def __str__(self) -> str:
        return f"no acknowledgement from the Kafka broker at {self.brokers} ({self.fault})"


@dataclass(frozen=True, slots=True)
class Published:
    """What became of a file. `posts`, `removals` and `accounts` were acknowledged, `refused` were not sent.

    A post without text or without consent counts as a removal: that is what it does.
    """

    posts: int = 0
    removals: int = 0
    refused: list[BadLine] = field(default_factory=list)
    accounts: int = 0


class Publisher:
    """`async with Publisher(brokers, topic) as publisher`, or `start` and `close`."""

    def __init__(self, brokers: str, topic: str) -> None:
        self._brokers, self._topic = brokers, topic
        self._producer: AIOKafkaProducer | None = None

    async def start(self) -> None:
        """Creates the topic if it is missing. Raises BrokerUnreachable."""
        assert self._producer is None, "started already"
        await self.ensure_topic()
        producer = plain_producer(self._brokers.split(","))
        try:
            await producer.start()
        except (KafkaError, OSError) as error:
            await stop(producer)
            raise BrokerUnreachable(self._brokers, type(error).__name__) from error
        self._producer = producer

    async def ensure_topic(self) -> None:
        """Raises BrokerUnreachable."""
        try:
            await ensure_topic(self._brokers.split(","), self._topic)
        except (KafkaError, OSError) as error:
            raise BrokerUnreachable(self._brokers, type(error).__name__) from error

    async def close(self) -> None:
        """What is still unsent is sent, if the broker can be reached."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await stop(producer)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def publish(self, record: Sent | Mapping[str, Any]) -> Sent:
        """A record, or a topic object (docs/feed.md); returns how the topic's readers will see it.

        Raises Refused (by the topic's rules; nothing was sent), BrokerUnreachable (not acknowledged).
        """
        seen, acknowledged = await self.send(record)
        await self.acknowledged(acknowledged)
        return seen

    async def remove(self, post_id: str, version: str | None = None) -> Removal:
        """`version` as in docs/feed.md; None removes whatever is there. Raises Refused, BrokerUnreachable."""
        record = await self.publish({"id": post_id, "deleted": True, "version": version})
        assert isinstance(record, Removal)
        return record

    async def run(
        self,
        events: AsyncIterable[Event | BadLine] | Iterable[Event | BadLine],
        progress: Callable[[Event | BadLine], None] = lambda event: None,
    ) -> Published:
        """Publishes until the source ends; a bad event is reported by its number and the others go on.

        Raises BrokerUnreachable.
        """
        counts: Counter[type] = Counter()
        refused: list[BadLine] = []
        pending: deque[Future[Any]] = deque()
        async for event in _each(events):
            if isinstance(event, BadLine):
                refused.append(event)
            else:
                try:
                    record, sent = await self.send(event.value)
                except Refused as error:
                    refused.append(BadLine(event.number, str(error)))
                else:
                    pending.append(sent)
                    counts[type(record)] += 1
            while pending and (pending[0].done() or len(pending) > WINDOW):
                await self.acknowledged(pending.popleft())
            progress(event)
        while pending:
            await self.acknowledged(pending.popleft())
        return Published(counts[Post], counts[Removal], refused, counts[AccountChange])

    async def send(self, record: Sent | Mapping[str, Any]) -> tuple[Sent, "Future[Any]"]:
        """As `publish`, without waiting: what comes is for `acknowledged`. What is sent is what readers make of it, so
        that no text travels without consent. Raises Refused, BrokerUnreachable (not even taken to be sent)."""
        assert self._producer is not None, "not started"
        now_ms = time.time_ns() // 1_000_000
        key, value, headers = (None, json_bytes(record), []) if isinstance(record, Mapping) else encode(record)
        timestamp_ms = _timestamp_ms(record, now_ms)
        seen = decode(key, value, headers, timestamp_ms=timestamp_ms, received_ms=now_ms)
        if isinstance(seen, Malformed):
            raise Refused(seen.reason, seen.detail)
        key, value, headers = encode(seen)
        timestamp_ms = _timestamp_ms(seen, now_ms)
        try:
            sent = await self._producer.send(self._topic, value, key, headers=headers, timestamp_ms=timestamp_ms)
        except (KafkaError, OSError) as error:
            raise BrokerUnreachable(self._brokers, type(error).__name__) from error
        sent.add_done_callback(lambda done: done.cancelled() or done.exception())  # its waiter may have gone
        return seen, sent

    async def acknowledged(self, sent: "Future[Any]") -> None:
        """Raises BrokerUnreachable."""
        try:
            await sent
        except KafkaError as error:
            raise BrokerUnreachable(self._brokers, type(error).__name__) from error


def _timestamp_ms(record: Sent | Mapping[str, Any], now_ms: int) -> int:
    """That of a removal which states no version is its place in the order: not before the moment that it names."""
    is_guessed = isinstance(record, Removal) and not record.if_newer
    return -(-record.version_us // 1000) if isinstance(record, Removal) and is_guessed else now_ms


async def _each(events: AsyncIterable[Event | BadLine] | Iterable[Event | BadLine]) -> AsyncIterator[Event | BadLine]:
    if isinstance(events, AsyncIterable):
        async for event in events:
            yield event
    else:
        for event in events:
            yield event
