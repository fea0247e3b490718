"""X's filtered stream, within a budget: https://docs.x.com/x-api/posts/filtered-stream/introduction.

Removals come from looking posts up again (x_recheck.py). The compliance streams, which would tell of them at once, are
for Enterprise customers: x_compliance.py reads their events, but no client here asks for them.
"""

import asyncio
import sqlite3
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import replace

from ingest.payload import Refused, parse
from ingest.post import Malformed, Post, Record
from ingest.settings import XSettings
from ingest.sources.aliases import Aliases
from ingest.sources.arrival import Arrival, SourceEnded, SourceStats
from ingest.sources.budget import Budget, Reservation
from ingest.sources.x import SOURCE, Reading, read
from ingest.sources.x_api_client import XApi
from ingest.sources.x_backoff import Backoff, XFault
from ingest.sources.x_fetch import READS_A_POST, WITH_REFERENCES
from ingest.sources.x_gap import Gap
from ingest.sources.x_ids import checked_id
from ingest.sources.x_published import Published
from ingest.sources.x_recheck import EVERY_S, Recheck
from ingest.sources.x_rules import rules_in_force

STREAM = "/2/tweets/search/stream"
BLOCK = 20  # posts reserved at a time; a crash forfeits as many
MAX_SEEN = 20_000


class XSource:
    """A Source. Its cursor is the greatest id seen. What came while the budget was spent is not bought afterwards.

    A line that has come is published even if it holds more posts than were left: X has billed them.
    """

    name = SOURCE

    def __init__(
        self,
        settings: XSettings,
        aliases: Aliases,
        budget: Budget,
        published: Published,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        silence_s: float = 25.0,
    ) -> None:
        """`clock`: seconds since the epoch. `silence_s`: a stream that sends nothing for so long is dead."""
        self.stats = SourceStats()
        self._settings, self._aliases, self._budget, self._published = settings, aliases, budget, published
        self._clock, self._sleep = clock, sleep
        self._api = XApi(settings.url, settings.token_file, silence_s=silence_s)
        self._recheck = Recheck(self._api, aliases, budget, published, clock, self.stats.skipped)
        self._backoff = Backoff()
        self._rules: tuple[str, ...] = ()
        self._seen: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._last_id = ""
        self._held: Reservation | None = None
        self._used = 0

    async def arrivals(self, cursor: str | None) -> AsyncGenerator[Arrival, None]:
        self._last_id = _id_of(cursor)
        self._seen.clear()  # what was not acknowledged must come again
        try:
            while True:
                try:
                    async with aclosing(self._session()) as session:
                        async for arrival in session:
                            yield arrival
                    continue  # the budget is spent
                except XFault as fault:
                    if fault.kind == "ended":
                        raise SourceEnded(self.name, fault.reason) from None
                    self.stats.fault, pause_s = fault.reason, self._backoff.pause_s(fault, self._clock())
                except sqlite3.Error as error:
                    own = XFault("http", f"its files: {type(error).__name__}")
                    self.stats.fault, pause_s = own.reason, self._backoff.pause_s(own, self._clock())
                await self._sleep(pause_s)
        finally:
            await self._close()

    async def _close(self) -> None:
        """What is reserved and cannot be given back stays spent until midnight."""
        self.stats.fault = self.stats.fault or "closed"
        await self._api.close()
        with suppress(sqlite3.Error):
            self._let_go()
        self._held = None

    async def _session(self) -> AsyncGenerator[Arrival, None]:
        """One connection. Ends when the budget is spent; raises XFault when the connection is lost."""
        async with aclosing(self._until_affordable()) as waiting:
            async for arrival in waiting:
                yield arrival
        await self._set_rules()
        async with self._api.stream(STREAM, WITH_REFERENCES) as lines:
            self.stats.connects += 1
            self.stats.fault = ""
            for arrival in await self._missed():
                yield arrival
            async for line in lines:
                reading = self._line(line)
                if (arrival := self._arrival(reading)).records:
                    yield arrival
                if reading.disconnect:
                    raise XFault("network", reading.disconnect)
                self._backoff.reset()
                if (looked_up := await self._recheck.look()) is not None:
                    yield looked_up
                if not self._hold():
                    return
        raise XFault("network", "closed by X")

    async def _until_affordable(self) -> AsyncGenerator[Arrival, None]:
        while not self._hold():
            self.stats.fault = "the budget of the day is spent"
            self.stats.gaps += bool(self._last_id)
            self._last_id = ""
            if (looked_up := await self._recheck.look()) is not None:
                yield looked_up
            await self._sleep(min(EVERY_S, self._budget.until_tomorrow_s()))

    async def _set_rules(self) -> None:
        if not self._rules:
            self._rules = await rules_in_force(self._api, self._settings.rules)
        if not self._rules:
            raise XFault("http", "no rules are set")

    async def _missed(self) -> list[Arrival]:
        """Only the last one moves the cursor: each rule brings posts of the whole gap."""
        if not self._last_id:
            return []
        gap = Gap(self._api, self._budget, self._read)
        pages = await gap.missed(self._rules, self._last_id)
        self.stats.gaps += not gap.is_closed
        records = [self._arrival(page).records for page in pages]
        arrivals = [Arrival(tuple(sorted(some, key=_order))) for some in records if some]
        return [*arrivals[:-1], *(replace(last, cursor=self._last_id) for last in arrivals[-1:])]

    def _line(self, line: bytes) -> Reading:
        """One that cannot be read counts as a post: X may have billed it."""
        if not line:
            return Reading()
        self.stats.events += 1
        try:
            reading = self._read(parse(line))
        except Refused as refused:
            reading = Reading((Malformed(refused.reason, refused.detail),), reads=1)
        self._used += reading.reads
        return reading

    def _read(self, event: object) -> Reading:
        return read(event, received_ms=self._now_ms(), chain_of=self._aliases.get, skipped=self.stats.skipped)

    def _arrival(self, reading: Reading) -> Arrival:
        now_ms = self._now_ms()
        self._aliases.put_many(reading.aliases, now_ms)
        self._published.remember(reading.versions, now_ms)
        self._last_id = max(self._last_id, reading.newest, key=lambda one: int(one or 0))
        fresh = tuple(record for record in reading.records if self._is_fresh(record, now_ms))
        self.stats.repeated += bool(reading.records) and not fresh
        return Arrival(fresh, self._last_id or None)

    def _is_fresh(self, record: Record, now_ms: int) -> bool:
        if isinstance(record, Malformed):
            self.stats.malformed[record.reason] += 1
        if not isinstance(record, Post):
            return True
        version = (record.id, record.version_us)
        if version in self._seen:
            return False
        self._seen[version] = None
        if len(self._seen) > MAX_SEEN:
            self._seen.popitem(last=False)
        self.stats.lag_ms = max(0, now_ms - record.version_us // 1000)
        return True

    def _hold(self) -> bool:
        """Has at least what one line can cost reserved for today."""
        held = self._held
        if held is not None and self._budget.is_of_today(held) and held.posts - self._used >= READS_A_POST:
            return True
        self._let_go()
        self._held = self._budget.reserve("stream", BLOCK, least=READS_A_POST)
        return self._held is not None

    def _let_go(self) -> None:
        if self._held is not None:
            self._budget.settle(self._held, self._used)
        self._held, self._used = None, 0

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)


def _order(record: Record) -> int:
    return 0 if isinstance(record, Malformed) else record.version_us


def _id_of(cursor: str | None) -> str:
    try:
        return "" if cursor is None else checked_id(cursor, "cursor")
    except Refused:
        return ""
