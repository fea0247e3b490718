"""How far a consumer is behind its topic, and whether the topic is still the one it knows."""

from collections import Counter
from collections.abc import Awaitable, Callable

from aiokafka import AIOKafkaConsumer, TopicPartition

AHEAD_LOOKS = 3  # in a row


class Lag:
    """Looked at once a second. `members` counts the group; the topic is made by `ensure` when it has gone."""

    def __init__(
        self, topic: str, members: Callable[[], Awaitable[int]], ensure: Callable[[], Awaitable[None]]
    ) -> None:
        self._topic, self._members, self._ensure = topic, members, ensure
        self._ahead: Counter[TopicPartition] = Counter()  # looks that found us beyond the end of the partition
        self.is_left_out = False  # no partition is ours, though there are enough for every member

    async def records_behind(self, consumer: AIOKafkaConsumer) -> int:
        """Records of our partitions that were not fetched yet."""
        partitions = list(consumer.assignment())
        self.is_left_out = not partitions and await self._should_have_some(consumer)
        if not partitions:
            return 0
        ends = await consumer.end_offsets(partitions)
        behind = 0
        for partition in partitions:
            if partition not in consumer.assignment():  # revoked while we waited
                continue
            # Tansu's end misses all but one record of the last batch; what a fetch has seen is right, but may be old.
            seen = consumer.highwater(partition)
            position = await consumer.position(partition)
            behind += max(0, max(ends[partition], seen or 0) - position)
            is_ahead = ends[partition] < position and seen is not None and seen < position
            self._ahead[partition] = self._ahead[partition] + 1 if is_ahead else 0
        return behind

    def made_anew(self, consumer: AIOKafkaConsumer) -> set[TopicPartition]:
        """Partitions that ended before our position for some looks, each told once: the topic was deleted and made
        again.

        Kafka answers such a fetch with an error, which aiokafka handles; Tansu with nothing, until the topic has grown.
        """
        ahead = {partition for partition, looks in self._ahead.items() if looks >= AHEAD_LOOKS}
        for partition in ahead:
            del self._ahead[partition]
        return {partition for partition in ahead if partition in consumer.assignment()}

    def start_over(self) -> None:
        self._ahead.clear()
        self.is_left_out = False

    async def _should_have_some(self, consumer: AIOKafkaConsumer) -> bool:
        """More members than partitions leave some without; aiokafka can also lose its own and not notice (T10)."""
        if self._topic not in await consumer.topics():
            await self._ensure()
            return False
        partitions = consumer.partitions_for_topic(self._topic) or set()
        return await self._members() <= len(partitions)
