"""A Mastodon instance over REST: where it streams, which statuses were missed, which of some are gone.

Streaming has no way to resume (docs.joinmastodon.org/methods/streaming): what happened while not connected is asked for
here.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import httpx

from ingest.sources.backoff import BackOff
from ingest.sources.mastodon import id_order
from ingest.sources.mastodon_channel import Channel
from ingest.sources.mastodon_fields import local_id_of
from ingest.versions import time_us

PAGE = 40  # the most that Mastodon gives
BATCH = 20  # the most ids that it takes
TRIES = 5
MOST_BYTES = 16_000_000
MOST_WAIT_S = 900.0
_GONE = (404, 410)


class RestRefused(RuntimeError):
    """The instance does not answer this. `status` 0: it answers with something else than JSON."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status

    def __str__(self) -> str:
        return f"the instance answers {self.status}" if self.status else "the instance answers with no JSON"


class TooMuchMissed(RuntimeError):
    """More statuses were missed than may be asked for."""


class Rest:
    """`http` carries the token. Raises httpx.RequestError after some tries, RestRefused."""

    def __init__(
        self, http: httpx.AsyncClient, url: str, channel: Channel, max_pages: int, first_wait_s: float
    ) -> None:
        self._http, self._url, self._channel = http, url.rstrip("/"), channel
        self._max_pages, self._first_wait_s = max_pages, first_wait_s

    async def streaming_url(self) -> str:
        """The http(s) address that streams: another host on big instances. Never one without TLS for one with."""
        try:
            instance = await self._get("/api/v2/instance", tries=1)
            urls = instance["configuration"]["urls"]
            parts = urlsplit(urls["streaming"])
        except (RestRefused, KeyError, TypeError, ValueError, AttributeError):
            return self._url
        secure = parts.scheme in ("wss", "https")
        if not parts.netloc or (urlsplit(self._url).scheme == "https" and not secure):
            return self._url
        return f"{'https' if secure else 'http'}://{parts.netloc}"

    async def missed(self, after: str) -> AsyncIterator[tuple[list[Any], str]]:
        """Pages of statuses newer than the id `after`, oldest first, each with the id to go on from.

        Raises TooMuchMissed when there are more than `max_pages` of them.
        """
        for _ in range(self._max_pages):
            parameters = dict(self._channel.timeline_parameters) | {"min_id": after, "limit": str(PAGE)}
            statuses = await self._list(f"/api/v1{self._channel.timeline_path}", parameters)
            ids = [local_id_of(status.get("id")) for status in statuses if isinstance(status, dict)]
            newest = max((local_id for local_id in ids if local_id), key=id_order, default="")
            if not newest or id_order(newest) <= id_order(after):
                return
            after = newest
            yield statuses[::-1], after
        raise TooMuchMissed

    async def looked_up(self, local_ids: Sequence[str]) -> AsyncIterator[tuple[str, Any]]:
        """Each id with its status, or None if that is gone. Since Mastodon 4.3 by twenty.

        What such an answer leaves out is asked for once more by itself: only a plain "no such status" counts.
        """
        for start in range(0, len(local_ids), BATCH):
            asked = local_ids[start : start + BATCH]
            statuses = await self._list("/api/v1/statuses", {"id[]": list(asked)})
            found = {local_id_of(status.get("id")): status for status in statuses if isinstance(status, dict)}
            for local_id in asked:
                if local_id in found:
                    yield local_id, found[local_id]
                elif await self._is_gone(local_id):
                    yield local_id, None

    async def _is_gone(self, local_id: str) -> bool:
        try:
            await self._get(f"/api/v1/statuses/{local_id}")
        except RestRefused as refused:
            return refused.status in _GONE
        return False

    async def _list(self, path: str, parameters: Mapping[str, Any]) -> list[Any]:
        answer = await self._get(path, parameters)
        if not isinstance(answer, list):
            raise RestRefused(0)
        return answer

    async def _get(self, path: str, parameters: Mapping[str, Any] | None = None, tries: int = TRIES) -> Any:
        backoff = BackOff(self._first_wait_s)
        for last in (*[False] * (tries - 1), True):
            try:
                return await self._once(path, parameters)
            except httpx.HTTPStatusError as error:
                if last:
                    raise RestRefused(error.response.status_code) from None
                asked_s = retry_after_s(error.response.headers, time.time())
                wait_s = max(backoff.next_s(), asked_s or 0.0)
            except httpx.RequestError:
                if last:
                    raise
                wait_s = backoff.next_s()
            await asyncio.sleep(wait_s)

    async def _once(self, path: str, parameters: Mapping[str, Any] | None) -> Any:
        """Raises HTTPStatusError for what may work later, RestRefused for what will not."""
        async with self._http.stream("GET", self._url + path, params=parameters) as response:
            if response.status_code == 429 or response.status_code >= 500:
                raise httpx.HTTPStatusError("try later", request=response.request, response=response)
            if response.status_code != 200:
                raise RestRefused(response.status_code)
            content = bytearray()
            async for piece in response.aiter_bytes():
                content += piece
                if len(content) > MOST_BYTES:
                    raise RestRefused(0)
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise RestRefused(0) from None


def retry_after_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """What `Retry-After` (seconds or a date) or Mastodon's `X-RateLimit-Reset` (a time) asks for, MOST_WAIT_S at most;
    None if neither says."""
    given, reset = headers.get("retry-after", ""), headers.get("x-ratelimit-reset", "")
    try:
        if given.strip().isdecimal():
            wait_s = float(given)
        elif given:
            wait_s = parsedate_to_datetime(given).timestamp() - now_s
        else:
            wait_s = time_us(reset) / 1e6 - now_s
    except (ValueError, OverflowError):
        return None
    return min(max(0.0, wait_s), MOST_WAIT_S)
