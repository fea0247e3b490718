"""Ids that a network uses in its deletions -> ids of our posts. One SQLite file; knows no network."""

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Self

MOST_EXPIRED = 5000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS alias (name TEXT PRIMARY KEY, post_id TEXT NOT NULL, seen_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS alias_by_age ON alias (seen_ms);
"""
# Known already and not seen long ago: not written again, so that a post that comes often costs no write.
_PUT = """
INSERT INTO alias VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET post_id = excluded.post_id, seen_ms = excluded.seen_ms
WHERE alias.post_id <> excluded.post_id OR alias.seen_ms < excluded.seen_ms - 3600000
"""


class Aliases:
    """`name` is all that tells one id from another: "mastodon.example:1089", "x:13468894".

    Every call blocks for some 20 us, a `put_many` of many for some ms: short enough for an event loop. One process at a
    time should write. What was put survives a crash of the process; of the last moments before a power cut some may be
    lost, never the file (WAL). Raises sqlite3.Error (a full disk, a file that is no database).
    """

    def __init__(self, path: Path) -> None:
        """Makes the file, and its folder."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = sqlite3.connect(path, isolation_level=None, timeout=5, check_same_thread=False)
        self._file.execute("PRAGMA journal_mode = WAL")
        self._file.execute("PRAGMA synchronous = NORMAL")
        self._file.executescript(_SCHEMA)

    def put_many(self, aliases: Iterable[tuple[str, str]], seen_ms: int) -> None:
        """(name, post id) each; a name that is known already gets the new post id."""
        self._file.execute("BEGIN")
        try:
            self._file.executemany(_PUT, ((name, post_id, seen_ms) for name, post_id in aliases))
        except BaseException:
            self._file.execute("ROLLBACK")
            raise
        self._file.execute("COMMIT")

    def get(self, name: str) -> str | None:
        found = self._file.execute("SELECT post_id FROM alias WHERE name = ?", (name,)).fetchone()
        return None if found is None else str(found[0])

    def latest(self, prefix: str, limit: int) -> list[tuple[str, str]]:
        """The aliases whose name begins so, those put last first."""
        query = "SELECT name, post_id FROM alias WHERE name >= ? AND name < ? ORDER BY seen_ms DESC LIMIT ?"
        return self._file.execute(query, (prefix, f"{prefix}\U0010ffff", limit)).fetchall()

    def expire(self, before_ms: int) -> int:
        """Forgets what was last seen before, MOST_EXPIRED at most, so as not to block for long; returns how many."""
        query = "DELETE FROM alias WHERE name IN (SELECT name FROM alias WHERE seen_ms < ? ORDER BY seen_ms LIMIT ?)"
        return self._file.execute(query, (before_ms, MOST_EXPIRED)).rowcount

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
