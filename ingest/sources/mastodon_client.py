"""A Mastodon instance as a source of posts: its stream kept alive, what it missed filled in.

The protocol has no resume, so after a connect the timeline is paged over REST from where it was last known to be whole,
while the new stream already flows. Of what a gap hides, not recovered are the edit and the deletion of a post that is
not among the last ones that came before it: these are looked up.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any

import httpx

from ingest.post import Malformed
from ingest.settings import MastodonSettings
from ingest.sources.aliases import Aliases
from ingest.sources.arrival import Arrival, SourceEnded, SourceStats
from ingest.sources.backoff import BackOff
from ingest.sources.mastodon import Message
from ingest.sources.mastodon_channel import channel_of
from ingest.sources.mastodon_fields import SOURCE
from ingest.sources.mastodon_intake import Intake
from ingest.sources.mastodon_rest_client import Rest, RestRefused, TooMuchMissed
from ingest.sources.mastodon_stream_client import CONNECTED, Dropped, Line, host_of

log = logging.getLogger(__name__)

WAITING = 500  # messages that may wait for the one who publishes

# Messages of our own beside CONNECTED; no name of an instance's is in capitals.
_FILLED = "FILLED"  # up to a local id
_WHOLE = "WHOLE"
_DAY_MS = 24 * 3600 * 1000


class MastodonSource:
    """Fulfils Source of ingest/sources/arrival.py.

    `alive_s`: a connection without a sign of life is replaced; `idle_s`: so is a living one without an event. Going on
    begins `overlap_s` before the end, as late statuses have older ids; what comes again is dropped. A gap of more than
    `max_pages` of 40 statuses is filled so far and counted. `looked_up`: how many of the last posts are looked up for
    edits and deletions after a gap. `kept_days`: how long a post's local id is known, hence its deletion understood.
    `first_wait_s`: before the second try; it doubles.
    """

    name = SOURCE

    def __init__(
        self,
        settings: MastodonSettings,
        aliases: Aliases,
        *,
        alive_s: float = 60.0,
        idle_s: float = 900.0,
        overlap_s: float = 60.0,
        max_pages: int = 200,
        looked_up: int = 200,
        kept_days: float = 40.0,
        first_wait_s: float = 0.5,
    ) -> None:
        """Raises ValueError for an address or a stream that is none."""
        self._settings, self._channel = settings, channel_of(settings.stream)
        overlap_ms, kept_ms = round(overlap_s * 1000), round(kept_days * _DAY_MS)
        self._intake = Intake(host_of(settings.url), aliases, settings.indexable_only, overlap_ms, kept_ms)
        self._alive_s, self._idle_s = alive_s, idle_s
        self._max_pages, self._looked_up = max_pages, looked_up
        self._first_wait_s, self._backoff = first_wait_s, BackOff(first_wait_s)
        self.stats: SourceStats = self._intake.stats

    async def arrivals(self, cursor: str | None) -> AsyncGenerator[Arrival, None]:
        """Raises SourceEnded, sqlite3.Error (the aliases cannot be kept)."""
        self._intake.resume(cursor, _now_ms())
        while True:
            try:
                async with aclosing(self._connection()) as arrivals:
                    async for arrival in arrivals:
                        yield arrival
            except Dropped as dropped:
                self.stats.fault, wait_s = dropped.fault, max(dropped.wait_s, self._backoff.next_s())
            except SourceEnded as ended:
                self.stats.fault = ended.reason
                raise
            log.warning("mastodon: %s; connecting again in %.1f s", self.stats.fault, wait_s)
            await asyncio.sleep(wait_s)

    async def _connection(self) -> AsyncGenerator[Arrival, None]:
        """Until it breaks. Raises Dropped, SourceEnded."""
        token, inbox = self._token(), _Inbox()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with httpx.AsyncClient(headers=headers, timeout=self._alive_s, follow_redirects=True) as http:
            rest = Rest(http, self._settings.url, self._channel, self._max_pages, self._first_wait_s)
            tasks = [inbox.start(self._listen(http, rest, token, inbox))]
            try:
                while True:
                    message = await inbox.take()
                    if message is None:
                        _raise_faults(tasks)
                    elif message.event == CONNECTED:
                        self.stats.connects, self.stats.fault = self.stats.connects + 1, ""
                        if (after := self._intake.gap_begins(message.received_ms)) is not None:
                            tasks.append(inbox.start(self._fill(rest, after, inbox)))
                    elif (arrival := self._taken_in(message)) is not None:
                        yield arrival
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def _taken_in(self, message: Message) -> Arrival | None:
        """Read only now, when all that came before is known: a deletion may follow its post at once."""
        if message.event == _FILLED:
            self._intake.filled_to(message.payload, message.received_ms)
        elif message.event == _WHOLE:
            self._intake.gap_ends(message.received_ms)
        else:
            return self._intake.arrival(message)
        return None

    async def _listen(self, http: httpx.AsyncClient, rest: Rest, token: str, inbox: "_Inbox") -> None:
        """The stream -> the inbox. Ends with Dropped or SourceEnded."""
        line = Line(self._channel, token, self._alive_s)
        try:
            base_url = await rest.streaming_url()
            is_websocket = self._settings.transport == "websocket"
            async with aclosing(line.websocket(base_url) if is_websocket else line.events(base_url, http)) as stream:
                while True:
                    async with asyncio.timeout(self._idle_s):
                        message = await anext(stream)
                    if message.event != CONNECTED:
                        self._backoff.reset()
                    await inbox.put(message)
        except TimeoutError as error:
            raise Dropped(f"no event for {self._idle_s:g} s") from error
        except httpx.RequestError as error:
            raise Dropped(type(error).__name__) from error

    async def _fill(self, rest: Rest, after: str, inbox: "_Inbox") -> None:
        """What was missed since the status `after` -> the inbox, then what became of the posts before."""
        local_ids = self._intake.latest(self._looked_up)
        try:
            async for statuses, newest in rest.missed(after):
                for status in statuses:
                    await inbox.put(_from_rest("update", status))
                await inbox.put(Message(_FILLED, newest, _now_ms()))
        except (RestRefused, TooMuchMissed, httpx.RequestError) as error:
            self.stats.gaps += 1
            log.warning("mastodon: a gap could not be filled (%s)", type(error).__name__)
        await inbox.put(Message(_WHOLE, None, _now_ms()))
        try:
            async for local_id, status in rest.looked_up(local_ids):
                event = "delete" if status is None else "status.update"
                await inbox.put(_from_rest(event, local_id if status is None else status))
        except (RestRefused, httpx.RequestError) as error:
            self.stats.skipped["look_up_refused"] += 1
            log.warning("mastodon: deletions in a gap may have been missed (%s)", type(error).__name__)

    def _token(self) -> str:
        """Read anew for each connection, as it may have been changed. Raises SourceEnded."""
        path = self._settings.token_file
        if path is None:
            return ""
        try:
            token = path.read_text("ascii").strip()
        except (OSError, UnicodeError):
            token = ""
        if not token or not token.isprintable():
            raise SourceEnded(SOURCE, f"{path} holds no access token")
        return token


class _Inbox:
    """Messages of several tasks in one line; a task that is too far ahead waits. None: a task has ended."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Message | None] = asyncio.Queue()
        self._free = asyncio.Semaphore(WAITING)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        task.add_done_callback(lambda ended: self._queue.put_nowait(None))
        return task

    async def put(self, message: Message) -> None:
        await self._free.acquire()
        self._queue.put_nowait(message)

    async def take(self) -> Message | None:
        message = await self._queue.get()
        if message is not None:
            self._free.release()
        return message


def _from_rest(event: str, payload: Any) -> Message:
    """What REST gave goes through every check that a payload of the stream does."""
    fault = None
    try:
        payload = payload if isinstance(payload, str) else json.dumps(payload)
    except RecursionError:
        fault = Malformed("too_deep")
    return Message(event, payload, _now_ms(), fault)


def _raise_faults(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        if task.done():
            task.result()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
