"""Topics, groups and codecs of the real embedded broker."""

import asyncio
import pickle
import subprocess
import sys

import pytest
from aiokafka import AIOKafkaConsumer

from ingest.kafka import CodecMissing, count_members, ensure_topic, group_consumer, plain_producer, stop

WITHOUT_CRAMJAM = """
import sys
sys.modules["cramjam"] = None  # as where it is not installed
from ingest.feed import KafkaFeed
KafkaFeed("127.0.0.1:1", "posts", "group")
"""


async def test_a_topic_that_exists_is_left_alone(brokers: str, topic: str) -> None:
    await ensure_topic([brokers], topic, partitions=1)
    await asyncio.gather(*(ensure_topic([brokers], topic, partitions=4) for _ in range(3)))
    producer = plain_producer([brokers])
    await producer.start()
    assert await producer.partitions_for(topic) == {0}
    await stop(producer)


async def test_members_of_a_group_are_counted(brokers: str, topic: str) -> None:
    await ensure_topic([brokers], topic)
    members: list[AIOKafkaConsumer] = []
    for count in (1, 2):
        member = group_consumer([brokers], topic, 2.0)
        member.subscribe([topic])
        members.append(member)
        await member.start()
        assert await count_members([brokers], topic) == count
    await asyncio.gather(*map(stop, members))


def test_a_missing_codec_is_told_at_the_start() -> None:
    """T11: not at the first compressed batch, days later."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_CRAMJAM], capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert "CodecMissing" in last and "snappy, lz4, zstd: pip install cramjam" in last


def test_the_error_crosses_a_process() -> None:
    with pytest.raises(CodecMissing, match="zstd"):
        raise pickle.loads(pickle.dumps(CodecMissing(("zstd",))))
