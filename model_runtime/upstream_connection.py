"""The HTTP side of an OpenAI-compatible server: its list of models, and a POST that is answered by events. Knows no
tokens. No error holds the key, the prompt or the answer."""

import asyncio
import ipaddress
import json
import re
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Literal

import httpx

from model_runtime.event_stream import EventStream, EventTooLong

CONNECT_TIMEOUT_S = 5.0
MOST_BODY_BYTES = 1 << 20  # of an answer that is no stream
_KEY = re.compile(r"[\x21-\x7e]+")
_LABEL = re.compile(r"[A-Za-z0-9_.\[\]/+-]{1,64}")
_BUSY = (429, 503, 529)
_PASSING = (408, 500, 502, 504)
_NO_LIST = (404, 405, 501)

Kind = Literal["unreached", "busy", "broken", "silent", "refused"]


class UpstreamFault(Exception):
    """Why there is no (more) answer. All but "silent" and "refused" may pass. `pause_s`: what the upstream asks for
    before the next attempt. `unsupported`: a field of the request that it does not know."""

    def __init__(self, kind: Kind, reason: str, pause_s: float | None = None, unsupported: str = "") -> None:
        super().__init__(kind, reason, pause_s, unsupported)
        self.kind, self.reason, self.pause_s, self.unsupported = kind, reason, pause_s, unsupported

    @property
    def may_pass(self) -> bool:
        return self.kind in ("unreached", "busy", "broken")


class Patience:
    """A deadline of the running loop's clock that moves on with every sign of progress."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.renew(seconds)

    def renew(self, seconds: float) -> None:
        self.deadline = asyncio.get_running_loop().time() + seconds

    @property
    def left_s(self) -> float:
        return self.deadline - asyncio.get_running_loop().time()


class Connection:
    """Raises ValueError for a URL or a key file that cannot be used. `sends_key_openly`: unencrypted over a network."""

    def __init__(self, url: str, key_file: str) -> None:
        base = _base_url(url)
        self.host = f"{base.host}:{base.port}" if base.port else base.host
        key = _read_key(key_file) if key_file else ""
        self.sends_key_openly = bool(key) and base.scheme == "http" and not _is_loopback(base.host)
        self._client = httpx.AsyncClient(
            base_url=base,
            headers={"accept-encoding": "identity"} | ({"authorization": f"Bearer {key}"} if key else {}),
            timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S),  # of all else, Patience is the clock
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=16),
            trust_env=False,  # no proxy, and no other key from ~/.netrc
        )

    async def models(self, patience: Patience) -> list[dict[str, Any]]:
        """As /models lists them; empty where there is no such list. Raises UpstreamFault."""
        with _faults(self.host, patience):
            response = await self._send("GET", "models", patience)
            try:
                body = await _read(response, patience)
            finally:
                await response.aclose()
        if response.status_code in _NO_LIST:
            return []
        if response.status_code != 200:
            raise _refusal(self.host, response, body)
        listed = _object(body).get("data")
        models = [model for model in listed if isinstance(model, dict)] if isinstance(listed, list) else []
        return [model for model in models if isinstance(model.get("id"), str)]

    async def events(self, body: Mapping[str, Any], patience: Patience) -> AsyncGenerator[list[str], None]:
        """The data of the events of each piece that comes, [] for half an event or a comment. Closing it closes the
        connection. Raises UpstreamFault."""
        events = EventStream()
        with _faults(self.host, patience):
            response = await self._send("POST", "chat/completions", patience, body)
        try:
            with _faults(self.host, patience):
                await self._require_events(response, patience)
            pieces = response.aiter_bytes()
            while True:
                with _faults(self.host, patience):
                    async with asyncio.timeout_at(patience.deadline):
                        piece = await anext(pieces, None)
                    if piece is None:
                        return
                    found = events.push(piece)
                yield found
        finally:
            await response.aclose()

    async def close(self) -> None:
        await self._client.aclose()

    async def _send(
        self, method: str, path: str, patience: Patience, body: Mapping[str, Any] | None = None
    ) -> httpx.Response:
        request = self._client.build_request(method, path, json=body)
        async with asyncio.timeout_at(patience.deadline):
            return await self._client.send(request, stream=True)

    async def _require_events(self, response: httpx.Response, patience: Patience) -> None:
        if response.status_code != 200:
            raise _refusal(self.host, response, await _read(response, patience))
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "text/event-stream":
            found = kind if _LABEL.fullmatch(kind) else "something else"
            raise UpstreamFault("refused", f"{self.host} answered with {found} instead of a stream of events")


@contextmanager
def _faults(host: str, patience: Patience) -> Iterator[None]:
    """What httpx raises, as an UpstreamFault."""
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise UpstreamFault("unreached", f"no connection to {host} ({type(error).__name__})") from error
    except httpx.HTTPError as error:
        raise UpstreamFault("broken", f"the connection to {host} broke ({type(error).__name__})") from error
    except TimeoutError as error:
        raise UpstreamFault("silent", f"{host} sent nothing new for {patience.seconds:g} s") from error
    except EventTooLong as error:
        raise UpstreamFault("refused", f"{host} sent {error}") from error


async def _read(response: httpx.Response, patience: Patience) -> bytes:
    """The body, or its first part."""
    body = b""
    pieces = response.aiter_bytes()
    while len(body) < MOST_BODY_BYTES:
        async with asyncio.timeout_at(patience.deadline):
            piece = await anext(pieces, None)
        if piece is None:
            break
        body += piece
    return body


def _refusal(host: str, response: httpx.Response, body: bytes) -> UpstreamFault:
    status = response.status_code
    error = _object(body).get("error")
    words = {name: error.get(name) for name in ("code", "type", "param")} if isinstance(error, dict) else {}
    said = {name: word for name, word in words.items() if isinstance(word, str) and _LABEL.fullmatch(word)}
    reason = f"{host} answered {status}" + (f" ({', '.join(said.values())})" if said else "")
    if said.get("code") == "insufficient_quota":  # a 429 that does not pass
        return UpstreamFault("refused", reason)
    kind: Kind = "busy" if status in _BUSY else "broken" if status in _PASSING else "refused"
    unsupported = said.get("param", "") if said.get("code") == "unsupported_parameter" else ""
    return UpstreamFault(kind, reason, _retry_after_s(response.headers), unsupported)


def _retry_after_s(headers: httpx.Headers) -> float | None:
    """Seconds, or a date."""
    given = headers.get("retry-after", "").strip()
    try:
        return max(0.0, float(given) if given[:1].isdigit() else parsedate_to_datetime(given).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def _object(body: bytes) -> dict[str, Any]:
    try:
        read = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


def _base_url(url: str) -> httpx.URL:
    """With the path that OpenAI's clients take as theirs: /v1 unless another is given."""
    try:
        base = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"model.upstream_url is no URL: {error}") from None
    if base.scheme not in ("http", "https") or not base.host:
        raise ValueError("model.upstream_url must begin with http:// or https:// and name a host")
    if base.userinfo or base.query or base.fragment:
        raise ValueError(
            "model.upstream_url must hold no user, query or fragment; keys go to model.upstream_api_key_file"
        )
    return base if base.path.strip("/") else base.copy_with(path="/v1")


def _read_key(path: str) -> str:
    try:
        key = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"model.upstream_api_key_file: cannot read {path} ({type(error).__name__})") from None
    if not _KEY.fullmatch(key):
        raise ValueError(f"model.upstream_api_key_file: {path} must hold one key, without spaces")
    return key


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
