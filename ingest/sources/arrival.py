"""What every source of posts shares: what one event of a network means, and where to go on after it."""

from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Protocol

from ingest.post import AccountChange, Malformed, Post, Removal


@dataclass(frozen=True, slots=True)
class Arrival:
    """The records of one event, in the order in which they must be published.

    `cursor` is where to resume once these are acknowledged by the broker; None keeps the one before. Opaque to all but
    the source that made it.
    """

    records: tuple[Post | Removal | AccountChange | Malformed, ...] = field(default=(), repr=False)
    cursor: str | None = None


@dataclass(slots=True)
class SourceStats:
    """Counts since the start. `skipped`: events that are no posts, by kind; `malformed`: refused ones, by reason."""

    events: int = 0
    connects: int = 0
    gaps: int = 0  # times at which the network could not give what was missed
    repeated: int = 0  # events that came again after a reconnect and were dropped
    lag_ms: int | None = None  # the newest event's age when it came
    fault: str = "not connected yet"  # "" when connected
    skipped: Counter[str] = field(default_factory=Counter)
    malformed: Counter[str] = field(default_factory=Counter)


class SourceEnded(RuntimeError):
    """The source cannot go on and no retry will mend it: a refused token, a feed that is gone (410)."""

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(source, reason)
        self.source, self.reason = source, reason

    def __str__(self) -> str:
        return f"{self.source}: {self.reason}"


class Source(Protocol):
    """`arrivals` reconnects with back-off for ever and raises SourceEnded only; closing it closes the connection."""

    name: str
    stats: SourceStats

    def arrivals(self, cursor: str | None) -> AsyncGenerator[Arrival, None]: ...
