"""What a request passes before any route: its id, who sent it, from which page. Pure ASGI, refuses by default."""

import ipaddress
import logging
import re
import traceback
import uuid
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.accounts import ApiKeys
from services.relay import ClientGone
from services.wire import ApiError

logger = logging.getLogger(__name__)

REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
EXPOSED = ", ".join(
    ["x-request-id", "retry-after", "x-should-retry", "openai-processing-ms"]
    + [f"x-ratelimit-{what}-{unit}" for what in ("limit", "remaining", "reset") for unit in ("requests", "tokens")]
)


def request_id(scope: Scope) -> str:
    return str(scope["state"]["request_id"])


def error_response(error: ApiError) -> Response:
    return JSONResponse(error.body, error.status, headers=error.headers)


class Edge:
    """The outermost layer: gives each request an id, and turns what nobody caught into an honest 500.

    `writes_request_id` False: a proxy in front writes the header (Ray Serve's does), a second one would make two.
    """

    def __init__(self, app: ASGIApp, header_bytes: int, writes_request_id: bool) -> None:
        self.app, self.header_bytes, self.writes_request_id = app, header_bytes, writes_request_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        given = Headers(scope=scope).get("x-request-id", "")
        id = given if REQUEST_ID.fullmatch(given) else f"req_{uuid.uuid4().hex}"
        scope.setdefault("state", {})["request_id"] = id
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                headers["x-content-type-options"] = "nosniff"
                if self.writes_request_id:
                    headers["x-request-id"] = id
            await send(message)

        try:
            size = sum(len(name) + len(value) for name, value in scope["headers"])
            if size > self.header_bytes:
                message = f"The headers are larger than {self.header_bytes} bytes."
                raise ApiError(431, message, code="headers_too_large")
            await self.app(scope, receive, send_with_id)
        except ApiError as error:
            await error_response(error)(scope, receive, send_with_id)
        except ClientGone:
            logger.info("request %s: the client left", id)
        except Exception as error:  # the process edge: log the kind and the place, never the words, and answer
            place = "".join(traceback.format_tb(error.__traceback__))
            logger.error("request %s: %s\n%s", id, type(error).__name__, place)
            if started:
                raise
            broken = ApiError(500, "The server failed to answer.", type="server_error", code="internal_error")
            await error_response(broken)(scope, receive, send_with_id)


class Origins:
    """Browsers. With keys any page may call: it must bring one, and no cookie counts. Without keys only this machine:
    its own address as Host (DNS rebinding), its own pages as Origin (a site that posts to a local port), and no peer
    from elsewhere."""

    def __init__(self, app: ASGIApp, keys: ApiKeys) -> None:
        self.app, self.keys = app, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        if not self.keys.required:
            _require_local(scope, headers.get("host", ""), origin)
        if origin is None:
            return await self.app(scope, receive, send)
        allowed = "*" if self.keys.required else origin

        async def send_with_cors(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered = MutableHeaders(scope=message)
                answered["access-control-allow-origin"] = allowed
                answered["access-control-expose-headers"] = EXPOSED
                answered.add_vary_header("Origin")
            await send(message)

        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await _preflight(headers)(scope, receive, send_with_cors)
            return
        try:
            await self.app(scope, receive, send_with_cors)
        except ApiError as error:  # a refusal too must be readable by the page that gets it
            await error_response(error)(scope, receive, send_with_cors)


def _preflight(headers: Headers) -> Response:
    """Reflects what is asked for: the SDK's x-stainless-* headers change with each release."""
    answer = {"access-control-allow-methods": "GET, HEAD, POST, OPTIONS", "access-control-max-age": "600"}
    if asked := headers.get("access-control-request-headers"):
        answer["access-control-allow-headers"] = asked
    return Response(status_code=204, headers=answer)


def _require_local(scope: Scope, host: str, origin: str | None) -> None:
    peer = scope.get("client")
    if not peer or not _is_local(peer[0]):
        message = "Without API keys this service answers its own machine only. Set up keys to open it to others."
        raise ApiError(403, message, code="not_local")
    if not _is_local(_hostname(f"//{host}")):
        message = "Without API keys this service answers to a loopback address only, such as http://127.0.0.1:8000."
        raise ApiError(403, message, code="host_not_allowed")
    if origin is not None and not (origin.startswith(("http://", "https://")) and _is_local(_hostname(origin))):
        message = "Without API keys this service answers pages of its own machine only. Set up keys to open it."
        raise ApiError(403, message, code="origin_not_allowed")


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_local(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Keys:
    """Deny by default: with keys set up, only `open_paths` answer without one, and only to GET and HEAD."""

    def __init__(self, app: ASGIApp, keys: ApiKeys, open_paths: frozenset[str]) -> None:
        self.app, self.keys, self.open_paths = app, keys, open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self.keys.required and not self._is_open(scope):
            header = Headers(scope=scope).get("authorization")
            if self.keys.owner(header) is None:
                said = "Incorrect API key provided." if header else "You did not provide an API key."
                message = f"{said} Send it as `Authorization: Bearer YOUR_KEY`."
                raise ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
        await self.app(scope, receive, send)

    def _is_open(self, scope: Scope) -> bool:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        return scope["method"] in ("GET", "HEAD") and path in self.open_paths
