"""The archive's files of posts, hour by hour: which of them hold an id, and many small ones into few. Blocking.

Knows no rule of what may stay: it asks.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
import pyarrow as pa

from ingest.archive_rows import SCHEMA, DamagedFile, RowFile, footer_bytes, newest, read, read_footer, to_bytes
from ingest.archive_store import HOUR_MS, ArchiveStore, StoredFile

log = logging.getLogger(__name__)

MAX_FILES = 8  # of one hour; one more, and the smallest are merged
MAX_BYTES = 256 * 2**20  # of a file that is merged with others: memory while merging is a few times that
QUIET_MS = HOUR_MS  # an hour that nobody has written to for so long is merged into one file
MERGES = 4  # at a time
LIKELY_FOOTER = 32 * 1024  # bytes read at a file's end at first
KEPT_KEYS = 2**25  # of footers held in memory: 256 MB, of about 15 million posts; beyond that they are read each time


class Hours:
    """`damaged`: files that cannot be read, and why; they are left where they are, and a removal cannot reach them."""

    def __init__(self, store: ArchiveStore) -> None:
        self._store = store
        self._footers: dict[str, RowFile] = {}
        self._kept_keys = 0
        self.damaged: dict[str, str] = {}
        self.files: dict[int, list[StoredFile]] = {}
        self.refresh()

    def refresh(self) -> None:
        """Looks what is there now: others may write to the same store."""
        self.files = self._store.hours()

    def holding(self, keys: Collection[int], hours: Iterable[int] | None = None) -> list[tuple[int, StoredFile]]:
        """The files that hold any of the keys, each with its hour. Reads footers only, and those once."""
        if not keys:
            return []
        wanted = np.sort(np.fromiter(keys, dtype=np.uint64, count=len(keys)))
        asked = self.files if hours is None else hours
        found = []
        for hour_ms in asked:
            for file in self.files.get(hour_ms, ()):
                footer = self.footer(file)
                if footer is not None and _any_in(footer.keys, wanted):
                    found.append((hour_ms, file))
        return found

    def footer(self, file: StoredFile) -> RowFile | None:
        """None for a damaged file. Raises OSError for a store that cannot be read now."""
        if file.path in self.damaged:
            return None
        if known := self._footers.get(file.path):
            return known
        try:
            end = self._store.read_end(file, LIKELY_FOOTER)
            size = footer_bytes(end, file.path)
            if size > len(end):
                end = self._store.read_end(file, size)
            footer = read_footer(end[-size:], file.path)
        except DamagedFile as error:
            self._report(error)
            return None
        if self._kept_keys + len(footer.keys) <= KEPT_KEYS:
            self._kept_keys += len(footer.keys)
            self._footers[file.path] = footer
        return footer

    def table(self, file: StoredFile, columns: Sequence[str] = tuple(SCHEMA.names)) -> pa.Table | None:
        """None for a damaged file. Raises OSError for a store that cannot be read now."""
        if file.path in self.damaged:
            return None
        try:
            return read(self._store.read(file.path), file.path, columns)
        except DamagedFile as error:
            self._report(error)
            return None

    def add(self, hour_ms: int, table: pa.Table, now_ms: int) -> None:
        content = to_bytes(table)
        path = self._store.new_hour_file(hour_ms, now_ms)
        self._store.write(path, content)
        self.files.setdefault(hour_ms, []).append(StoredFile(path, len(content)))

    def replace(self, hour_ms: int, files: Sequence[StoredFile], table: pa.Table, now_ms: int) -> None:
        """The new file first: after a crash between the two, posts are there twice, which nobody sees."""
        if len(table):
            self.add(hour_ms, table, now_ms)
        self._store.delete([file.path for file in files])
        for file in files:
            footer = self._footers.pop(file.path, None)
            self._kept_keys -= len(footer.keys) if footer else 0
        left = [file for file in self.files[hour_ms] if file not in files]
        self.files[hour_ms] = left
        if not left:
            del self.files[hour_ms]

    def compact(self, keep: Callable[[pa.Table], pa.Table], now_ms: int) -> int:
        """Merges the files of a few hours: of each post the newest version stays, if `keep` keeps it.

        Returns how many hours it merged; call it again for the others.
        """
        merged = 0
        for hour_ms in list(self.files):
            sound = [file for file in self.files[hour_ms] if file.path not in self.damaged]
            tables = {file: self.table(file) for file in _due(sound, now_ms)}
            readable = {file: table for file, table in tables.items() if table is not None}
            if len(readable) > 1:
                together = newest(pa.concat_tables(readable.values()))
                self.replace(hour_ms, list(readable), keep(together), now_ms)
                merged += 1
            if merged == MERGES:
                break
        return merged

    def _report(self, error: DamagedFile) -> None:
        self.damaged[error.path] = error.reason
        log.error("archive: damaged file: %s", error)


def _due(files: Sequence[StoredFile], now_ms: int) -> list[StoredFile]:
    """The files of an hour that should be one; [] when it is well as it is.

    The smallest first, so that an hour which gets late posts now and then is not written anew for each.
    """
    by_size = sorted(files, key=lambda file: file.size)
    sizes = np.cumsum([file.size for file in by_size])
    fitting = [file for file, size in zip(by_size, sizes, strict=True) if size <= MAX_BYTES]
    if len(fitting) > MAX_FILES:
        return fitting[:MAX_FILES]
    is_quiet = max((file.written_ms for file in files), default=0) <= now_ms - QUIET_MS
    return fitting if is_quiet and len(fitting) > 1 else []


def _any_in(keys: np.ndarray, wanted: np.ndarray) -> bool:
    """Both sorted; `wanted` is the short one."""
    places = np.searchsorted(keys, wanted)
    inside = places < len(keys)
    return bool((keys[places[inside]] == wanted[inside]).any())
