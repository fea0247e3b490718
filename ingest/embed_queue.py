"""The one way to an embedder from an event loop: one worker thread, questions first, ingest in short turns."""

import asyncio
import heapq
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Protocol

import numpy as np

TURN_S = 0.03  # of ingest: how long a question may have to wait
# While nobody has asked for QUIET_S: a fifth less work for a post than in short turns, for one longer wait.
QUIET_S, QUIET_TURN_S = 1.0, 0.1
MAX_TURN_TEXTS = 64
TEXT_COST = 24  # of a text, besides its bytes: a byte of text is about a quarter of a token, whatever the script
FIRST_COST_PER_S = 80_000.0  # until the machine's own pace is known; a slow core
LEARNING = 0.2  # how much of the pace is that of the last turn


class Vectors(Protocol):
    """Texts -> [n, dim] float32 unit rows; blocking."""

    def embed(self, texts: Sequence[str]) -> np.ndarray: ...


class EmbedQueue:
    """Turns of about TURN_S for ingest, as far as this machine's pace so far can tell."""

    def __init__(self, embedder: Vectors, now_s: Callable[[], float] = time.perf_counter) -> None:
        self._embedder, self._now_s = embedder, now_s
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embed")
        self._waiting: list[tuple[bool, int, asyncio.Future[None]]] = []  # heap: urgent first, then by arrival
        self._arrivals = itertools.count()
        self._busy = False
        self._cost_per_s = FIRST_COST_PER_S
        self._asked_s = -QUIET_S  # when the last question came

    async def embed(self, texts: Sequence[str], *, urgent: bool) -> np.ndarray:
        """[n, dim] float32 unit rows. `urgent` is for what a person waits for; it waits for one turn at most."""
        if urgent:
            self._asked_s = self._now_s()
        by_length = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        costs = [_cost(texts[i]) for i in by_length]
        parts: list[np.ndarray] = []
        start = 0
        while start < len(by_length) or not parts:
            async with self._turn(urgent):
                end = len(texts) if urgent else self._turn_end(costs, start)
                asked = [texts[i] for i in by_length[start:end]]
                vectors, took_s = await asyncio.get_running_loop().run_in_executor(self._thread, self._timed, asked)
            if not urgent and took_s > 0:
                self._cost_per_s += LEARNING * (sum(costs[start:end]) / took_s - self._cost_per_s)
            parts.append(vectors)
            start = end
        rows = np.concatenate(parts)
        vectors = np.empty_like(rows)
        vectors[by_length] = rows
        return vectors

    def close(self) -> None:
        """Waits for the turn that runs; later calls raise RuntimeError."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _timed(self, texts: Sequence[str]) -> tuple[np.ndarray, float]:
        started_s = self._now_s()
        return self._embedder.embed(texts), self._now_s() - started_s

    def _turn_end(self, costs: Sequence[int], start: int) -> int:
        """One past the last text that still fits into a turn; at least one does."""
        is_quiet = self._now_s() - self._asked_s >= QUIET_S
        left, end = self._cost_per_s * (QUIET_TURN_S if is_quiet else TURN_S), start
        while end < min(len(costs), start + MAX_TURN_TEXTS) and (end == start or costs[end] <= left):
            left -= costs[end]
            end += 1
        return end

    @asynccontextmanager
    async def _turn(self, urgent: bool) -> AsyncIterator[None]:
        if self._busy:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiting, (not urgent, next(self._arrivals), turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._pass_on()  # the turn came in the same moment as the cancellation
                raise
        self._busy = True
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        """Gives the turn to the first who still waits; `_busy` stays set on the way, so that nobody slips in."""
        while self._waiting:
            turn = heapq.heappop(self._waiting)[2]
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False


def _cost(text: str) -> int:
    return TEXT_COST + len(text.encode("utf-8", "replace"))
