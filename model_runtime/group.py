"""WorkerGroup: the model as one thing that answers, whatever happens to its shard actors.

A dead or hung rank takes the whole group down (its peers lack its part of every step), fresh actors start, and the
answers under way are replayed from the tokens that were handed out. Knows no HTTP, no Serve and no tensors.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

from ray.exceptions import RayError, RayTaskError

from model_runtime.card import ModelCard
from model_runtime.channel import GroupChannel
from model_runtime.engine import Cancel, Output, Submit
from model_runtime.request import Finished, GenerationFailed, GenerationRequest, PromptTooLong, QueueFull, Token
from model_runtime.scheduler import CPU_LIMITS, Limits
from model_runtime.settings import ModelSettings
from model_runtime.streams import Stream
from model_runtime.worker import Launch, Place, Ranks

__all__ = ["ModelCard", "WorkerGroup"]

logger = logging.getLogger(__name__)

MAX_FAILED_LAUNCHES = 3  # in a row
MAX_RESTARTS, RESTART_WINDOW_S = 6, 120.0


class WorkerGroup:
    """All methods belong to one event loop. The keywords are for tests and benchmarks; see Launch."""

    def __init__(
        self,
        settings: ModelSettings,
        path: Path,
        *,
        limits: Limits | None = None,
        dtype: str | None = None,
        timeout_s: float = 10.0,
        place_timeout_s: float = 60.0,
    ) -> None:
        self._launch = Launch(settings, path, limits, dtype, timeout_s, place_timeout_s)
        self._limits = limits or CPU_LIMITS
        self._streams: dict[str, Stream] = {}
        self._count = 0
        self._ranks: Ranks | None = None  # None while new ones start
        self._card: ModelCard | None = None
        self._broken: str | None = None
        self._watch: asyncio.Task[None] | None = None
        self._restarts: deque[float] = deque(maxlen=MAX_RESTARTS)

    async def start(self) -> None:
        """Places and loads every shard, or none. Raises what Ranks.start raises."""
        self._enter(await Ranks.start(self._launch))
        self._watch = asyncio.create_task(self._keep_running())

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[list[Token | Finished], None]:
        """Each item is everything that came since the last one; the last ends in Finished. Closing the generator frees
        the request's place within a step.

        Raises ValueError (an id outside the vocabulary), PromptTooLong or QueueFull before the first item,
        GenerationFailed at any time."""
        self.check()
        stream = self._open(request)
        try:
            while True:
                items = await stream.take()
                yield items
                if isinstance(items[-1], Finished):
                    return
        finally:
            self._close(stream)

    def card(self) -> ModelCard:
        assert self._card is not None, "start comes first"
        return self._card

    def places(self) -> tuple[Place, ...]:
        """Where the ranks are now, by rank; empty while the group restarts."""
        return () if self._ranks is None else self._ranks.places

    @property
    def streams(self) -> int:
        """Answers under way, those that wait included."""
        return len(self._streams)

    @property
    def is_running(self) -> bool:
        """False before start, after stop, and while the group restarts: requests wait then."""
        return self._ranks is not None

    def check(self) -> None:
        """Raises GenerationFailed when the group is beyond help; a group that restarts itself is not."""
        if self._broken is not None:
            raise GenerationFailed(self._broken)

    async def stop(self) -> None:
        """Ends every actor; answers under way fail."""
        self._give_up("the model was stopped")
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
        ranks, self._ranks = self._ranks, None
        if ranks is not None:
            await ranks.end()

    async def _keep_running(self) -> None:
        try:
            while self._ranks is not None:
                reason = await self._until_failure(self._ranks)
                logger.error("the shard group failed and starts again: %s", reason)
                failed, self._ranks = self._ranks, None
                await failed.end()
                for stream in self._streams.values():
                    if stream.sent and not stream.ended:
                        stream.replay(reason)
                self._enter(await self._relaunch(reason))
        except GenerationFailed as hopeless:
            self._give_up(hopeless.reason)
        finally:
            self._give_up("nobody watches the shard group any more")

    async def _until_failure(self, ranks: Ranks) -> str:
        pump = asyncio.create_task(self._pump(ranks.channel))
        try:
            done, _ = await asyncio.wait([*ranks.runs, pump], return_when=asyncio.FIRST_COMPLETED)
        finally:
            pump.cancel()
        return [_reason(ended.exception()) for ended in done][0]

    async def _pump(self, channel: GroupChannel) -> None:
        """Each step's outputs to the streams that wait for them. Ends by raising ChannelClosed or TimeoutError."""
        while True:
            async with asyncio.timeout(self._launch.timeout_s):  # rank 0 says something every second, and after a step
                outputs: list[Output] = await channel.receive()
            for request_id, item in outputs:
                stream = self._streams.get(request_id)
                if stream is None:
                    continue  # closed meanwhile
                if isinstance(item, Token | Finished):
                    stream.put(item)
                else:
                    stream.fail(item)

    async def _relaunch(self, reason: str) -> Ranks:
        """Raises GenerationFailed when it is no use."""
        self._restarts.append(time.monotonic())
        if len(self._restarts) == MAX_RESTARTS and self._restarts[-1] - self._restarts[0] < RESTART_WINDOW_S:
            raise GenerationFailed(f"the shard group failed {MAX_RESTARTS} times within {RESTART_WINDOW_S} s: {reason}")
        for attempt in range(1, MAX_FAILED_LAUNCHES + 1):
            try:
                return await Ranks.start(self._launch)
            except (RayError, RuntimeError, OSError, ValueError) as error:
                reason = _reason(error)
                logger.error("start %d of %d failed: %s", attempt, MAX_FAILED_LAUNCHES, reason)
        raise GenerationFailed(f"the shard group could not be started again: {reason}")

    def _enter(self, ranks: Ranks) -> None:
        self._ranks, self._card, self._limits = ranks, ranks.card, ranks.limits
        logger.info("%d shards run: %s", len(ranks.places), [f"{place.host}:{place.pid}" for place in ranks.places])
        for stream in self._streams.values():
            if not stream.ended:
                self._send(stream, admitted_before=True)

    def _give_up(self, reason: str) -> None:
        if self._broken is None:
            self._broken = reason
        for stream in self._streams.values():
            if not stream.ended:
                stream.fail(GenerationFailed(self._broken))

    def _open(self, request: GenerationRequest) -> Stream:
        card = self.card()
        needed = len(request.prompt_ids) + request.sampling.max_tokens
        if needed > card.context_tokens:
            raise PromptTooLong(needed, card.context_tokens)
        if not all(0 <= token_id < card.vocab for token_id in request.prompt_ids):
            raise ValueError(f"the prompt has ids outside the vocabulary of {card.vocab}")
        waiting = sum(not stream.admitted for stream in self._streams.values())
        if waiting >= self._limits.waiting:
            raise QueueFull(waiting)
        self._count += 1
        stream = Stream(replace(request, id=f"{request.id}.{self._count}", messages=()))  # whatever ids callers choose
        self._streams[stream.request.id] = stream
        self._send(stream)
        return stream

    def _send(self, stream: Stream, *, admitted_before: bool = False) -> None:
        if self._ranks is not None:
            stream.sent = stream.admitted = True
            self._ranks.channel.send(Submit(stream.request, tuple(stream.generated), admitted_before))

    def _close(self, stream: Stream) -> None:
        del self._streams[stream.request.id]
        if self._ranks is not None and not stream.ended:
            self._ranks.channel.send(Cancel(stream.request.id))


def _reason(error: BaseException | None) -> str:
    """One line; Ray's own messages are essays, and a remote traceback ends with what was raised."""
    if error is None:
        return "a rank ended"
    if isinstance(error, RayTaskError):
        error = error.cause
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"
