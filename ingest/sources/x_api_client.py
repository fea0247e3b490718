"""HTTP with X's API v2: the token, time-outs, limits on answers, and one kind of error. Knows no posts."""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import cache
from pathlib import Path
from ssl import SSLContext
from typing import Any

import httpx

from ingest.payload import Refused, parse
from ingest.sources.ndjson import Lines
from ingest.sources.x_backoff import XFault
from ingest.sources.x_compliance import problem
from ingest.sources.x_fields import label

MAX_ANSWER = 8_000_000
MAX_PROBLEM = 64_000
_TOKEN = re.compile(r"[!-~]{8,4000}", re.ASCII)
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class XApi:
    """Raises XFault only. Opens connections when they are needed; `close` may be followed by further calls."""

    def __init__(self, url: str, token_file: Path | None, *, silence_s: float) -> None:
        """`silence_s`: a stream that sends nothing for so long is dead; X sends a newline every 20 s."""
        self._url, self._token_file, self._silence_s = url.rstrip("/"), token_file, silence_s
        self._client: httpx.AsyncClient | None = None

    async def ask(
        self, path: str, parameters: Mapping[str, str] | None = None, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:  # fmt: skip
        """GET, with a `body` POST."""
        method = "GET" if body is None else "POST"
        async with self._response(method, path, parameters, body) as response:
            answer = await _limited(response, MAX_ANSWER)
        try:
            return parse(answer, max_bytes=MAX_ANSWER)
        except Refused as refused:
            raise XFault("http", f"answer: {refused.reason}", may_be_billed=True) from None

    @asynccontextmanager
    async def stream(self, path: str, parameters: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        """Lines, b"" for a keep-alive. They end when X closes the stream."""
        async with (
            self._response("GET", path, parameters, None) as response,
            aclosing(_lines(response)) as lines,
        ):
            yield lines

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    @asynccontextmanager
    async def _response(
        self, method: str, path: str, parameters: Mapping[str, str] | None, body: Mapping[str, Any] | None
    ) -> AsyncIterator[httpx.Response]:
        """What httpx raises while the response is read is turned into an XFault as well."""
        headers = {"Authorization": f"Bearer {self._token()}", "User-Agent": "groundswell", "Accept-Encoding": "gzip"}
        if self._client is None:
            self._client = httpx.AsyncClient(timeout=self._silence_s, verify=_tls())
        try:
            request = self._client.stream(method, self._url + path, params=parameters, json=body, headers=headers)
            async with request as response:
                if response.status_code >= 300:
                    raise await _fault(response)
                yield response
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):
            raise XFault("ended", "the url is none") from None
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise XFault("network", type(error).__name__, may_be_billed=not isinstance(error, _NOT_SENT)) from None

    def _token(self) -> str:
        """Read each time, so that a new token needs no restart."""
        try:
            token = self._token_file.read_text("ascii").strip() if self._token_file else ""
        except (OSError, UnicodeDecodeError):
            token = ""
        if not _TOKEN.fullmatch(token):
            raise XFault("ended", "no token file, or no token in it")
        return token


@cache
def _tls() -> SSLContext:
    """Reading all certificates takes 0.1 s, and a source opens its client anew each time."""
    return httpx.create_ssl_context()


async def _lines(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    lines = Lines()
    async for piece in response.aiter_bytes():
        for line in lines.feed(piece):
            yield line


async def _limited(response: httpx.Response, limit: int) -> bytes:
    body = b""
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > limit:
            raise XFault("http", "answer: too_large", may_be_billed=True)
    return body


async def _fault(response: httpx.Response) -> XFault:
    """401 and 403 end it: a refused token, a plan without this. 402 (no credits) and 409 (no rules) may be mended."""
    status = response.status_code
    try:
        said = parse(await _limited(response, MAX_PROBLEM))
        reason = f"{status} {label(problem(said) or said.get('title'))}"
    except (Refused, XFault):
        reason = str(status)
    if status in (401, 403):
        return XFault("ended", reason)
    if status == 429:
        reset = response.headers.get("x-rate-limit-reset", "")
        return XFault("rate", reason, float(reset) if re.fullmatch(r"[0-9]{1,12}", reset, re.ASCII) else None)
    return XFault("http", reason)
