"""Posts and removals -> the topic, each checked by the rules of the topic before it is sent and acknowledged after."""

import json
import time
from asyncio import Future
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from ingest.feed import ensure_topic, plain_producer
from ingest.payload import Refused
from ingest.post import Malformed, Post, Removal
from ingest.record import decode, encode
from ingest.sources.jsonl import BadLine, Event
from ingest.versions import time_text

WINDOW = 500  # sent and not yet acknowledged, at most
_SCHEMA = ("v", b"1")


class BrokerUnreachable(ConnectionError):
    """The broker cannot be reached or did not acknowledge in time."""

    def __init__(self, brokers: str, fault: str) -> None:
        super().__init__(brokers, fault)
        self.brokers, self.fault = brokers, fault

    def __str__(self) -> str:
        return f"no acknowledgement from the Kafka broker at {self.brokers} ({self.fault})"


@dataclass(frozen=True, slots=True)
class Published:
    """What became of a source. `posts` and `removals` were acknowledged, `refused` were not sent.

    A post without text or without consent counts as a removal: that is what it does.
    """

    posts: int = 0
    removals: int = 0
    refused: list[BadLine] = field(default_factory=list)


class Publisher:
    """`async with Publisher(brokers, topic) as publisher`, or `start` and `close`."""

    def __init__(self, brokers: str, topic: str) -> None:
        self._brokers, self._topic = brokers, topic
        self._producer: AIOKafkaProducer | None = None

    async def start(self) -> None:
        """Creates the topic if it is missing. Raises BrokerUnreachable."""
        producer = plain_producer(self._brokers.split(","))
        try:
            await ensure_topic(self._brokers.split(","), self._topic)
            await producer.start()
        except KafkaError as error:
            await producer.stop()
            raise BrokerUnreachable(self._brokers, type(error).__name__) from error
        self._producer = producer

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def publish(self, post: Post | Mapping[str, Any]) -> Post | Removal:
        """A post, a topic object, or `{"id": ..., "deleted": true}`; returns how the topic's readers will see it.

        Raises Refused (by the topic's rules; nothing was sent), BrokerUnreachable (not acknowledged).
        """
        record, sent = await self._send(encode(post) if isinstance(post, Post) else post)
        await self._acknowledged(sent)
        return record

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
        posts = removals = 0
        refused: list[BadLine] = []
        pending: deque[Future[Any]] = deque()
        async for event in _each(events):
            if isinstance(event, BadLine):
                refused.append(event)
            else:
                try:
                    record, sent = await self._send(event.value)
                except Refused as error:
                    refused.append(BadLine(event.number, str(error)))
                else:
                    pending.append(sent)
                    posts, removals = posts + isinstance(record, Post), removals + isinstance(record, Removal)
            while pending and (pending[0].done() or len(pending) > WINDOW):
                await self._acknowledged(pending.popleft())
            progress(event)
        while pending:
            await self._acknowledged(pending.popleft())
        return Published(posts, removals, refused)

    async def _send(self, value: Mapping[str, Any]) -> tuple[Post | Removal, "Future[Any]"]:
        assert self._producer is not None, "not started"
        now_ms = time.time_ns() // 1_000_000
        content = _json(value)
        record = decode(None, content, timestamp_ms=now_ms, received_ms=now_ms)
        if isinstance(record, Malformed):
            raise Refused(record.reason, record.detail)
        post_id = record.id if isinstance(record, Post) else record.post_id
        headers = [_SCHEMA]
        if isinstance(record, Removal) and record.reason == "deleted":
            if record.if_newer:
                headers.append(("version", time_text(record.version_us).encode()))
            sent_content = None
        else:
            sent_content = content
        try:
            sent = await self._producer.send(self._topic, sent_content, post_id.encode(), headers=headers)
        except KafkaError as error:
            raise BrokerUnreachable(self._brokers, type(error).__name__) from error
        return record, sent

    async def _acknowledged(self, sent: "Future[Any]") -> None:
        try:
            await sent
        except KafkaError as error:
            raise BrokerUnreachable(self._brokers, type(error).__name__) from error


async def _each(events: AsyncIterable[Event | BadLine] | Iterable[Event | BadLine]) -> AsyncIterator[Event | BadLine]:
    if isinstance(events, AsyncIterable):
        async for event in events:
            yield event
    else:
        for event in events:
            yield event


def _json(value: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # a lone surrogate: escaped, so that the reader's rule for it applies
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        raise Refused("json") from None
