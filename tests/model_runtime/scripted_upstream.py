"""An OpenAI-compatible server on a free loopback port that does what a test tells it, byte by byte."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

REASONS = {200: "OK", 400: "Bad Request"}


@dataclass
class Call:
    """A request, and the means to answer it."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    reader: asyncio.StreamReader = field(repr=False)
    writer: asyncio.StreamWriter = field(repr=False)
    connection: int = 0

    async def answer(self, status: int, body: Any, **headers: str) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {"content-type": "application/json", "content-length": str(len(content))}
        await self._head(status, given | {name.replace("_", "-"): value for name, value in headers.items()})
        await self.send(content)

    async def begin(self, kind: str = "text/event-stream; charset=utf-8") -> None:
        await self._head(200, {"content-type": kind, "transfer-encoding": "chunked"})

    async def event(self, event: Any) -> None:
        await self.piece(f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode())

    async def piece(self, content: bytes) -> None:
        """One chunk of the transfer encoding, flushed."""
        await self.send(b"%x\r\n%s\r\n" % (len(content), content))

    async def end(self) -> None:
        await self.send(b"0\r\n\r\n")

    def drop(self) -> None:
        self.writer.transport.abort()

    async def send(self, content: bytes) -> None:
        self.writer.write(content)
        await self.writer.drain()

    async def gone(self) -> None:
        """Returns when the client has closed the connection."""
        with contextlib.suppress(ConnectionError):
            assert await self.reader.read(1) == b""

    async def _head(self, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Other')}", *(f"{key}: {headers[key]}" for key in headers)]
        await self.send("\r\n".join([*lines, "", ""]).encode())


Step = Callable[[Call], Awaitable[None]]
MODELS = {"object": "list", "data": [{"id": "tiny", "object": "model"}, {"id": "other", "max_model_len": 1000}]}


def delta(text: str | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    content = {} if text is None else {"content": text}
    return {
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": content, "finish_reason": finish} | more],
    }


def usage(prompt: int, completion: int, **more: Any) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion} | more}


def says(*events: Any, end: bool = True) -> Step:
    """Streams these events, each in a piece of its own."""

    async def step(call: Call) -> None:
        await call.begin()
        for event in events:
            await call.event(event)
        if end:
            await call.end()

    return step


HELLO = says(delta("Hello"), delta(" there"), delta(finish="stop"), usage(31, 7), "[DONE]")


def refuses(status: int, body: Any = None, **headers: str) -> Step:
    async def step(call: Call) -> None:
        await call.answer(status, {"error": {"message": "no"}} if body is None else body, **headers)

    return step


LISTS = refuses(200, MODELS)


class ScriptedUpstream:
    """Answers each chat by the next step of `script`, and by HELLO after the last."""

    def __init__(self, script: Sequence[Step] = (), models: Step = LISTS) -> None:
        self.script, self.models = list(script), models
        self.calls: list[Call] = []
        self.connections = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def on(self, port: int = 0) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def chats(self) -> list[Call]:
        return [call for call in self.calls if call.method == "POST"]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        connection = self.connections
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                call = await self._read(reader, writer)
                call.connection = connection
                self.calls.append(call)
                await self._step(call)(call)
                if writer.transport.is_closing():
                    break
        writer.close()

    def _step(self, call: Call) -> Step:
        if call.method == "GET":
            return self.models
        return self.script.pop(0) if self.script else HELLO

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Call:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = lines[0].split(" ")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        keep = next((line.split(": ", 1)[1] for line in lines if line.lower().startswith("authorization")), "")
        headers |= {"authorization": keep} if keep else {}
        return Call(method, path, headers, json.loads(body) if body else None, reader, writer)
