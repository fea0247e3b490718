"""What the feed hands over: records as they came, in batches. Knows no broker."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FeedRecord:
    """A Kafka record as it came. `timestamp_ms` is -1 when the producer set none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def size(self) -> int:
        """Bytes, near enough for limits."""
        of_headers = sum(len(name) + len(content or b"") for name, content in self.headers)
        return len(self.key or b"") + len(self.value or b"") + of_headers


@dataclass(frozen=True, slots=True)
class FeedBatch:
    """Records in the order of their partitions, without gaps; `next_offsets` is where each partition goes on."""

    records: tuple[FeedRecord, ...]
    next_offsets: dict[int, int]
    received_ms: int
    reading: int = 0  # which took hold of the partitions: offsets of an earlier one may be another member's by now
