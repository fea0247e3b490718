"""Looks published X posts up again: what was removed there is removed here, and edits are found.

X tells of removals on its compliance streams only, which are for Enterprise customers. So each post is looked up an
hour after it came and then ever more rarely for 30 days (x_published.py), as far as a fifth of the day's budget goes.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from ingest.post import Post, Record, Removal
from ingest.sources.aliases import Aliases
from ingest.sources.arrival import Arrival
from ingest.sources.budget import Budget
from ingest.sources.x import Reading, read
from ingest.sources.x_api_client import XApi
from ingest.sources.x_backoff import Backoff, XFault
from ingest.sources.x_compliance import gone
from ingest.sources.x_fetch import ALONE, LOOK_UP, fetch
from ingest.sources.x_published import Published, Version

AT_ONCE = 100  # ids of one look-up, by X's rule
EVERY_S = 60.0


class Recheck:
    """Raises sqlite3.Error only; a fault of X is counted in `failed` and tried again later."""

    def __init__(
        self,
        api: XApi,
        aliases: Aliases,
        budget: Budget,
        published: Published,
        clock: Callable[[], float],
        failed: Counter[str],
    ) -> None:
        """`clock`: seconds since the epoch."""
        self._api, self._aliases, self._budget, self._published = api, aliases, budget, published
        self._clock, self._failed = clock, failed
        self._next_s, self._backoff = 0.0, Backoff()
        self._looked: tuple[Reading, dict[str, Version], tuple[Record, ...], int] | None = None

    async def look(self) -> Arrival | None:
        """One look-up if one is due, at most one a minute. None when there is nothing to publish.

        Its outcome is noted at the next call: whoever asks again has published what he got before. After a crash in
        between the same posts are due again.
        """
        now_s = self._clock()
        if now_s < self._next_s:
            return None
        self._next_s = now_s + EVERY_S
        now_ms = int(now_s * 1000)
        self._note()
        self._published.expire(now_ms)
        due = self._published.due(now_ms, AT_ONCE)
        reservation = self._budget.reserve("recheck", len(due), least=1) if due else None
        if reservation is None:
            return None
        asked = {one.native_id: one for one in due[: reservation.posts]}
        reading_of = partial(read, received_ms=now_ms, chain_of=self._aliases.get, skipped=Counter())
        ids = {"ids": ",".join(asked)}
        try:
            answer, reading = await fetch(self._api, LOOK_UP, ALONE | ids, self._budget, reservation, reading_of)
        except XFault as fault:
            self._failed[f"look-up: {fault.reason}"] += 1
            self._next_s = now_s + max(EVERY_S, self._backoff.pause_s(fault, now_s))
            return None
        self._backoff.reset()
        removals = gone(answer, asked={one: asked[one].post_id for one in asked}, received_ms=now_ms)
        records = (*self._found(reading, asked), *removals)
        self._looked = reading, asked, records, now_ms
        return Arrival(records) if records else None

    def _found(self, reading: Reading, asked: dict[str, Version]) -> Iterator[Record]:
        """A post that stands as it was published is not published again."""
        unread = {one.post_id for one in asked.values() if not one.is_read}
        for record in reading.records:
            if not isinstance(record, Post) or record.id in unread:
                yield record

    def _note(self) -> None:
        if self._looked is None:
            return
        reading, asked, records, at_ms = self._looked
        self._aliases.put_many(reading.aliases, at_ms)
        self._published.checked([one.post_id for one in asked.values()], at_ms)
        self._published.remember(reading.versions, at_ms)
        self._published.forget(record.post_id for record in records if isinstance(record, Removal))
        self._looked = None
