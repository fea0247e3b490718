"""Connections to Kafka: producers, members of a consumer group, topics. Knows no records."""

import asyncio
import logging

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.codec import has_gzip, has_lz4, has_snappy, has_zstd
from aiokafka.errors import TopicAlreadyExistsError, for_code

# Its DEBUG lines hold keys and values, which no log of ours may; while a broker is away it logs ten errors a second.
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)

PARTITIONS = 4
# Kafka answers a fetch as soon as there is a record; Tansu looks again only after half of this time or more.
FETCH_WAIT_MS = 50
FETCH_BYTES = 8_000_000  # of one fetch, all partitions together
REQUEST_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 5.0


class CodecMissing(RuntimeError):
    """This installation cannot read what a producer may have compressed."""

    def __init__(self, codecs: tuple[str, ...]) -> None:
        super().__init__(codecs)
        self.codecs = codecs

    def __str__(self) -> str:
        return f"cannot read topics compressed with {', '.join(self.codecs)}: pip install cramjam"


def require_codecs() -> None:
    """Every codec, as no topic says beforehand which it holds. Raises CodecMissing."""
    there = {"gzip": has_gzip(), "snappy": has_snappy(), "lz4": has_lz4(), "zstd": has_zstd()}
    if missing := tuple(name for name, is_there in there.items() if not is_there):
        raise CodecMissing(missing)


def plain_producer(brokers: list[str], max_request_size: int = 1_048_576) -> AIOKafkaProducer:
    """Acknowledged by every replica; not idempotent, which Tansu refuses: versions make repeats harmless."""
    return AIOKafkaProducer(
        bootstrap_servers=brokers, acks="all", enable_idempotence=False, max_request_size=max_request_size
    )


def group_consumer(brokers: list[str], group: str, session_timeout_s: float) -> AIOKafkaConsumer:
    """Not subscribed yet. Commits nothing by itself."""
    return AIOKafkaConsumer(
        bootstrap_servers=brokers,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=FETCH_WAIT_MS,
        fetch_max_bytes=FETCH_BYTES,
        session_timeout_ms=int(session_timeout_s * 1000),
        heartbeat_interval_ms=int(session_timeout_s * 1000 / 3),
        request_timeout_ms=int(REQUEST_TIMEOUT_S * 1000),
        metadata_max_age_ms=30_000,
    )


async def stop(client: AIOKafkaConsumer | AIOKafkaProducer) -> None:
    """Leaves the group, or sends what is unsent, if the broker can still hear it; closes the connections in any case.

    In a task of its own: stop can raise the CancelledError of its own tasks (aiokafka#647), or wait for a dead broker.
    """
    stopping = asyncio.create_task(client.stop())  # type: ignore[no-untyped-call]
    await asyncio.wait([stopping], timeout=STOP_TIMEOUT_S)
    if not stopping.done():
        stopping.cancel()
        await asyncio.wait([stopping])
    if stopping.cancelled() or stopping.exception() is not None:
        if isinstance(client, AIOKafkaProducer):
            await client._sender.close()
            await client.client.close()
        else:
            await client._client.close()


async def ensure_topic(brokers: list[str], topic: str, partitions: int = PARTITIONS) -> None:
    """Creates the topic if it is missing. Raises KafkaError."""
    admin = AIOKafkaAdminClient(bootstrap_servers=brokers, request_timeout_ms=int(REQUEST_TIMEOUT_S * 1000))
    try:
        await admin.start()
        if topic in await admin.list_topics():
            return
        replicas = min(3, len((await admin.describe_cluster())["brokers"]))
        answer = await admin.create_topics([NewTopic(topic, partitions, replicas)])
        for _, code, *_ in answer.topic_errors:  # type: ignore[attr-defined]  # generated from the protocol's schema
            if code not in (0, TopicAlreadyExistsError.errno):
                raise for_code(code)(topic)
    finally:
        await admin.close()


async def count_members(brokers: list[str], group: str) -> int:
    """Of a consumer group. Raises KafkaError."""
    admin = AIOKafkaAdminClient(bootstrap_servers=brokers, request_timeout_ms=int(REQUEST_TIMEOUT_S * 1000))
    try:
        await admin.start()
        (answer,) = await admin.describe_consumer_groups([group])
        (described,) = answer.groups  # type: ignore[attr-defined]  # generated from the protocol's schema
        return len(described[5])
    finally:
        await admin.close()
