"""One connection to a Mastodon stream, by websocket or as server-sent events -> its messages, until it breaks."""

import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

import httpx
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus, WebSocketException

from ingest.payload import MAX_BYTES
from ingest.sources.arrival import SourceEnded
from ingest.sources.mastodon import ERROR, Message, read_frame
from ingest.sources.mastodon_channel import Channel
from ingest.sources.mastodon_fields import SOURCE
from ingest.sources.mastodon_rest_client import retry_after_s
from ingest.sources.sse import EventLines

CONNECTED = "CONNECTED"  # the first message; no name of an instance's is in capitals
_MOST_FRAME = 4 * MAX_BYTES  # the payload of a frame is JSON within JSON
_FOR_EVER = (400, 401, 403, 410)


class Dropped(ConnectionError):
    """The connection is no more, or was not made; another may be, after `wait_s` if the instance says so."""

    def __init__(self, fault: str, wait_s: float = 0.0) -> None:
        super().__init__(fault, wait_s)
        self.fault, self.wait_s = fault, wait_s

    def __str__(self) -> str:
        return self.fault


@dataclass(frozen=True, slots=True)
class Line:
    """How to connect. Without a byte or a pong for `alive_s` a connection counts as dead: event streams send `:thump`
    every 15 s, websockets are pinged. Every generator ends with Dropped or SourceEnded."""

    channel: Channel
    token: str = field(repr=False)
    alive_s: float

    async def websocket(self, base_url: str) -> AsyncGenerator[Message, None]:
        url = base_url.replace("http", "ws", 1) + f"/api/v1/streaming?{urlencode(self.channel.subscription)}"
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        beat_s = self.alive_s / 2
        try:
            async with connect(
                url, additional_headers=headers, max_size=_MOST_FRAME, open_timeout=self.alive_s, close_timeout=1,
                ping_interval=beat_s, ping_timeout=beat_s,
            ) as socket:  # fmt: skip
                yield Message(CONNECTED, None, _now_ms())
                async for frame in socket:
                    message = read_frame(frame, _now_ms())
                    if message.event == ERROR:
                        raise self._refusal(message.payload, {})
                    yield message
        except InvalidStatus as error:
            raise self._refusal(error.response.status_code, error.response.headers) from None
        except (WebSocketException, OSError) as error:
            raise Dropped(_fault(error)) from error
        raise Dropped("the instance closed the connection")

    async def events(self, base_url: str, http: httpx.AsyncClient) -> AsyncGenerator[Message, None]:
        """`http` carries the token."""
        url = f"{base_url}/api/v1{self.channel.events_path}"
        headers, parameters = {"Accept": "text/event-stream"}, dict(self.channel.events_parameters)
        lines = EventLines(MAX_BYTES)
        try:
            async with http.stream("GET", url, params=parameters, headers=headers, timeout=self.alive_s) as response:
                if response.status_code != 200:
                    raise self._refusal(response.status_code, response.headers)
                if not response.headers.get("content-type", "").startswith("text/event-stream"):
                    raise Dropped("the instance answers with no event stream")
                yield Message(CONNECTED, None, _now_ms())
                async for received in response.aiter_bytes():
                    for event in lines.feed(received):
                        yield Message(event.name, event.data, _now_ms())
        except httpx.RequestError as error:
            raise Dropped(_fault(error)) from error
        raise Dropped("the instance closed the connection")

    def _refusal(self, status: int, headers: Mapping[str, str]) -> Dropped | SourceEnded:
        if status == 401 and not self.token:
            return SourceEnded(SOURCE, "401: it asks for an access token, as most instances do since Mastodon 4.2")
        if status in (401, 403):
            return SourceEnded(SOURCE, f"{status}: the access token is refused")
        if status in _FOR_EVER:
            return SourceEnded(SOURCE, f"{status}: the instance has no such stream")
        return Dropped(f"the instance answers {status}", retry_after_s(headers, time.time()) or 0.0)


def host_of(url: str) -> str:
    """With its port if it has one. Raises ValueError when it is no http(s) address."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:  # reading `port` checks it
        raise ValueError(f"{url!r} is no address of a Mastodon instance")
    return parts.netloc.rpartition("@")[2].lower()


def _fault(error: BaseException) -> str:
    """Never the message: it may hold an address with a token in it."""
    return type(error).__name__


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
