"""What may be read from X in a day, in posts and in money: kept on disk, shared by the processes of one machine.

A call reserves the most that it can cost and settles what it did cost, so that no order of calls can go over a limit.
Days are UTC days, as X bills them. Whoever dies between the two forfeits his reservation until midnight.

A fifth of each limit is only for looking posts up again (x_recheck.py): what people removed must be found out on the
days, too, when the stream and the searches have spent the rest. X does not bill a post twice in one day ("a soft
guarantee"); here each time counts.
"""

import math
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

Purpose = Literal["stream", "search", "recheck"]

RECHECK_SHARE = 5  # one part in so many
_NANO = 10**9  # money is counted in billionths of a dollar: whole numbers add up
_MOST = 2**62  # of posts, and of billionths
_SCHEMA = """
CREATE TABLE IF NOT EXISTS spent (
    day TEXT, purpose TEXT, posts INTEGER NOT NULL, nano_usd INTEGER NOT NULL, PRIMARY KEY (day, purpose)
) WITHOUT ROWID
"""


@dataclass(slots=True)
class Reservation:
    purpose: Purpose
    posts: int
    day: str
    is_settled: bool = False


@dataclass(frozen=True, slots=True)
class Spent:
    """Today's count, reservations under way included."""

    day: str  # "2026-11-30", UTC
    posts: int
    usd: float
    posts_left: int
    usd_left: float
    by_purpose: dict[str, int] = field(default_factory=dict)  # posts


class Budget:
    """Raises ValueError for limits below 0 or not finite. Every call raises sqlite3.Error when the file fails: without
    a count nothing may be spent. A call takes some milliseconds (the count is on the disk before it returns)."""

    def __init__(
        self, path: Path, daily_posts: int, daily_usd: float, usd_per_post: float, clock: Callable[[], float]
    ) -> None:
        """`clock`: seconds since the epoch."""
        self._path, self._clock = path, clock
        self._limit_posts = _whole("daily_posts", daily_posts)
        self._limit_nano = _whole("daily_usd", daily_usd, _NANO)
        self._price_nano = _whole("usd_per_post", usd_per_post, _NANO)
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._transaction() as file:
            file.execute(_SCHEMA)

    def reserve(self, purpose: Purpose, most: int, *, least: int | None = None) -> Reservation | None:
        """As many posts as may still be read, at most `most`; None when that is fewer than `least` (or than `most`)."""
        least = most if least is None else least
        if not 0 < least <= most < _MOST:
            raise ValueError(f"between 1 and {most} posts cannot be {least}")
        day = self._day()
        with self._transaction() as file:
            posts = min(most, self._affordable(file, day, purpose))
            if posts < least:
                return None
            self._add(file, day, purpose, posts)
        return Reservation(purpose, posts, day)

    def settle(self, reservation: Reservation, used: int) -> None:
        """What was not used may be reserved again. More than was reserved is counted as well: it was read."""
        assert not reservation.is_settled
        used = _whole("used", used)
        with self._transaction() as file:
            self._add(file, reservation.day, reservation.purpose, used - reservation.posts)
        reservation.is_settled = True

    def is_of_today(self, reservation: Reservation) -> bool:
        return reservation.day == self._day()

    def spent(self) -> Spent:
        day = self._day()
        with self._transaction() as file:
            rows = file.execute("SELECT purpose, posts, nano_usd FROM spent WHERE day = ?", (day,)).fetchall()
        posts, nano = sum(row[1] for row in rows), sum(row[2] for row in rows)
        return Spent(
            day=day,
            posts=posts,
            usd=nano / _NANO,
            posts_left=max(0, self._limit_posts - posts),
            usd_left=max(0, self._limit_nano - nano) / _NANO,
            by_purpose={row[0]: row[1] for row in rows},
        )

    def until_tomorrow_s(self) -> float:
        now = datetime.fromtimestamp(self._clock(), UTC)
        midnight = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
        return (midnight - now).total_seconds()

    def _affordable(self, file: sqlite3.Connection, day: str, purpose: Purpose) -> int:
        sums = "SELECT ifnull(sum(posts), 0), ifnull(sum(nano_usd), 0) FROM spent WHERE day = ?"
        all_of_it = file.execute(sums, (day,)).fetchone()
        rechecks = file.execute(sums + " AND purpose = 'recheck'", (day,)).fetchone()
        left: list[int] = []
        for limit, total, rechecked in zip((self._limit_posts, self._limit_nano), all_of_it, rechecks, strict=True):
            share_left = max(0, limit // RECHECK_SHARE - rechecked)
            left.append(min(limit - total, share_left) if purpose == "recheck" else limit - total - share_left)
        by_money = left[1] // self._price_nano if self._price_nano else _MOST
        return max(0, min(left[0], by_money))

    def _add(self, file: sqlite3.Connection, day: str, purpose: Purpose, posts: int) -> None:
        file.execute(
            "INSERT INTO spent VALUES (?1, ?2, ?3, ?4) ON CONFLICT (day, purpose)"
            " DO UPDATE SET posts = posts + ?3, nano_usd = nano_usd + ?4",
            (day, purpose, posts, posts * self._price_nano),
        )

    def _day(self) -> str:
        return datetime.fromtimestamp(self._clock(), UTC).date().isoformat()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One process at a time, from the reading of the count to its writing."""
        with closing(sqlite3.connect(self._path, isolation_level=None, timeout=10)) as file:
            file.execute("BEGIN IMMEDIATE")
            try:
                yield file
            except BaseException:
                file.execute("ROLLBACK")
                raise
            file.execute("COMMIT")


def _whole(name: str, given: float, unit: int = 1) -> int:
    """NaN is no number, and neither is half a post."""
    if isinstance(given, bool) or not math.isfinite(given) or not 0 <= given * unit < _MOST:
        raise ValueError(f"{name}: {given} is no amount")
    if unit == 1 and given != int(given):
        raise ValueError(f"{name}: {given} is not whole")
    return round(given * unit)
