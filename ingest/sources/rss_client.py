"""The RSS source: many feeds, each asked at its own pace."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

import httpx

from ingest.payload import Refused
from ingest.post import Post
from ingest.settings import RssSettings
from ingest.sources.arrival import Arrival, SourceEnded, SourceStats
from ingest.sources.backoff import BackOff
from ingest.sources.feed_time import read_time
from ingest.sources.rss import Reading, read_feed
from ingest.sources.rss_state import FeedState, dump, load

MAX_BODY = 5_000_000  # bytes, decoded; feedparser takes some 10 s for the worst of that
MAX_REDIRECTS = 5
MAX_WAIT_S = 86_400.0
MAX_AT_ONCE = 8

_HEADERS = {
    "User-Agent": "groundswell",
    "Accept": "application/atom+xml, application/rss+xml, application/xml;q=0.9, text/xml;q=0.9, */*;q=0.5",
    "Accept-Encoding": "gzip, deflate",
}
_MOVED_FOR_GOOD = (301, 308)
_MOVED = (*_MOVED_FOR_GOOD, 302, 303, 307)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: httpx.Headers
    body: bytes
    url: str  # that answered
    at: str  # where the feed has moved to for good


@dataclass(frozen=True, slots=True)
class _Poll:
    """What asking a feed once came to. `least_wait_s`: the feed or its server asks for so much patience."""

    state: FeedState
    posts: tuple[Post, ...] = field(default=(), repr=False)
    fault: str = ""
    least_wait_s: float = 0.0
    is_gone: bool = False


class RssSource:
    """`arrivals` gives the new and changed entries of a feed together, the oldest first; it raises SourceEnded when no
    feed is set or every feed is gone (410).

    `poll_s`: how long one answer may take. `backoff(every_s)`: the waits after failures, each at least the usual one.
    Raises ValueError for an address that is not http:// or https://.
    """

    name = "rss"

    def __init__(
        self,
        settings: RssSettings,
        *,
        poll_s: float = 60.0,
        backoff: Callable[[float], BackOff] = lambda every_s: BackOff(every_s, max(every_s, MAX_WAIT_S / 4)),
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.stats = SourceStats()
        self._urls = tuple(dict.fromkeys(settings.urls))
        for url in self._urls:
            if not _is_web(url):
                raise ValueError(f"{url} is no address of a feed: it must begin with http:// or https://")
        self._every_s, self._poll_s = settings.every_s, poll_s
        self._backoff, self._clock_ms, self._sleep = backoff, clock_ms, sleep
        self._faults: dict[str, str] = {}

    async def arrivals(self, cursor: str | None) -> AsyncGenerator[Arrival, None]:
        if not self._urls:
            raise SourceEnded(self.name, "no feeds are set")
        known = load(cursor)
        states = {url: known.get(url, FeedState()) for url in self._urls}
        polls: asyncio.Queue[tuple[str, _Poll]] = asyncio.Queue(maxsize=1)
        gate = asyncio.Semaphore(MAX_AT_ONCE)
        async with httpx.AsyncClient(headers=_HEADERS, timeout=self._poll_s) as client:
            following = [asyncio.create_task(self._follow(url, states[url], client, gate, polls)) for url in self._urls]
            try:
                while (come := await _next(polls, following)) is not None:
                    url, poll = come
                    if poll.state != states[url]:
                        # Only now, so that no cursor says of a feed what was not given.
                        states[url] = poll.state
                        yield Arrival(poll.posts, dump(states))
            finally:
                for task in following:
                    task.cancel()
                await asyncio.gather(*following, return_exceptions=True)
        raise SourceEnded(self.name, "every feed is gone (410)")

    async def _follow(
        self,
        url: str,
        state: FeedState,
        client: httpx.AsyncClient,
        gate: asyncio.Semaphore,
        polls: asyncio.Queue[tuple[str, _Poll]],
    ) -> None:
        """Returns when the feed is gone."""
        backoff = self._backoff(self._every_s)
        while True:
            async with gate:
                poll = await self._poll(url, state, client)
            self._note(url, poll)
            state = poll.state
            await polls.put((url, poll))
            if poll.is_gone:
                return
            if not poll.fault:
                backoff.reset()
            usual_s = max(self._every_s, backoff.next_s()) if poll.fault else self._every_s
            await self._sleep(min(max(usual_s, poll.least_wait_s), max(MAX_WAIT_S, self._every_s)))

    async def _poll(self, url: str, state: FeedState, client: httpx.AsyncClient) -> _Poll:
        try:
            async with asyncio.timeout(self._poll_s):
                answer = await _fetch(client, state.at or url, state)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:  # TimeoutError is an OSError
            return _Poll(replace(state, at=""), fault=type(error).__name__)
        except Refused as refused:
            self.stats.malformed[refused.reason] += 1
            return _Poll(replace(state, at=""), fault=str(refused))
        state = replace(state, at="" if answer.at == url else answer.at)
        if answer.status == 200:
            return await self._read(url, state, answer)
        if answer.status == 304:
            return _Poll(state)
        wait_s = self._asked_wait_s(answer.headers)
        return _Poll(replace(state, at=""), (), f"HTTP {answer.status}", wait_s, is_gone=answer.status == 410)

    async def _read(self, url: str, state: FeedState, answer: _Answer) -> _Poll:
        content_type = answer.headers.get("content-type", "")
        try:
            reading: Reading = await asyncio.to_thread(
                read_feed, answer.body, url, state.seen, self._clock_ms(), content_type=content_type, at=answer.url
            )
        except Refused as refused:
            self.stats.malformed[refused.reason] += 1
            return _Poll(state, fault="not a feed")
        etag, modified = (_kept(answer.headers.get(name, "")) for name in ("etag", "last-modified"))
        self.stats.events += len(reading.posts) + reading.skipped.total()
        self.stats.skipped.update(reading.skipped)
        if reading.posts:
            self.stats.lag_ms = max(0, self._clock_ms() - max(post.created_ms for post in reading.posts))
        state = replace(state, etag=etag, modified=modified, seen=reading.seen)
        return _Poll(state, reading.posts, least_wait_s=reading.ttl_s or 0.0)

    def _asked_wait_s(self, headers: httpx.Headers) -> float:
        """Retry-After: seconds, or a date."""
        given = headers.get("retry-after", "").strip()
        if given.isascii() and given.isdigit():
            return min(float(given[:9]), MAX_WAIT_S)
        until_us = read_time(given)
        return 0.0 if until_us is None else min(max(0.0, until_us / 1e6 - self._clock_ms() / 1000), MAX_WAIT_S)

    def _note(self, url: str, poll: _Poll) -> None:
        host = httpx.URL(url).host
        if not poll.fault:
            self.stats.connects += 1
        elif poll.fault != self._faults.get(url):
            logger.warning("rss: the feed at %s: %s%s", host, poll.fault, ", and is over" if poll.is_gone else "")
        self._faults[url] = poll.fault
        bad = [(url, fault) for url, fault in self._faults.items() if fault]
        first = f"{httpx.URL(bad[0][0]).host}: {bad[0][1]}" if bad else ""
        self.stats.fault = first if len(bad) < 2 else f"{len(bad)} of {len(self._urls)} feeds, first {first}"


async def _next(
    polls: asyncio.Queue[tuple[str, _Poll]], following: list["asyncio.Task[None]"]
) -> tuple[str, _Poll] | None:
    """None when every feed is gone. Raises what ended a task otherwise."""
    getting = asyncio.create_task(polls.get())
    try:
        while not getting.done():
            running = {task for task in following if not task.done()}
            for task in following:
                if task.done():
                    task.result()
            if not running and polls.empty():
                return None
            await asyncio.wait({getting, *running}, return_when=asyncio.FIRST_COMPLETED)
        return getting.result()
    finally:
        getting.cancel()


async def _fetch(client: httpx.AsyncClient, url: str, state: FeedState) -> _Answer:
    """Follows redirects. Raises httpx.HTTPError, httpx.InvalidURL, OSError, Refused("redirect" or "too_large")."""
    asked = {"If-None-Match": state.etag, "If-Modified-Since": state.modified}
    headers = {name: value for name, value in asked.items() if value}
    at, is_for_good = url, True
    for _ in range(MAX_REDIRECTS + 1):
        async with client.stream("GET", url, headers=headers) as response:
            location = response.headers.get("location", "")
            if response.status_code not in _MOVED or not location:
                body = await _body(response) if response.status_code == 200 else b""
                return _Answer(response.status_code, response.headers, body, url, at)
            url = str(response.url.join(location))  # httpx asks for http and https only
            is_for_good = is_for_good and response.status_code in _MOVED_FOR_GOOD
            at = url if is_for_good else at
    raise Refused("redirect", f"more than {MAX_REDIRECTS}")


async def _body(response: httpx.Response) -> bytes:
    """Raises Refused once it is too large."""
    content = bytearray()
    async for piece in response.aiter_bytes():
        content += piece
        if len(content) > MAX_BODY:
            raise Refused("too_large")
    return bytes(content)


def _is_web(url: str) -> bool:
    """By both who read it: httpx, which asks for it, and urlsplit, which names the feed by it."""
    try:
        parts = httpx.URL(url)
        return parts.scheme in ("http", "https") and bool(parts.host) and bool(urlsplit(url).hostname)
    except (httpx.InvalidURL, ValueError):
        return False


def _kept(value: str) -> str:
    """A header that can be sent back."""
    return value if value.isascii() and value.isprintable() and len(value) <= 500 else ""
