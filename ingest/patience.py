"""Asks a part of the service again until it answers: better late than lost. Knows nothing of what is asked."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

log = logging.getLogger(__name__)
T = TypeVar("T")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0


class Patience:
    """`until_done` and `asked` return in the end, whatever the part raises meanwhile; cancel them at any time."""

    def __init__(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._sleep = sleep
        self._failing: dict[str, str] = {}
        self.retries = 0

    @property
    def reason(self) -> str:
        """What is being waited for, "" for nothing."""
        return "; ".join(self._failing.values())

    async def until_done(self, part: str, attempt: Callable[[], Awaitable[T]]) -> T:
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                done = await attempt()
            except Exception as error:  # noqa: BLE001 - an edge of the process: only waiting is right for every fault
                self.retries += 1
                self._failing[part] = f"{part}: {type(error).__name__}"
                log.warning("ingest waits for %s: %s", part, type(error).__name__)
                await self._sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            else:
                self._failing.pop(part, None)
                return done

    async def asked(
        self,
        part: str,
        ask: Callable[[Sequence[str]], Awaitable[Any]],
        texts: Sequence[str],
        *,
        call_texts: int,
        call_characters: int,
    ) -> list[Any]:
        """One answer a text, a few texts a call; a call that fails is made again, those before it are not."""
        answers: list[Any] = []
        for some in _calls(texts, call_texts, call_characters):
            answers.extend(await self.until_done(part, partial(_one_each, ask, some)))
        return answers


def _calls(texts: Sequence[str], most_texts: int, most_characters: int) -> Iterator[Sequence[str]]:
    """In order, within both limits; a longer text is a call by itself."""
    start = characters = 0
    for i, text in enumerate(texts):
        if i > start and (i - start == most_texts or characters + len(text) > most_characters):
            yield texts[start:i]
            start, characters = i, 0
        characters += len(text)
    if texts:
        yield texts[start:]


async def _one_each(ask: Callable[[Sequence[str]], Awaitable[Any]], texts: Sequence[str]) -> Any:
    """Raises ValueError when a part answers for more or fewer texts than it was asked about."""
    given = await ask(texts)
    if len(given) != len(texts):
        raise ValueError(f"{len(given)} answers for {len(texts)} texts")
    return given
