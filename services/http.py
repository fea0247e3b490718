"""The HTTP surface: routes to handlers, faults to OpenAI's error JSON. Knows no Ray: it is an ASGI app."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from services.access import Edge, Keys, Origins, error_response, request_id
from services.accounts import ApiKeys
from services.answer import Answer
from services.body import Limits, decode, read_body
from services.events import ChatEvent, ChatRequest, Done, Failed
from services.page import page_routes
from services.relay import ClientGone, Relay, until_gone
from services.sse import AnswerStream, failure
from services.wire import ApiError, ChatCall, read_chat, unknown_model

logger = logging.getLogger(__name__)

WEB = Path(__file__).parent / "web"
HINTS = {
    "/v1/completions": "Use /v1/chat/completions (LlamaIndex: OpenAILike(is_chat_model=True)).",
    "/v1/responses": "Use /v1/chat/completions (AI SDK: openai.chat('groundswell'); LangChain: no use_responses_api).",
    "/v1/embeddings": "This service offers chat only.",
}


class ChatService(Protocol):
    """`stream` is an async generator that ends in exactly one Done or Failed; it raises on our own mistakes only."""

    def stream(self, request: ChatRequest) -> AsyncIterator[ChatEvent]: ...


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A served model. `created` is seconds since the epoch; `details` may say what stands behind the name."""

    id: str
    created: int
    owned_by: str
    context_tokens: int
    details: dict[str, Any] = field(default_factory=dict)


class SearchService(Protocol):
    """Both raise ApiError."""

    async def search(self, raw: Any) -> dict[str, Any]: ...
    async def removal(self, post_id: str) -> dict[str, Any]: ...


class Status(Protocol):
    async def ready(self) -> list[str]:
        """Why the service is not ready; [] when it is."""
        ...

    async def models(self) -> list[ModelInfo]: ...

    async def status(self) -> dict[str, Any]:
        """For the page's status line: posts, newest_age_ms, lag; suggestions (questions to try) if there are any."""
        ...

    async def feed(self) -> dict[str, Any]:
        """How the feed and the index are: rates, lag, counts, the newest post's age."""
        ...


def build_app(
    chat: ChatService,
    search: SearchService,
    status: Status,
    keys: ApiKeys,
    limits: Limits = Limits(),  # noqa: B008 (frozen)
    writes_request_id: bool = True,
) -> Starlette:
    """The ASGI app. With keys, everything but the page and the probes asks for one. Without, only callers on this
    machine are answered, whatever address is listened on. `writes_request_id` False under Ray Serve, whose proxy
    writes that header itself."""
    api = Api(chat, search, status, limits)
    page = page_routes(WEB)
    probes = [Route("/health", api.health), Route("/ready", api.ready)]
    closed = [
        *_both("/v1/chat/completions", api.chat_completions, ["POST"]),
        *_both("/v1/models", api.models, ["GET"]),
        Route("/v1/models/{id:path}", api.model, methods=["GET"]),
        *_both("/v1/search", api.search, ["POST"]),
        *_both("/v1/feed", api.feed, ["GET"]),
        Route("/v1/removals/{id:path}", api.removal, methods=["GET"]),
        Route("/status", api.page_status),
    ]
    middleware = [
        Middleware(Edge, limits.header_bytes, writes_request_id),
        Middleware(Origins, keys),
        Middleware(Keys, keys, frozenset(route.path for route in [*page, *probes])),
    ]
    handlers: dict[Any, Any] = {HTTPException: _http_fault, ApiError: _api_fault}
    app = Starlette(routes=[*page, *probes, *closed], middleware=middleware, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return app


def _both(path: str, handler: Any, methods: list[str]) -> list[Route]:
    """With and without a slash at the end: a redirect would lose a POST's body in some clients."""
    return [Route(path, handler, methods=methods), Route(f"{path}/", handler, methods=methods)]


class Api:
    def __init__(self, chat: ChatService, searching: SearchService, status: Status, limits: Limits) -> None:
        self.chat, self.searching, self.status, self.limits = chat, searching, status, limits

    async def chat_completions(self, request: Request) -> ASGIApp:
        body = await read_body(request.headers, request.receive, self.limits)
        call = read_chat(decode(body, self.limits), self.limits.messages)
        id = request_id(request.scope)
        said = "request %s: chat %s, stream=%s, unknown fields=%d"
        logger.info(said, id, call.request.id, call.stream, call.unknown_fields)
        if call.stream:
            return self._streamed(call, id)
        with Outcome(id) as outcome:
            answer = await until_gone(request.receive, self._complete(call, outcome))
        return JSONResponse(answer)

    def _streamed(self, call: ChatCall, id: str) -> ASGIApp:
        answer = Answer(call.request.id, call.include_usage, call.progress)
        stream = AnswerStream(self.chat.stream(call.request), answer, self.limits)

        async def logged(scope: Scope, receive: Receive, send: Send) -> None:
            with Outcome(id) as outcome:
                await stream(scope, receive, send)
                if stream.failed is not None:
                    outcome.label = stream.failed.code

        return logged

    async def _complete(self, call: ChatCall, outcome: "Outcome") -> dict[str, Any]:
        answer = Answer(call.request.id)
        async with Relay(self.chat.stream(call.request), call.request.id) as relay:
            while True:
                event = await relay.next(self.limits.keep_alive_s)
                if event is None:
                    continue
                answer.add(event)
                if isinstance(event, Failed):
                    outcome.label = event.code
                    raise failure(event)
                if isinstance(event, Done):
                    return answer.completion()

    async def search(self, request: Request) -> Response:
        body = await read_body(request.headers, request.receive, self.limits)
        return JSONResponse(await self.searching.search(decode(body, self.limits)))

    async def removal(self, request: Request) -> Response:
        return JSONResponse(await self.searching.removal(request.path_params["id"]))

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [_model(model) for model in await self.status.models()]})

    async def model(self, request: Request) -> Response:
        id = request.path_params["id"].rstrip("/")
        for model in await self.status.models():
            if model.id == id:
                return JSONResponse(_model(model))
        raise unknown_model(id)

    async def health(self, request: Request) -> Response:
        """The process answers. Asks nobody else."""
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(self.limits.probe_s):
                reasons = await self.status.ready()
        except TimeoutError:
            reasons = [f"no answer from the other parts within {self.limits.probe_s:g} s"]
        if reasons:
            return JSONResponse({"status": "not ready", "reasons": reasons}, 503)
        return JSONResponse({"status": "ready"})

    async def page_status(self, request: Request) -> Response:
        return JSONResponse(await self.status.status(), headers={"cache-control": "no-store"})

    async def feed(self, request: Request) -> Response:
        return JSONResponse(await self.status.feed(), headers={"cache-control": "no-store"})


def _model(model: ModelInfo) -> dict[str, Any]:
    return {
        "id": model.id,
        "object": "model",
        "created": model.created,
        "owned_by": model.owned_by,
        "context_length": model.context_tokens,
        "groundswell": model.details,
    }


class Outcome:
    """One log line for each chat: its request id, how it ended, how long it took."""

    def __init__(self, request_id: str) -> None:
        self.request_id, self.label, self.started_s = request_id, "done", time.monotonic()

    def __enter__(self) -> "Outcome":
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None and issubclass(kind, ClientGone | asyncio.CancelledError):
            self.label = "client_disconnect"
        took_ms = (time.monotonic() - self.started_s) * 1000
        logger.info("request %s: %s after %.0f ms", self.request_id, self.label, took_ms)


async def _api_fault(request: Request, error: ApiError) -> Response:
    return error_response(error)


async def _http_fault(request: Request, error: HTTPException) -> Response:
    """What the router refuses: an unknown path, a wrong method."""
    where = f"{request.method} {request.url.path[:100]}"
    if error.status_code == 404:
        hint = HINTS.get(request.url.path.rstrip("/"), "")
        return error_response(ApiError(404, f"Unknown URL ({where}). {hint}".rstrip(), code="unknown_url"))
    message = f"{error.detail} ({where})."
    return error_response(ApiError(error.status_code, message, code="method_not_allowed", headers=error.headers))
