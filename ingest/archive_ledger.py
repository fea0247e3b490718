"""What the archive remembers of what it no longer holds: removed posts for eight days, accounts for ever.

Only hashes of ids are kept. Each change is a small file of its own; many are merged into one. Knows no posts.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ingest.archive_rows import ACCOUNT, POST, DamagedFile, key
from ingest.archive_store import ArchiveStore
from ingest.index_rules import TOMBSTONES_KEPT_MS, AccountEntry
from ingest.post import AccountState

MAX_FILES = 64
# Of a post: nothing up to the version may come back; one that is BACK, with a newer version, may be reposted.
UNKNOWN, REMOVED, BACK, ACTIVE, HIDDEN, DELETED = range(6)
_STATES = dict(zip(get_args(AccountState), (ACTIVE, HIDDEN, DELETED), strict=True))
_NAMES = {state: name for name, state in _STATES.items()}
_ROW = np.dtype([("key", "<u8"), ("version_us", "<i8"), ("at_ms", "<i8"), ("state", "i1")])


@dataclass(frozen=True, slots=True)
class LedgerRow:
    key: int
    version_us: int
    state: int


def removed_row(post_id: str, version_us: int, *, is_back: bool = False) -> LedgerRow:
    return LedgerRow(key(POST, post_id), version_us, BACK if is_back else REMOVED)


def account_row(account: str, entry: AccountEntry) -> LedgerRow:
    return LedgerRow(key(ACCOUNT, account), entry.version_us, _STATES[entry.state])


class Ledger:
    """Opens what is there. Raises DamagedFile: without it, what was removed could come back."""

    def __init__(self, store: ArchiveStore, now_ms: int) -> None:
        self._store = store
        self._rows = np.empty(0, dtype=_ROW)  # sorted by key, one row each
        for file in store.removed():
            self._take(_rows_in(store.read(file.path), file.path))
        self._forget(now_ms)

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, keys: np.ndarray) -> np.ndarray:
        """[n] uint64 -> [n] rows with `version_us` and `state`, UNKNOWN of what it has not heard of."""
        places = np.searchsorted(self._rows["key"], keys)
        found = np.zeros(len(keys), dtype=_ROW)
        inside = places < len(self._rows)
        found[inside] = self._rows[places[inside]]
        found[found["key"] != keys] = np.zeros((), dtype=_ROW)
        return found

    def removed(self, post_id: str) -> tuple[int, bool] | None:
        """The newest version that was removed, and whether the post is back since; None if none is remembered."""
        row = self._row(key(POST, post_id))
        return None if row["state"] == UNKNOWN else (int(row["version_us"]), bool(row["state"] == BACK))

    def account(self, account: str) -> AccountEntry | None:
        row = self._row(key(ACCOUNT, account)) if account else None
        if row is None or row["state"] == UNKNOWN:
            return None
        return AccountEntry(_NAMES[int(row["state"])], int(row["version_us"]))

    def accounts(self, state: int) -> list[int]:
        """The keys of the accounts in that state."""
        keys: list[int] = self._rows["key"][self._rows["state"] == state].tolist()
        return keys

    def add(self, rows: Iterable[LedgerRow], now_ms: int) -> None:
        """Written before it returns."""
        added = np.array([(row.key, row.version_us, now_ms, row.state) for row in rows], dtype=_ROW)
        if len(added):
            self._store.write(self._store.new_removed_file(now_ms), _to_bytes(added))
            self._take(added)

    def merge(self, now_ms: int) -> None:
        """Many small files into one, without the posts whose removal nothing can overtake any more."""
        files = self._store.removed()
        if len(files) > MAX_FILES:
            self._forget(now_ms)
            self._store.write(self._store.new_removed_file(now_ms), _to_bytes(self._rows))
            self._store.delete([file.path for file in files])

    def _row(self, wanted: int) -> np.void:
        row: np.void = self.find(np.array([wanted], dtype=np.uint64))[0]
        return row

    def _take(self, added: np.ndarray) -> None:
        """Of each key the row that wins: a deletion, else the newest, and of equal ones the later."""
        order = np.lexsort((np.arange(len(added)), added["version_us"], added["state"] == DELETED, added["key"]))
        rows = added[order]
        rows = rows[np.append(rows["key"][1:] != rows["key"][:-1], True)[: len(rows)]]
        known = self.find(rows["key"])
        is_known = known["state"] != UNKNOWN
        is_newer = (rows["state"] == DELETED) | (rows["version_us"] >= known["version_us"])
        wins = is_known & is_newer & (known["state"] != DELETED)
        places = np.searchsorted(self._rows["key"], rows["key"])
        self._rows[places[wins]] = rows[wins]
        self._rows = np.insert(self._rows, places[~is_known], rows[~is_known])

    def _forget(self, now_ms: int) -> None:
        is_account = self._rows["state"] >= ACTIVE
        self._rows = self._rows[is_account | (self._rows["at_ms"] >= now_ms - TOMBSTONES_KEPT_MS)]


def _to_bytes(rows: np.ndarray) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({name: rows[name] for name in _ROW.names or ()})
    pq.write_table(table, sink, compression="zstd", store_schema=False, write_page_checksum=True)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _rows_in(content: bytes, path: str) -> np.ndarray:
    try:
        table = pq.read_table(pa.BufferReader(content), page_checksum_verification=True)
        rows = np.empty(len(table), dtype=_ROW)
        for name in _ROW.names or ():
            rows[name] = table[name].to_numpy()
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise DamagedFile(path, f"{type(error).__name__}: {error}".splitlines()[0]) from error
    return rows
