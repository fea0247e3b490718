"""The cold tier: screened posts as Parquet, by the hour of their sort time, for as long as nobody removes them.

Removals reach it too: the footers say which files hold a post, its reposts or an account, and those are written anew
without them. A ledger of removals keeps late versions out, as tombstones do in the index. One writer at a time.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.archive_hours import Hours
from ingest.archive_ledger import Ledger
from ingest.archive_plan import Plan, by_hour, planned
from ingest.archive_restore import allowed, posts_of_hidden, restored_hour
from ingest.archive_rows import POST, REPOSTED, key, table_of
from ingest.archive_store import HOUR_MS, ArchiveStore, StoredFile
from ingest.index import storable
from ingest.post import AccountChange, Post, Removal


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """How many posts were written, how many were known or too old to be, how many rows were erased."""

    posts: int = 0
    stale: int = 0
    erased: int = 0

    def __add__(self, other: "ArchiveReport") -> "ArchiveReport":
        return ArchiveReport(self.posts + other.posts, self.stale + other.stale, self.erased + other.erased)


@dataclass(frozen=True, slots=True)
class ArchiveStats:
    """`posts` counts rows: an edited post may have two for a while. `first_ms`, `last_ms`: where those hours begin."""

    files: int
    bytes: int
    posts: int
    hours: int
    first_ms: int | None
    last_ms: int | None
    remembered: int  # removals and accounts
    damaged: dict[str, str]  # path -> reason


class Archive:
    """Raises ArchiveUnusable for a URL that cannot be used, DamagedFile for a ledger that cannot be read.

    Blocking, one caller at a time. `write` raises OSError when the store fails, and can then be called again with the
    same: what was written already is known and not written twice.
    """

    def __init__(self, url: str, clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._clock = clock
        self._store = ArchiveStore(url)
        self._ledger = Ledger(self._store, clock())
        self._hours = Hours(self._store)
        self._is_swept = False

    @property
    def damaged(self) -> Mapping[str, str]:
        """Files that could not be read so far, and why. Nothing is restored from them, and nothing erased."""
        return self._hours.damaged

    def write(
        self, posts: Sequence[Post], removals: Sequence[Removal] = (), accounts: Sequence[AccountChange] = ()
    ) -> ArchiveReport:
        """Account changes first, then removals, then posts: what `versions.Newest` leaves of some batches.

        Raises ValueError or OverflowError, before anything is written, for posts that no file can hold.
        """
        now_ms = self._clock()
        self._hours.refresh()
        plan = planned(self._hours, self._ledger, posts, removals, accounts)
        tables = {hour_ms: table_of(some) for hour_ms, some in by_hour(plan.posts).items()}
        self._ledger.add(plan.rows, now_ms)  # first: whatever happens next, nothing of it is restored
        old_files = self._holding(plan)
        for hour_ms, table in tables.items():
            self._hours.add(hour_ms, table, now_ms)
        erased = self._erase(old_files, plan, now_ms)  # after: an edit is there before what it replaces goes
        self._tidy(now_ms)
        return ArchiveReport(len(plan.posts), plan.stale, erased)

    def restore(self, since_ms: int, until_ms: int) -> Iterator[Post]:
        """Posts by their sort time, both ends included, hour after hour; the newest version of each in its hour.

        Without posts of accounts that are hidden now. Damaged files are left out and listed in `damaged`.
        """
        hours = self._hours_between(since_ms, until_ms)
        hidden = posts_of_hidden(self._hours, self._ledger)
        for hour_ms in hours:
            yield from restored_hour(self._hours, self._ledger, hour_ms, since_ms, until_ms, hidden)

    def count(self, since_ms: int, until_ms: int) -> int:
        """How many posts there are in the hours between, at most. Reads footers only."""
        files = [file for hour_ms in self._hours_between(since_ms, until_ms) for file in self._hours.files[hour_ms]]
        return sum(footer.rows for file in files if (footer := self._hours.footer(file)))

    def stats(self) -> ArchiveStats:
        """Looks at every file's footer."""
        self._hours.refresh()
        hours = list(self._hours.files)
        files = [file for some in self._hours.files.values() for file in some]
        return ArchiveStats(
            files=len(files),
            bytes=sum(file.size for file in files),
            posts=sum(footer.rows for file in files if (footer := self._hours.footer(file))),
            hours=len(hours),
            first_ms=min(hours, default=None),
            last_ms=max(hours, default=None),
            remembered=len(self._ledger),
            damaged=dict(self._hours.damaged),
        )

    def _holding(self, plan: Plan) -> list[tuple[int, StoredFile]]:
        """The files with something that must go."""
        asked = {key(POST, post_id) for post_id in (*plan.gone, *plan.superseded)}
        asked |= {key(REPOSTED, post_id) for post_id in plan.gone}
        return self._hours.holding(asked)

    def _erase(self, files: Sequence[tuple[int, StoredFile]], plan: Plan, now_ms: int) -> int:
        """Writes the files anew without what must go. Returns how many rows went."""
        erased = 0
        for hour_ms, file in files:
            table = self._hours.table(file)
            if table is None:
                continue
            stays = _stays(table, plan)
            if not stays.all():
                erased += int((~stays).sum())
                self._hours.replace(hour_ms, [file], table.filter(pa.array(stays)), now_ms)
        return erased

    def _tidy(self, now_ms: int) -> None:
        self._hours.compact(lambda table: allowed(table, self._ledger), now_ms)
        self._ledger.merge(now_ms)
        if not self._is_swept:
            self._store.sweep(now_ms)
            self._is_swept = True

    def _hours_between(self, since_ms: int, until_ms: int) -> list[int]:
        self._hours.refresh()
        return [hour_ms for hour_ms in self._hours.files if since_ms - HOUR_MS < hour_ms <= until_ms]


def _stays(table: pa.Table, plan: Plan) -> np.ndarray:
    """[rows] bool."""
    gone, superseded = (
        {storable(post_id): version_us for post_id, version_us in some.items()} for some in (plan.gone, plan.superseded)
    )
    asked = pa.array([*gone, *superseded], type=pa.string())
    is_asked = pc.is_in(table["id"], asked).to_numpy() | pc.is_in(table["repost_of"], asked).to_numpy()
    stays = np.ones(len(table), dtype=bool)
    rows = table.select(["id", "version_us", "repost_of"])
    for i in np.flatnonzero(is_asked).tolist():
        post_id, version_us, repost_of = (column[i].as_py() for column in rows.columns)
        is_old = version_us <= gone.get(post_id, version_us - 1) or version_us < superseded.get(post_id, version_us)
        stays[i] = not is_old and repost_of not in gone
    return stays
