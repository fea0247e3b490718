"""A chat and a status that follow a script, and the app that serves them on a free port."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn

from ingest.post import Receipt
from services.accounts import ApiKeys
from services.body import Limits
from services.events import ChatEvent, ChatRequest, Citation, Delta, Done, Marked, Searching, Sources
from services.http import ModelInfo, build_app
from services.search import Search
from tests.fakes import FakeRetriever, FakeScreen

KEY = "sk-right"


def citation(number: int, **changes: Any) -> Citation:
    fields: dict[str, Any] = {
        "number": number,
        "post_id": f"sample:{number}",
        "url": f"https://social.example/{number}",
        "title": f"Ana {number} (@ana{number})",
        "author_name": f"Ana {number}",
        "author_handle": f"ana{number}",
        "source": "sample",
        "created_ms": 1_796_000_000_000 + number,
        "snippet": f"post {number}",
    }
    return Citation(**{**fields, **changes})


ONE, TWO = citation(1), citation(2)
SCRIPT: list[ChatEvent] = [
    Searching(1204),
    Sources((ONE, TWO), 42_000),
    Delta("\N{ROCKET} The bridge is "),
    Delta("shut. [1]", (Marked(ONE, 22, 25),)),
    Done("stop", 31, 7, cited=(ONE,), newest_age_ms=42_000, unsupported_sentences=1),
]
TEXT = "\N{ROCKET} The bridge is shut. [1]"


class ScriptedChat:
    """Yields the script's events, sleeps its numbers of seconds, raises its exceptions."""

    def __init__(self, script: list[ChatEvent | float | Exception] | None = None) -> None:
        self.script = SCRIPT if script is None else script
        self.requests: list[ChatRequest] = []
        self.started, self.closed, self.completed = asyncio.Event(), asyncio.Event(), False

    async def stream(self, request: ChatRequest) -> AsyncIterator[ChatEvent]:
        self.requests.append(request)
        self.started.set()
        try:
            for step in self.script:
                if isinstance(step, Exception):
                    raise step
                if isinstance(step, int | float):
                    await asyncio.sleep(step)
                else:
                    yield step
            self.completed = True
        finally:
            self.closed.set()


class ScriptedStatus:
    def __init__(self, reasons: list[str] | None = None, delay_s: float = 0.0) -> None:
        self.reasons, self.delay_s = reasons or [], delay_s

    async def ready(self) -> list[str]:
        await asyncio.sleep(self.delay_s)
        return self.reasons

    async def models(self) -> list[ModelInfo]:
        return [ModelInfo("groundswell", 1_796_000_000, "groundswell", 2048, {"weights": "scripted"})]

    async def status(self) -> dict[str, Any]:
        return {"posts": 1204, "newest_age_ms": 900, "lag": 0}

    async def feed(self) -> dict[str, Any]:
        return {"object": "feed", "newest_age_ms": 900, "ingest": {"lag_records": 0}, "index": None, "source": None}


class Receipts:
    """One post was removed: t:gone."""

    async def receipt(self, post_id: str) -> Receipt | None:
        return Receipt("t:gone", "deleted", 1_796_000_000_000, 1_796_000_000_250) if post_id == "t:gone" else None


def scripted_app(script: Any = None, keys: bool = False, status: Any = None, **limits: Any) -> tuple[Any, ScriptedChat]:
    chat = ScriptedChat(script)
    api_keys = ApiKeys([KEY] if keys else None)
    search = Search(FakeScreen(), FakeRetriever([]), Receipts())
    return build_app(chat, search, status or ScriptedStatus(), api_keys, Limits(**limits)), chat


def client(app: Any, **kwargs: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost:8000", **kwargs)


def ask(content: Any = "Is the bridge open?", **fields: Any) -> dict[str, Any]:
    return {"model": "groundswell", "messages": [{"role": "user", "content": content}], **fields}


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[int]:
    """The app behind uvicorn on a free loopback port, in this event loop."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None, timeout_graceful_shutdown=1))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:  # noqa: ASYNC110 (uvicorn offers no event)
            await asyncio.sleep(0.01)
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await task
