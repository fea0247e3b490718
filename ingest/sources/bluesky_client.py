"""The Bluesky source: a subscription to a Jetstream server that is never given up."""

import asyncio
import json
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from ingest.post import Malformed, Record
from ingest.settings import BlueskySettings
from ingest.sources.arrival import Arrival, SourceStats
from ingest.sources.backoff import BackOff
from ingest.sources.bluesky import COLLECTIONS, read_frame
from ingest.sources.bluesky_frame import Frame
from ingest.sources.bluesky_people import People
from ingest.sources.bluesky_quotes import Quotes
from ingest.sources.jetstream_position import JetstreamPosition

MAX_FRAME_BYTES = 8 * 1024 * 1024  # a record may have 1 MB, and six times that in JSON
SEEN_EVENTS = 50_000  # several minutes of posts, reposts and profiles; the overlap is seconds
CLOSE_S = 2.0
SETTLE_S = 20.0

_SUBPROTOCOL = Subprotocol("xrpc.v1.json")
_TOO_BIG = 1009

logger = logging.getLogger(__name__)


class _Broken(Exception):
    """This connection is of no more use."""


class BlueskySource:
    """`arrivals` gives every event once and in the order of the wire, across as many connections as it takes.

    `overlap_s`: how far before its position a v1 subscription resumes. `gap_s`: a first event that is later than asked
    by more than this is a gap. `quiet_s`, `idle_s`: without an event for so long, the position of a quiet stream is
    moved, and the connection is made anew; `ping_s`, `pong_s`: how often the server is pinged, and how long it may
    take to answer. Raises ValueError for a url that is not ws:// or wss://.
    """

    name = "bluesky"

    def __init__(
        self,
        settings: BlueskySettings,
        *,
        backoff: BackOff | None = None,
        overlap_s: float = 5.0,
        gap_s: float = 60.0,
        quiet_s: float = 15.0,
        idle_s: float = 300.0,
        ping_s: float = 20.0,
        pong_s: float = 20.0,
        clock_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.stats = SourceStats()
        self._url = urlsplit(settings.url)
        if self._url.scheme not in ("ws", "wss") or not self._url.hostname:
            raise ValueError(f"{settings.url} is no Jetstream address: it must begin with wss:// or ws://")
        self._is_v2 = self._url.path.rstrip("/").endswith("subscribeEvents")
        self._languages = frozenset(language.partition("-")[0].lower() for language in settings.languages)
        self._backoff = BackOff() if backoff is None else backoff
        self._overlap_s, self._gap_us = overlap_s, round(gap_s * 1e6)
        self._quiet_s, self._idle_s, self._ping_s, self._pong_s = quiet_s, idle_s, ping_s, pong_s
        self._clock_us, self._monotonic, self._sleep = clock_us, monotonic, sleep
        self._people, self._quotes = People(), Quotes()
        self._asks_for_less = False

    async def arrivals(self, cursor: str | None) -> AsyncGenerator[Arrival, None]:
        position = self._resumed(cursor)
        seen: OrderedDict[str, None] = OrderedDict()  # of this call only: what an earlier one gave may be lost
        while True:
            try:
                async with (
                    await self._connected(position) as connection,
                    aclosing(self._read(connection, position, seen)) as arrivals,
                ):
                    self.stats.connects += 1
                    self.stats.fault = ""
                    async for arrival in arrivals:
                        yield arrival
            except (OSError, WebSocketException, _Broken) as error:
                self.stats.fault = self._fault(error, position)
            wait_s = self._backoff.next_s()
            logger.warning("bluesky: %s; connecting again in %.1f s", self.stats.fault, wait_s)
            await self._sleep(wait_s)

    def _resumed(self, cursor: str | None) -> JetstreamPosition:
        position = JetstreamPosition(self._is_v2, self._url.netloc.lower(), self._overlap_s, SETTLE_S)
        if cursor is not None and not position.resume(cursor):
            self._gap("the cursor is of another kind or server; what comes now is read")
        return position

    async def _connected(self, position: JetstreamPosition) -> ClientConnection:
        asked = position.ask(self._monotonic(), longest_quiet_s=2 * self._idle_s)
        wanted = [("collections" if self._is_v2 else "wantedCollections", name) for name in COLLECTIONS]
        given = [pair for pair in parse_qsl(self._url.query) if pair[0] != "cursor"]
        query = given if {name for name, _ in given} & {wanted[0][0]} else [*given, *wanted]
        if asked is not None:
            query.append(("cursor", str(asked)))
        if self._asks_for_less:
            query.append(("maxMessageSizeBytes", str(MAX_FRAME_BYTES)))
        try:
            return await connect(
                urlunsplit(self._url._replace(query=urlencode(query), fragment="")),
                subprotocols=[_SUBPROTOCOL] if self._is_v2 else None,
                ping_interval=self._ping_s,
                ping_timeout=self._pong_s,
                close_timeout=CLOSE_S,
                max_size=MAX_FRAME_BYTES,
            )
        except ValueError:  # a redirect to what is no address
            raise _Broken("the server points to no address") from None

    async def _read(
        self, connection: ClientConnection, position: JetstreamPosition, seen: OrderedDict[str, None]
    ) -> AsyncGenerator[Arrival, None]:
        """Raises ConnectionClosed, _Broken."""
        heard_s = self._monotonic()
        while True:
            try:
                async with asyncio.timeout(self._quiet_s):
                    raw = await connection.recv(decode=False)
            except TimeoutError:
                if self._monotonic() - heard_s >= self._idle_s:
                    raise _Broken(f"no event for {self._idle_s:g} s") from None
                if position.settle(self._monotonic()):
                    yield Arrival((), position.cursor)
                continue
            heard_s = self._monotonic()
            frame = read_frame(raw, self._clock_us() // 1000, self._languages)
            for arrival in self._arrived(frame, position, seen):
                yield arrival

    def _arrived(self, frame: Frame, position: JetstreamPosition, seen: OrderedDict[str, None]) -> list[Arrival]:
        """One or none. Raises _Broken for the server's last word."""
        if frame.kind == "error":
            raise _Broken(f"the server says {frame.notice or 'error'}")
        if frame.kind == "info":
            if frame.notice in ("OutdatedCursor", "FutureCursor") and not position.is_oldest:
                self._gap(f"the server says {frame.notice}")
            return []
        missed_us = position.missed_us(frame)
        if missed_us > self._gap_us:
            self._gap(f"the first event is {missed_us / 1e6:.0f} s later than asked for")
        if frame.did:
            self._backoff.reset()
        if frame.key in seen:
            self.stats.repeated += 1
            return []
        if frame.key:
            seen[frame.key] = None
            if len(seen) > SEEN_EVENTS:
                seen.popitem(last=False)
        position.move(frame, self._monotonic())
        return [Arrival(self._records(frame), position.cursor)]

    def _records(self, frame: Frame) -> tuple[Record, ...]:
        self.stats.events += 1
        if frame.time_us is not None:
            self.stats.lag_ms = max(0, self._clock_us() - frame.time_us) // 1000
        records = [self._quotes.seen(self._people.signed(frame.did, record)) for record in frame.records]
        for record in records:
            if isinstance(record, Malformed):
                self.stats.malformed[record.reason] += 1
        if frame.news is not None:
            seen_us = self._clock_us() if frame.time_us is None else frame.time_us
            change = self._people.hear(frame.did, frame.news, seen_us)
            records += [] if change is None else [change]
        if frame.detached is not None:
            records += self._quotes.take_back(frame.detached)
        if frame.skipped and not records:
            self.stats.skipped[frame.skipped] += 1
        return tuple(records)

    def _fault(self, error: Exception, position: JetstreamPosition) -> str:
        """Says in a few words what was wrong, and changes what the next connection asks for if that was it."""
        if isinstance(error, InvalidStatus):
            name = _error_name(bytes(error.response.body))
            if name == "CursorTooOld":
                self._gap("the server no longer has what comes after the cursor; the oldest it has is read")
                position.forget_too_old()
            return f"HTTP {error.response.status_code} {name}".rstrip()
        if isinstance(error, ConnectionClosed):
            if error.sent is not None and error.sent.code == _TOO_BIG and not error.rcvd_then_sent:
                self.stats.malformed["too_large"] += 1
                if self._asks_for_less:
                    self._gap("the server sends an event that is too large again; what comes now is read")
                    position.forget()
                self._asks_for_less = True
            return f"closed, {error.rcvd.code if error.rcvd else 'without a word'}"
        return str(error) if isinstance(error, _Broken) else type(error).__name__

    def _gap(self, what: str) -> None:
        self.stats.gaps += 1
        logger.warning("bluesky: a gap: %s", what)


def _error_name(body: bytes) -> str:
    """Of the XRPC error envelope; "" when it is none."""
    try:
        name = json.loads(body).get("error")
    except (ValueError, AttributeError, RecursionError):
        return ""
    return name if isinstance(name, str) and name.isascii() and name.isalnum() and len(name) <= 40 else ""
