"""Which offsets may be committed while batches finish in any order: none before an unfinished one. Knows no broker."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Partition:
    handed_out: deque[int] = field(default_factory=deque)  # where each span ends, in order, unfinished or behind one
    finished: set[int] = field(default_factory=set)  # of these
    records: dict[int, int] = field(default_factory=dict)  # of unfinished spans
    done: int | None = None  # everything before it is finished
    committed: int | None = None


class Offsets:
    """Per partition, spans of offsets in the order in which they were handed out; a span is named by the offset that
    follows it. Offsets may be missing in the topic (compaction), so spans need not touch."""

    def __init__(self) -> None:
        self._partitions: dict[int, _Partition] = {}

    @property
    def unfinished_records(self) -> int:
        return sum(sum(partition.records.values()) for partition in self._partitions.values())

    def hand_out(self, partition: int, next_offset: int, records: int) -> None:
        kept = self._partitions.setdefault(partition, _Partition())
        assert next_offset > (kept.handed_out[-1] if kept.handed_out else kept.done or 0), "handed out twice"
        kept.handed_out.append(next_offset)
        kept.records[next_offset] = records

    def finish(self, partition: int, next_offset: int) -> bool:
        """False when nothing of the partition was handed out, or that was forgotten. A second time changes nothing."""
        kept = self._partitions.get(partition)
        if kept is None:
            return False
        if kept.records.pop(next_offset, None) is not None:
            kept.finished.add(next_offset)
            while kept.handed_out and kept.handed_out[0] in kept.finished:
                kept.done = kept.handed_out.popleft()
                kept.finished.remove(kept.done)
        return True

    def due(self) -> dict[int, int]:
        """Partition -> the offset to commit, where there is more than was committed."""
        return {
            number: kept.done
            for number, kept in self._partitions.items()
            if kept.done is not None and kept.done != kept.committed
        }

    def committed(self, offsets: Mapping[int, int]) -> None:
        for number, offset in offsets.items():
            if number in self._partitions:
                self._partitions[number].committed = offset

    def forget(self, partitions: Iterable[int] | None = None) -> None:
        """Of these partitions, None for all: they are somebody else's now, or will be read again."""
        for number in list(self._partitions if partitions is None else partitions):
            self._partitions.pop(number, None)
