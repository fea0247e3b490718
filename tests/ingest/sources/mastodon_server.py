"""A Mastodon instance for tests: its REST timelines and streams over real sockets, with faults on demand.

REST and event streams are spoken by hand, so that bytes can be cut anywhere. Websockets, by the library's server, have
a port of their own, which `/api/v2/instance` names as big instances do.
"""

import asyncio
import json
from collections import defaultdict, deque
from contextlib import suppress
from http import HTTPStatus
from urllib.parse import parse_qs, unquote, urlsplit

from websockets.asyncio.server import serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Response

from ingest.sources.mastodon import id_order


class MastodonServer:
    """`streams`: what each connection to a stream does, in order: a coroutine function of a Channel; the last stays.
    `timeline`: statuses by REST. `refusals[path]`: (status, headers) that the next requests get."""

    def __init__(self):
        self.timeline, self.extra = [], []  # `extra`: found by their id only
        self.streams, self.refusals = deque(), defaultdict(deque)
        self.requests = []  # (path, query, headers)
        self.open = 0

    async def __aenter__(self):
        self._http = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.host = f"127.0.0.1:{self._http.sockets[0].getsockname()[1]}"
        self.url = f"http://{self.host}"
        self._sockets = await serve(self._socket, "127.0.0.1", 0, process_request=self._upgrade, ping_interval=None)
        self.websocket_url = f"ws://127.0.0.1:{self._sockets.sockets[0].getsockname()[1]}"
        self._tasks = set()
        return self

    async def __aexit__(self, *_):
        self._sockets.close()
        self._http.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._sockets.wait_closed()

    def asked(self, path):
        return [query for asked, query, _ in self.requests if asked == path]

    async def _serve(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                await self._answer(head.decode(), writer)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, head, writer):
        line, *lines = head.strip().split("\r\n")
        headers = {name.lower(): content for name, content in (line.split(": ", 1) for line in lines)}
        parts = urlsplit(line.split(" ")[1])
        query, path = parse_qs(parts.query), unquote(parts.path)
        self.requests.append((path, query, headers))
        if self.refusals[path]:
            status, more = self.refusals[path].popleft()
            await self._send(writer, status, {"error": "refused"}, more)
        elif path.startswith("/api/v1/streaming"):
            await self._stream(EventStream(writer))
            writer.close()
        else:
            await self._send(writer, *self._rest(path, query))

    def _rest(self, path, query):
        if path == "/api/v2/instance":
            return 200, {"configuration": {"urls": {"streaming": self.websocket_url}}} if self.websocket_url else {}
        known = sorted(self.timeline, key=lambda status: id_order(status["id"]))
        if path.startswith("/api/v1/timelines/"):
            after = query["min_id"][0]
            return 200, [s for s in known if id_order(s["id"]) > id_order(after)][: int(query["limit"][0])][::-1]
        found = {status["id"]: status for status in known + self.extra}
        if path == "/api/v1/statuses":
            assert len(query["id[]"]) <= 20
            return 200, [found[name] for name in query["id[]"] if name in found]
        name = path.removeprefix("/api/v1/statuses/")
        return (200, found[name]) if name in found else (404, {"error": "Record not found"})

    async def _send(self, writer, status, body, headers=None):
        content = json.dumps(body).encode()
        more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        reason = HTTPStatus(status).phrase
        writer.write(f"HTTP/1.1 {status} {reason}\r\nContent-Length: {len(content)}\r\n{more}\r\n".encode() + content)
        await writer.drain()

    def _upgrade(self, _, request):
        parts = urlsplit(request.path)
        headers = {name.lower(): content for name, content in request.headers.raw_items()}
        self.requests.append((parts.path, parse_qs(parts.query), headers))
        if self.refusals[parts.path]:
            status, more = self.refusals[parts.path].popleft()
            return Response(status, HTTPStatus(status).phrase, Headers({"Content-Length": "0", **more}), b"")
        return None

    async def _socket(self, socket):
        with suppress(ConnectionClosed):
            await self._stream(Socket(socket))

    async def _stream(self, channel):
        script = self.streams.popleft() if len(self.streams) > 1 else self.streams[0]
        self.open += 1
        try:
            await script(channel)
        finally:
            self.open -= 1


class Socket:
    """What a script sees of a websocket."""

    def __init__(self, socket):
        self._socket = socket

    async def event(self, name, payload):
        content = payload if isinstance(payload, str) else json.dumps(payload)
        await self.raw(json.dumps({"stream": ["public"], "event": name, "payload": content}))

    async def raw(self, frame):
        await self._socket.send(frame)

    async def stay(self):
        await self._socket.wait_closed()


class EventStream:
    """What a script sees of an event stream. Everything is sent in pieces of `size` bytes."""

    size = 7

    def __init__(self, writer):
        self._writer, self._has_begun = writer, False

    async def event(self, name, payload):
        content = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)
        await self.raw(f"event: {name}\ndata: {content}\n\n".encode())

    async def begin(self, headers=""):
        self._has_begun = True
        kind = "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
        self._writer.write(f"HTTP/1.1 200 OK\r\n{kind}{headers}\r\n:)\n".replace(":)\n", "").encode())
        await self._writer.drain()

    async def raw(self, content):
        if not self._has_begun:
            await self.begin()
        for start in range(0, len(content), self.size):
            piece = content[start : start + self.size]
            self._writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await self._writer.drain()

    async def stay(self):
        if not self._has_begun:
            await self.begin()
        while not self._writer.is_closing():
            await asyncio.sleep(0.02)
            await self.raw(b":thump\n")
