"""Asks X's recent search for a user's question, when the index has too little fresh on it. Within the budget."""

import asyncio
import sqlite3
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from ingest.post import Malformed
from ingest.settings import XSettings
from ingest.sources.aliases import Aliases
from ingest.sources.arrival import Arrival
from ingest.sources.budget import Budget
from ingest.sources.x import read
from ingest.sources.x_api_client import XApi
from ingest.sources.x_backoff import Backoff, XFault
from ingest.sources.x_fetch import ALONE, RECENT, fetch
from ingest.sources.x_published import Published
from ingest.sources.x_query import queries_for
from ingest.sources.x_recheck import Recheck

LEAST, MOST = 10, 100  # posts of one answer, by X's rule
REMEMBER_S = 600.0
MAX_REMEMBERED = 1000


@dataclass(slots=True)
class SearchStats:
    """Counts since the start. `refused`: searches that were not made, by why; `failed`: those that X failed, by why."""

    questions: int = 0
    calls: int = 0
    posts: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)


class XSearch:
    """May be asked many questions at once. The words of a question go to X; nothing else does."""

    def __init__(
        self,
        settings: XSettings,
        aliases: Aliases,
        budget: Budget,
        published: Published,
        *,
        clock: Callable[[], float] = time.time,
        timeout_s: float = 4.0,
    ) -> None:
        """`clock`: seconds since the epoch."""
        self.stats = SearchStats()
        self._aliases, self._budget, self._published = aliases, budget, published
        self._clock, self._timeout_s = clock, timeout_s
        self._api = XApi(settings.url, settings.token_file, silence_s=timeout_s)
        self._recheck = Recheck(self._api, aliases, budget, published, clock, self.stats.failed)
        self._backoff, self._not_before_s = Backoff(), 0.0
        self._asked: OrderedDict[str, float] = OrderedDict()  # query -> when

    async def search(self, question: str, max_posts: int) -> Arrival | None:
        """Posts of the last seven days, the newest: about `max_posts`, but X sends no fewer than ten, nor over 100.

        None when X was not asked, or failed; an arrival without records when it knows nothing. Never raises for X.
        """
        self.stats.questions += 1
        queries = queries_for(question)
        why_not = self._why_not(queries)
        if why_not:
            self.stats.refused[why_not] += 1
            return None
        self._remember(queries[0])
        try:
            async with asyncio.timeout(self._timeout_s):
                if (found := await self._first_found(queries, max(LEAST, min(max_posts, MOST)))) is not None:
                    return found
        except TimeoutError:
            self.stats.failed["timeout"] += 1
        except sqlite3.Error as error:
            self.stats.failed[type(error).__name__] += 1
        except XFault as fault:
            self.stats.failed[fault.reason] += 1
            self._not_before_s = self._clock() + self._backoff.pause_s(fault, self._clock())
        self._asked.pop(queries[0], None)
        return None

    async def look_again(self) -> Arrival | None:
        """Removals and edits of posts that were published (x_recheck.py). For a service that has no XSource running, to
        be called every minute. Raises sqlite3.Error."""
        return await self._recheck.look()

    async def close(self) -> None:
        await self._api.close()

    def _why_not(self, queries: tuple[str, ...]) -> str:
        if not queries:
            return "no words"
        now_s = self._clock()
        if now_s < self._not_before_s:
            return "waiting for X"
        return "asked lately" if now_s - self._asked.get(queries[0], -REMEMBER_S) < REMEMBER_S else ""

    def _remember(self, query: str) -> None:
        self._asked[query] = self._clock()
        self._asked.move_to_end(query)
        if len(self._asked) > MAX_REMEMBERED:
            self._asked.popitem(last=False)

    async def _first_found(self, queries: tuple[str, ...], most: int) -> Arrival | None:
        """An answer without posts costs nothing."""
        for query in queries:
            reservation = self._budget.reserve("search", most, least=LEAST)
            if reservation is None:
                self.stats.refused["budget"] += 1
                return None
            self.stats.calls += 1
            now_ms = int(self._clock() * 1000)
            reading_of = partial(read, received_ms=now_ms, chain_of=self._aliases.get, skipped=Counter())
            asked = ALONE | {"query": query, "max_results": str(reservation.posts)}
            _, reading = await fetch(self._api, RECENT, asked, self._budget, reservation, reading_of)
            self._backoff.reset()
            if reading.reads:
                break
        self._aliases.put_many(reading.aliases, now_ms)
        self._published.remember(reading.versions, now_ms)
        self.stats.posts += reading.reads
        self.stats.failed.update(record.reason for record in reading.records if isinstance(record, Malformed))
        return Arrival(reading.records)
