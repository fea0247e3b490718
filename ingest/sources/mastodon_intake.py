"""Happenings of one Mastodon instance, from its stream and its REST API -> arrivals, each post in order and once.

Knows no network and no clock. It keeps what outlives a connection: aliases, what came lately, where to go on.
"""

from ingest.post import AccountChange, AccountState, Malformed, Record
from ingest.sources.aliases import Aliases
from ingest.sources.arrival import Arrival, SourceStats
from ingest.sources.mastodon import Happening, Instance, Message, id_order, read_message
from ingest.sources.mastodon_fields import SOURCE, local_id_of
from ingest.sources.mastodon_recent import Recent, Trail

EXPIRE_EVERY_MS = 60_000


class Intake:
    """A cursor is "host:local id". While a gap is being filled, the cursor follows the filling and not the stream."""

    def __init__(self, host: str, aliases: Aliases, indexable_only: bool, overlap_ms: int, kept_ms: int) -> None:
        self.instance = Instance(host, self._known, indexable_only)
        self.stats = SourceStats()
        self._host, self._aliases = host, aliases
        self._overlap_ms, self._kept_ms = overlap_ms, kept_ms
        self._recent, self._trail = Recent(), Trail(overlap_ms)
        self._is_filling, self._held = False, ""
        self._cursor: str | None = None
        self._expired_ms = 0

    def resume(self, cursor: str | None, now_ms: int) -> None:
        """A cursor of another host is not used."""
        self._trail, self._cursor = Trail(self._overlap_ms), cursor
        host, _, local_id = (cursor or "").rpartition(":")
        if host == self._host and local_id_of(local_id):
            self._trail.add(local_id, now_ms)

    def gap_begins(self, now_ms: int) -> str | None:
        """Returns the id after which something may have been missed; None: nothing came before."""
        after = self._trail.resume_from(now_ms)
        self._is_filling, self._held = after is not None, ""
        return after

    def filled_to(self, local_id: str, now_ms: int) -> None:
        self._trail.add(local_id, now_ms)

    def gap_ends(self, now_ms: int) -> None:
        self._is_filling = False
        if self._held:
            self._trail.add(self._held, now_ms)

    def latest(self, limit: int) -> list[str]:
        """The local ids of the posts that came last."""
        prefix = f"{self._host}:"
        names = (name.removeprefix(prefix) for name, _ in self._aliases.latest(prefix, limit))
        return [local_id for local_id in names if local_id_of(local_id)]

    def arrival(self, message: Message) -> Arrival | None:
        """None when there is nothing to publish and the cursor stays. Raises sqlite3.Error."""
        happening, now_ms = read_message(message, self.instance), message.received_ms
        self._count(happening)
        aliases = [(f"{self._host}:{local_id}", post_id) for local_id, post_id in happening.aliases]
        changes = self._account_changes(happening, now_ms, aliases)
        if aliases:
            self._aliases.put_many(aliases, now_ms)
        if now_ms - self._expired_ms > EXPIRE_EVERY_MS:
            self._aliases.expire(now_ms - self._kept_ms)
            self._expired_ms = now_ms
        records = (*changes, *self._recent.new_in(happening))
        self.stats.repeated = self._recent.repeated
        cursor = self._follow(happening, now_ms)
        if not records and cursor == self._cursor:
            return None
        self._cursor = cursor
        return Arrival(records, cursor)

    def _known(self, local_id: str) -> str | None:
        return self._aliases.get(f"{self._host}:{local_id}")

    def _count(self, happening: Happening) -> None:
        self.stats.events += 1
        self.stats.skipped.update(happening.skipped)
        self.stats.malformed.update(record.reason for record in happening.records if isinstance(record, Malformed))
        if happening.age_ms is not None and not self._is_filling:
            self.stats.lag_ms = happening.age_ms

    def _account_changes(self, happening: Happening, now_ms: int, aliases: list[tuple[str, str]]) -> list[Record]:
        """An account that no longer may be found takes its earlier posts along, and brings them back when it may again.

        Only what is known here is taken: whether an account was active is kept beside the aliases, as long as they are.
        """
        changes: list[Record] = []
        for account in happening.accounts:
            name = f"{self._host}@{account.author_id}"
            before = self._aliases.get(name)
            after: AccountState = "hidden" if account.refusal else "active"
            if before is None and after == "hidden":
                continue  # nothing of theirs was ever taken in
            if before is not None and before != after:
                changes.append(AccountChange(SOURCE, account.author_id, after, now_ms * 1000, account.refusal))
            aliases.append((name, after))
        return changes

    def _follow(self, happening: Happening, now_ms: int) -> str | None:
        """Only what is new to the timeline moves the cursor: an edit or a deletion has an older id."""
        if happening.event == "update" and happening.local_id:
            if self._is_filling:
                self._held = max(self._held, happening.local_id, key=id_order)
            else:
                self._trail.add(happening.local_id, now_ms)
        after = self._trail.resume_from(now_ms)
        return self._cursor if after is None else f"{self._host}:{after}"
