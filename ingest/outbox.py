"""What was taken from a source and is not acknowledged by the broker yet, in its order. Knows no broker."""

import asyncio
import logging
from asyncio import Future
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any, Protocol

from ingest.payload import Refused
from ingest.post import AccountChange, Malformed, Post, Removal
from ingest.publish import BrokerUnreachable
from ingest.sources.arrival import Arrival

log = logging.getLogger(__name__)

WINDOW = 500  # records; the source is not read further ahead
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0


class Sender(Protocol):
    """A Publisher. All but `close` raise BrokerUnreachable."""

    async def start(self) -> None: ...
    async def send(self, record: Post | Removal | AccountChange) -> tuple[Any, "Future[Any]"]: ...  # raises Refused
    async def acknowledged(self, sent: "Future[Any]") -> None: ...
    async def close(self) -> None: ...


@dataclass(slots=True)
class Transferred:
    """Counts since the start. Records are counted when they are acknowledged; `refused`: not sent, by reason."""

    posts: int = 0
    removals: int = 0
    accounts: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    fault: str = "not connected yet"  # "" while the broker takes what is sent


@dataclass(slots=True, eq=False)
class _Sent:
    arrival: Arrival
    acknowledgements: list[Future[Any]] | None = None  # None: to be sent (again)
    kinds: Counter[type] = field(default_factory=Counter)  # of the records, as readers see them
    refused: Counter[str] = field(default_factory=Counter)

    @property
    def is_acknowledged(self) -> bool:
        given = self.acknowledgements
        return given is not None and all(
            future.done() and not future.cancelled() and future.exception() is None for future in given
        )


class Outbox:
    """Arrivals in their order, until all of their records are acknowledged."""

    def __init__(self, publisher: Sender, counts: Transferred, saved: str | None) -> None:
        self._publisher, self.counts = publisher, counts
        self._arrivals: deque[_Sent] = deque()
        self._records = 0  # of these
        self._changed = asyncio.Condition()
        self._sending = asyncio.Lock()  # what is sent again goes before anything new
        self._is_connected = False
        self._cursor = self.saved = saved

    @property
    def unsaved(self) -> str | None:
        """The cursor before which everything is acknowledged, if that is news."""
        return self._cursor if self._cursor != self.saved else None

    async def put(self, arrival: Arrival) -> None:
        """Waits for room. A broker that cannot be reached is `deliver`'s to wait for."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._records < WINDOW and len(self._arrivals) < WINDOW)
        async with self._sending:
            self._arrivals.append(sent := _Sent(arrival))
            self._records += len(arrival.records)
            if self._is_connected:
                try:
                    await self._send(sent)
                except BrokerUnreachable:
                    self._is_connected = False
        await self._tell()

    async def deliver(self) -> None:
        """For ever: acknowledgements in order; what was not acknowledged is sent again, with everything after it."""
        await self._send_all("not connected yet")
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: bool(self._arrivals))
            given = self._arrivals[0].acknowledgements
            try:
                if given is None:
                    raise BrokerUnreachable("", "the connection is lost")
                for acknowledgement in given:
                    await self._publisher.acknowledged(acknowledgement)
            except BrokerUnreachable as error:
                await self._send_all(error.fault)
            self.settle()
            await self._tell()

    async def drained(self) -> None:
        """Returns when everything is acknowledged."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._arrivals)

    def settle(self) -> None:
        """Lets go of what is acknowledged."""
        while self._arrivals and self._arrivals[0].is_acknowledged:
            sent = self._arrivals.popleft()
            self._records -= len(sent.arrival.records)
            self._cursor = sent.arrival.cursor or self._cursor
            self.counts.posts += sent.kinds[Post]
            self.counts.removals += sent.kinds[Removal]
            self.counts.accounts += sent.kinds[AccountChange]
            self.counts.refused += sent.refused

    async def close(self) -> None:
        await self._publisher.close()

    async def _send_all(self, fault: str) -> None:
        """Connects anew, for ever, and sends everything that is held."""
        pause_s = FIRST_PAUSE_S
        async with self._sending:
            self.counts.fault, self._is_connected = fault, False
            while not self._is_connected:
                try:
                    await self._publisher.close()
                    await self._publisher.start()
                    for sent in self._arrivals:
                        await self._send(sent)
                except BrokerUnreachable as error:
                    log.warning("publishing waits: %s", error)
                    self.counts.fault = error.fault
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                else:
                    self.counts.fault, self._is_connected = "", True

    async def _send(self, sent: _Sent) -> None:
        """Raises BrokerUnreachable; then none of it counts as sent."""
        sent.acknowledgements, sent.kinds, sent.refused = None, Counter(), Counter()
        acknowledgements = []
        for record in sent.arrival.records:
            if isinstance(record, Malformed):
                continue
            try:
                seen, acknowledgement = await self._publisher.send(record)
            except Refused as error:
                sent.refused[error.reason] += 1
            else:
                acknowledgements.append(acknowledgement)
                sent.kinds[type(seen)] += 1
        sent.acknowledgements = acknowledgements

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()
