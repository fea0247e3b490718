"""Plays events again at their own pace, or a multiple of it, with their times moved to now. Knows no broker."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ingest.sources.jsonl import BadLine, Event
from ingest.versions import moved_version, time_text, time_us


@dataclass(frozen=True, slots=True)
class Shift:
    """Feed time -> present time: `origin_us` becomes `now_us`, and a second of the feed lasts 1/`speed` seconds."""

    origin_us: int
    now_us: int
    speed: float

    def __call__(self, us: int) -> int:
        return self.now_us + round((us - self.origin_us) / self.speed)

    def value(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """The topic object with its times and its version moved; what cannot be read stays as it is, to be refused."""
        moved = dict(value)
        for name in ("created_at", "edited_at"):
            moved[name] = self._moved(value.get(name), lambda text: time_text(self(time_us(text))))
        moved["version"] = self._moved(value.get("version"), lambda text: moved_version(text, self))
        return {name: content for name, content in moved.items() if content is not None or name in value}

    def _moved(self, given: Any, move: Callable[[str], str]) -> Any:
        try:
            return move(given) if isinstance(given, str) else given
        except ValueError:
            return given


async def replay(
    events: Iterable[Event | BadLine],
    *,
    speed: float = 1.0,
    present_us: int | None = None,
    clock: Callable[[], int] = lambda: time.time_ns() // 1000,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[Event | BadLine]:
    """Yields each event when it is due, in the given order; one without a time, or overdue, at once.

    `present_us` is the moment of the feed that becomes now: what lies before it comes at once, with times in the past.
    None takes the first event's. `clock` gives microseconds since the epoch.
    """
    if not speed > 0:
        raise ValueError(f"speed must be above 0, not {speed}")
    shift = None if present_us is None else Shift(present_us, clock(), speed)
    for event in events:
        if isinstance(event, BadLine):
            yield event
            continue
        if shift is None:
            shift = Shift(clock() if event.at_us is None else event.at_us, clock(), speed)
        due_us = None if event.at_us is None else shift(event.at_us)
        if due_us is not None and (wait_us := due_us - clock()) > 0:
            await sleep(wait_us / 1_000_000)
        yield replace(event, at_us=due_us, value=shift.value(event.value))
