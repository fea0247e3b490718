"""A Jetstream server for tests: real websockets, v1 or v2, with the faults of the real ones on demand."""

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from tests.ingest.sources.bluesky_events import in_v2

TIMESTAMPS = 10**15


@dataclass(frozen=True)
class Act:
    """What one connection does: `fault` after `after` events of its own. "" serves for ever."""

    fault: str = ""
    after: int = 0


class JetstreamServer:
    """`events` are v1 events in the order of their times; v2 numbers them from 1. Connection n follows `acts[n]`.

    `floor`: so many of the oldest events are gone. `queries` and `sent` say what was asked and how much was sent.
    """

    def __init__(self, events=(), acts=(), is_v2=False, floor=0):
        self.events, self.acts, self.is_v2, self.floor = list(events), list(acts), is_v2, floor
        self.queries, self.subprotocols = [], []
        self.sent = self.closed = self.serving = 0
        self.ignores_size = False
        self._change = asyncio.Event()

    async def __aenter__(self):
        self._server = await serve(
            self._serve,
            "127.0.0.1",
            0,
            process_request=self._refuse,
            subprotocols=["xrpc.v1.json"] if self.is_v2 else None,
            ping_interval=None,
            close_timeout=0.2,
            compression=None,
        )
        path = "/xrpc/network.bsky.jetstream.subscribeEvents" if self.is_v2 else "/subscribe"
        self.host = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self.url = f"ws://{self.host}{path}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for connection in list(self._server.connections):
            connection.transport.abort()
        await self._server.wait_closed()

    async def publish(self, *events):
        self.events += events
        self._changed()

    async def until(self, holds):
        async with asyncio.timeout(30):
            while not holds():
                await self._change.wait()

    def _changed(self):
        self._change, change = asyncio.Event(), self._change
        change.set()

    def _refuse(self, connection, request):
        query = parse_qs(urlsplit(request.path).query)
        self.queries.append(query)
        self._changed()
        act = self.acts[len(self.queries) - 1] if len(self.queries) <= len(self.acts) else Act()
        connection.act, connection.query = act, query
        if act.fault == "503":
            return connection.respond(503, "service not ready")
        if act.fault == "redirect":
            response = connection.respond(301, "")
            response.headers["Location"] = "http://[::bad"
            return response
        if act.fault == "no handshake":
            connection.transport.abort()
        cursor = self._cursor(query)
        if self.is_v2 and cursor is not None and cursor < TIMESTAMPS and cursor <= self.floor:
            body = json.dumps({"error": "CursorTooOld", "message": f"the floor is {self.floor + 1}"})
            return connection.respond(400, body)
        return None

    def _cursor(self, query):
        return int(query["cursor"][0]) if "cursor" in query else None

    async def _serve(self, connection):
        self.subprotocols.append(connection.subprotocol)
        self.serving += 1
        try:
            with suppress(ConnectionClosed):
                await self._send_all(connection)
        finally:
            self.closed, self.serving = self.closed + 1, self.serving - 1
            self._changed()

    async def _send_all(self, connection):
        at = len(self.events)
        self._changed()
        cursor = self._cursor(connection.query)
        if cursor is not None:
            at = next((n for n in range(self.floor, len(self.events)) if self._is_from(n, cursor)), len(self.events))
            if self.is_v2 and cursor >= TIMESTAMPS and self.floor:
                await connection.send(
                    json.dumps({"$type": "message", "payload": {"$type": "x#info", "name": "OutdatedCursor"}})
                )
        done = 0
        while True:
            if connection.act.fault and done >= connection.act.after:
                await self._fail(connection)
                return
            while at == len(self.events):
                if await self._is_gone_before_a_change(connection):
                    return
            event = self.events[at]
            at, done = at + 1, done + 1
            frame = event if isinstance(event, bytes) else json.dumps(in_v2(event, at) if self.is_v2 else event)
            most = int(connection.query.get("maxMessageSizeBytes", ["0"])[0])
            if most and len(frame) > most and not self.ignores_size:
                continue
            await connection.send(frame, text=True)
            self.sent += 1

    async def _is_gone_before_a_change(self, connection):
        change, gone = asyncio.ensure_future(self._change.wait()), asyncio.ensure_future(connection.wait_closed())
        await asyncio.wait([change, gone], return_when=asyncio.FIRST_COMPLETED)
        change.cancel()
        gone.cancel()
        return gone.done() and not gone.cancelled()

    def _is_from(self, number, cursor):
        if self.is_v2 and cursor < TIMESTAMPS:
            return number + 1 >= cursor
        event = self.events[number]
        return isinstance(event, bytes) or event["time_us"] >= cursor

    async def _fail(self, connection):
        fault = connection.act.fault
        if fault == "drop":
            connection.transport.abort()
        elif fault == "cut":  # half of a frame, and the end
            connection.transport.write(b"\x81\x7e\x10\x00" + b'{"did":"did:plc:')
            connection.transport.close()
        elif fault == "no frame":
            connection.transport.write(b"\xff\xff\xff\xff")
            await connection.wait_closed()
        elif fault == "error":
            await connection.send(json.dumps({"$type": "error", "error": "ConsumerTooSlow", "message": "..."}))
            await connection.wait_closed()
        elif fault == "silent":  # answers pings and sends nothing more
            await connection.wait_closed()
        elif fault == "dead":  # does not even read
            connection.transport.pause_reading()
            await self.until(lambda: len(self.queries) > self.queries.index(connection.query) + 1)
            connection.transport.abort()
        elif fault.isdigit():
            await connection.close(int(fault), "going away")
        else:
            raise AssertionError(fault)
