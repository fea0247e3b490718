"""The answers under way, seen from the side that waits for them. Knows no ranks, no Ray."""

import asyncio

from model_runtime.request import Finished, GenerationFailed, GenerationRequest, Token

MAX_REPLAYS = 2


class Stream:
    """One request's items between the group and its consumer. Remembers what was handed out, so that a replay can go on
    from there."""

    def __init__(self, request: GenerationRequest) -> None:
        self.request = request
        self.generated: list[int] = []
        self.sent = False  # the engine that runs now has it
        self.admitted = False  # an engine has or had it
        self.ended = False
        self._replays = 0
        self._items: list[Token | Finished] = []
        self._error: Exception | None = None
        self._news = asyncio.Event()

    def put(self, item: Token | Finished) -> None:
        assert not self.ended, "an item after the end of the stream"
        if isinstance(item, Token):
            self.generated.append(item.id)
        else:
            self.ended = True
        self._items.append(item)
        self._news.set()

    def fail(self, error: Exception) -> None:
        """What was handed out before still comes first."""
        self._error = error
        self.ended = True
        self._news.set()

    def replay(self, reason: str) -> None:
        """The engine that had this request is gone: it goes to the next one, or fails when that did not help before."""
        self.sent = False
        self._replays += 1
        if self._replays > MAX_REPLAYS:
            self.fail(GenerationFailed(f"the model stopped {self._replays} times during this answer: {reason}"))

    async def take(self) -> list[Token | Finished]:
        """Waits for the first item; everything that has come since the last call. Raises what `fail` was given."""
        await self._news.wait()
        self._news.clear()
        items, self._items = self._items, []
        if self._error is not None:
            if not items:
                raise self._error
            self._news.set()  # the error comes next
        return items
