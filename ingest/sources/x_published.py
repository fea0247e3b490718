"""Which X posts are published, and when each is to be looked up again. One SQLite file; knows no network."""

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

FIRST_MS = 3_600_000
LONGER_BITS = 2  # each pause is four times the one before: 1 h, 4 h, 16 h, 64 h, 256 h
FORGET_MS = 30 * 24 * 3_600_000
MAX_POSTS = 100_000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS published (
    post_id TEXT PRIMARY KEY, native_id TEXT NOT NULL, is_read INTEGER NOT NULL, came_ms INTEGER NOT NULL,
    checks INTEGER NOT NULL, due_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS published_by_checks ON published (checks, due_ms);
CREATE INDEX IF NOT EXISTS published_by_age ON published (came_ms);
"""
# Of two ids the longer is the greater number. A version that was not read yet is due at once.
_PUT = """
INSERT INTO published VALUES (?1, ?2, ?3, ?4, 0, CASE WHEN ?3 THEN ?4 + ?5 ELSE ?4 END)
ON CONFLICT (post_id) DO UPDATE SET native_id = ?2, is_read = ?3, due_ms = CASE WHEN ?3 THEN due_ms ELSE ?4 END
WHERE (length(?2), ?2) > (length(native_id), native_id) OR ?2 = native_id AND ?3 > is_read
"""
_CHECKED = f"UPDATE published SET checks = checks + 1, due_ms = ?1 + ({FIRST_MS} << min(?2 * (checks + 1), 40))"


@dataclass(frozen=True, slots=True)
class Version:
    """The newest version of a post that is known. `is_read`: its text was published; else only its id is known."""

    post_id: str
    native_id: str
    is_read: bool = True


class Published:
    """Processes may share the file. Calls block for some 100 us. Raises sqlite3.Error."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = sqlite3.connect(path, isolation_level=None, timeout=5, check_same_thread=False)
        self._file.execute("PRAGMA journal_mode = WAL")
        self._file.execute("PRAGMA synchronous = NORMAL")
        self._file.executescript(_SCHEMA)

    def remember(self, versions: Iterable[Version], now_ms: int) -> None:
        rows = [(one.post_id, one.native_id, int(one.is_read), now_ms, FIRST_MS) for one in versions]
        self._write(_PUT, rows)

    def due(self, now_ms: int, most: int) -> list[Version]:
        """First those that were looked up least, of these the newest: they are what answers are made of."""
        rows = self._file.execute(
            "SELECT post_id, native_id, is_read FROM published WHERE due_ms <= ? ORDER BY checks, due_ms DESC LIMIT ?",
            (now_ms, most),
        )
        return [Version(post_id, native_id, bool(is_read)) for post_id, native_id, is_read in rows.fetchall()]

    def checked(self, post_ids: Iterable[str], now_ms: int) -> None:
        """Put off. Call it before `remember`, which may put a new version back to the front."""
        self._write(_CHECKED + " WHERE post_id = ?3", [(now_ms, LONGER_BITS, post_id) for post_id in post_ids])

    def forget(self, post_ids: Iterable[str]) -> None:
        self._write("DELETE FROM published WHERE post_id = ?", [(post_id,) for post_id in post_ids])

    def expire(self, now_ms: int) -> None:
        """What is older than 30 days, and the oldest beyond MAX_POSTS."""
        last = "SELECT came_ms FROM published ORDER BY came_ms DESC LIMIT 1 OFFSET ?"
        found = self._file.execute(last, (MAX_POSTS,)).fetchone()
        before_ms = max(now_ms - FORGET_MS, found[0] + 1 if found else 0)
        self._write("DELETE FROM published WHERE came_ms < ?", [(before_ms,)])

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        if not rows:
            return
        self._file.execute("BEGIN IMMEDIATE")
        try:
            self._file.executemany(statement, rows)
        except BaseException:
            self._file.execute("ROLLBACK")
            raise
        self._file.execute("COMMIT")
