"""Between a chat and its client: neither waits for the other, and when the client leaves, the chat is ended."""

import asyncio
import logging
import traceback
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from starlette.types import Receive

from services.events import ChatEvent, Delta, Done, Failed

logger = logging.getLogger(__name__)
T = TypeVar("T")

TAIL_S = 1.0  # what a chat may do after its last event before it is cancelled
BROKEN = Failed(500, "server_error", "internal_error", "The server failed to finish this answer.")


class ClientGone(Exception):
    """The client closed the connection."""


class Relay:
    """Runs a chat in one task of its own, from its first step to its last, so that deadlines and cancel scopes inside
    it hold. Leaving the `async with` block ends it, and waits until it has ended.

    What the client was too slow to take is merged, never dropped: an answer is bounded by its max_tokens.
    """

    def __init__(self, events: AsyncIterator[ChatEvent], name: str) -> None:
        self._events, self._name = events, name
        self._waiting: deque[ChatEvent] = deque()
        self._arrived = asyncio.Event()
        self._ended = False

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._pump())
        self._task.add_done_callback(self._close)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ended and not isinstance(error, asyncio.CancelledError):
            await asyncio.wait({self._task}, timeout=TAIL_S)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def next(self, timeout_s: float) -> ChatEvent | None:
        """The next event, or None if none came in time. Deltas that wait already come as one."""
        if not self._waiting:
            self._arrived.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._arrived.wait()
            except TimeoutError:
                return None
        event = self._waiting.popleft()
        while isinstance(event, Delta) and self._waiting and isinstance(more := self._waiting[0], Delta):
            event = Delta(event.text + more.text, event.marks + more.marks)
            self._waiting.popleft()
        return event

    async def _pump(self) -> None:
        async for event in self._events:
            self._put(event)

    def _put(self, event: ChatEvent) -> None:
        if not self._ended:
            self._ended = isinstance(event, Done | Failed)
            self._waiting.append(event)
            self._arrived.set()

    def _close(self, task: asyncio.Task[None]) -> None:
        """However the chat ends, the client gets exactly one terminal event."""
        error = None if task.cancelled() else task.exception()
        if error is not None:  # its message may hold a user's words: only the kind and the place are logged
            place = "".join(traceback.format_tb(error.__traceback__))
            logger.error("%s: %s\n%s", self._name, type(error).__name__, place)
        elif not self._ended and not task.cancelled():
            logger.error("%s: ended without Done or Failed", self._name)
        self._put(BROKEN)


async def until_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; if the client leaves first, `work` is cancelled, awaited, and ClientGone raised.

    The body must have been read. `work` must not end the response: its end reads like the client's leaving.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGone
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
