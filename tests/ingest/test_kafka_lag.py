"""How far behind, with consumers that are in the middle of something."""

from typing import Any

import pytest
from aiokafka import TopicPartition

from ingest.kafka_lag import AHEAD_LOOKS, Lag


def lag_of(members: int = 1, ensured: list[str] | None = None) -> Lag:
    async def count() -> int:
        return members

    async def ensure() -> None:
        assert ensured is not None
        ensured.append("posts")

    return Lag("posts", count, ensure)


class Losing:
    """A consumer that loses partition 1 while it is asked for the ends."""

    def __init__(self) -> None:
        self._ours = {0, 1}

    def assignment(self) -> set[TopicPartition]:
        return {TopicPartition("posts", partition) for partition in self._ours}

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        self._ours = {0}
        return dict.fromkeys(partitions, 10)

    def highwater(self, partition: TopicPartition) -> int:
        assert partition in self.assignment(), "Partition is not assigned"
        return 12

    async def position(self, partition: TopicPartition) -> int:
        assert partition in self.assignment()
        return 5


class Ahead(Losing):
    """Its topic ends before its position, as far as anybody can see."""

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 2)

    def highwater(self, partition: TopicPartition) -> int:
        return 2


class Idle:
    def __init__(self, topics: set[str], partitions: int) -> None:
        self._topics, self._partitions = topics, partitions

    def assignment(self) -> set[TopicPartition]:
        return set()

    async def topics(self) -> set[str]:
        return self._topics

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(self._partitions))


async def test_a_partition_revoked_while_it_is_watched_is_left_out() -> None:
    consumer: Any = Losing()
    assert await lag_of().records_behind(consumer) == 7


async def test_a_topic_that_ends_before_us_was_made_anew_when_it_stays_so() -> None:
    consumer: Any = Ahead()
    lag = lag_of()
    for _ in range(AHEAD_LOOKS):
        assert lag.made_anew(consumer) == set()
        assert await lag.records_behind(consumer) == 0
    assert lag.made_anew(consumer) == consumer.assignment()
    assert lag.made_anew(consumer) == set()  # told once


@pytest.mark.parametrize(("members", "is_left_out"), [(1, True), (4, True), (5, False)])
async def test_without_a_partition_though_there_are_enough(members: int, is_left_out: bool) -> None:
    """T10: aiokafka can lose its partitions and not notice; a member too many has none by right."""
    consumer: Any = Idle({"posts"}, 4)
    lag = lag_of(members)
    assert await lag.records_behind(consumer) == 0
    assert lag.is_left_out is is_left_out
    lag.start_over()
    assert not lag.is_left_out


async def test_a_topic_that_has_gone_is_made_again() -> None:
    ensured: list[str] = []
    consumer: Any = Idle(set(), 0)
    lag = lag_of(ensured=ensured)
    assert await lag.records_behind(consumer) == 0
    assert ensured == ["posts"] and not lag.is_left_out
