"""X's API for tests: HTTP/1.1 over a real socket, chunked streams in pieces of any size, faults on demand."""

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

STREAM = "/2/tweets/search/stream"
RULES = STREAM + "/rules"
RECENT = "/2/tweets/search/recent"
LOOK_UP = "/2/tweets"
HANG = object()  # keeps the connection open and sends nothing
CUT = object()  # closes it without an end


@dataclass(frozen=True)
class Reply:
    body: object = field(default_factory=dict)
    status: int = 200
    headers: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    path: str
    parameters: dict
    body: object
    headers: dict


class XServer:
    """`streams`: for each connection a Reply, or what it sends: bytes, objects (as lines), HANG, CUT. When they are
    used up a connection hangs. `replies[path]`: a Reply each, the last one again and again."""

    def __init__(self):
        self.streams = []
        self.replies = {RULES: [Reply({"data": [{"id": "1", "value": "fire"}]})], RECENT: [Reply()], LOOK_UP: [Reply()]}
        self.asked = []
        self.piece = 7  # bytes in a chunk

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._tasks = set()
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def asked_for(self, path):
        return [one for one in self.asked if one.path == path]

    async def _serve(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._answer(reader, writer):
                    pass
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _answer(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        _, target, _ = head[0].split(" ")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        parts = urlsplit(target)
        self.asked.append(
            Asked(parts.path, dict(parse_qsl(parts.query)), json.loads(body) if body else None, headers)
        )  # fmt: skip
        if parts.path == STREAM:
            script = self.streams.pop(0) if self.streams else [HANG]
            if isinstance(script, Reply):
                return await self._reply(writer, script)
            return await self._stream(writer, script)
        replies = self.replies[parts.path]
        return await self._reply(writer, replies.pop(0) if len(replies) > 1 else replies[0])

    async def _reply(self, writer, reply):
        if reply.body is HANG:
            await asyncio.sleep(3600)
        body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        headers = {"content-length": len(body), "content-type": "application/json", **reply.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {reply.status} X\r\n{lines}\r\n".encode() + body)
        await writer.drain()
        return True

    async def _stream(self, writer, script):
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for step in script:
            if step is CUT:
                return False
            if step is HANG:
                await asyncio.sleep(3600)
            line = step if isinstance(step, bytes) else json.dumps(step, ensure_ascii=False).encode() + b"\r\n"
            for at in range(0, len(line), self.piece):
                piece = line[at : at + self.piece]
                writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                await writer.drain()
                await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True
