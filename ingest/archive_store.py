"""Where the archive lies: a folder, or any fsspec URL. Lists, reads and writes whole files; knows no posts.

    <url>/posts/day=2026-07-04/hour=10/<written ms>-<random>.parquet     posts of that hour (UTC), any number of files
    <url>/removed/<written ms>-<random>.parquet                          what was removed, and accounts (archive_ledger)

A file is never changed: a new one is written, then the old one deleted. So its name is enough to know what it holds.
"""

import os
import re
import secrets
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath

import fsspec
from fsspec.implementations.local import LocalFileSystem

HOUR_MS = 3_600_000
FIRST_HOUR_MS, LAST_HOUR_MS = -62_135_596_800_000, 253_402_297_200_000  # of the years 1 to 9999
UNFINISHED_FOR_MS = HOUR_MS  # a file half written for so long has no writer any more
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAME = re.compile(r"(\d{13,})-[0-9a-f]{12}\.parquet")
_HOUR = re.compile(r"/day=(\d{4}-\d\d-\d\d)/hour=(\d\d)/[^/]+$")


class ArchiveUnusable(RuntimeError):
    """There can be no archive at this URL: unknown protocol, a missing package, no permission, no folder."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(url, reason)
        self.url, self.reason = url, reason

    def __str__(self) -> str:
        return f"archive {self.url}: {self.reason}"


@dataclass(frozen=True, slots=True)
class StoredFile:
    path: str
    size: int  # bytes

    @property
    def written_ms(self) -> int:
        found = _NAME.fullmatch(PurePosixPath(self.path).name)
        return int(found[1]) if found else 0


class ArchiveStore:
    """Blocking. Raises ArchiveUnusable at once for a URL that cannot be used, and OSError later."""

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            self._fs, self._root = fsspec.core.url_to_fs(url)
            self._root = self._root.rstrip("/")
            self._is_local = isinstance(self._fs, LocalFileSystem)
            self._fs.makedirs(self._root, exist_ok=True)
            self._fs.ls(self._root)
        except (ImportError, ValueError, OSError) as error:
            raise ArchiveUnusable(url, str(error) or type(error).__name__) from error

    def hours(self) -> dict[int, list[StoredFile]]:
        """By the epoch millisecond at which the hour begins; within it the oldest file first."""
        hours: dict[int, list[StoredFile]] = defaultdict(list)
        for file in self._files("posts"):
            if found := _HOUR.search(file.path):
                day = datetime.fromisoformat(found[1]).replace(tzinfo=UTC)
                hours[(day - _EPOCH) // timedelta(milliseconds=1) + int(found[2]) * HOUR_MS].append(file)
        return dict(sorted(hours.items()))

    def removed(self) -> list[StoredFile]:
        return self._files("removed")

    def new_hour_file(self, hour_ms: int, written_ms: int) -> str:
        """A path of its own for more posts of an hour."""
        moment = _EPOCH + timedelta(milliseconds=hour_ms)
        return f"{self._root}/posts/day={moment.date().isoformat()}/hour={moment.hour:02d}/{_name(written_ms)}"

    def new_removed_file(self, written_ms: int) -> str:
        return f"{self._root}/removed/{_name(written_ms)}"

    def write(self, path: str, content: bytes) -> None:
        """The whole file or nothing, also when this process or this machine is killed meanwhile.

        An object store shows an object only when it is whole; a folder needs a rename.
        """
        if not self._is_local:
            self._fs.pipe_file(path, content)
            return
        unfinished = f"{path}.unfinished"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(unfinished, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)

    def read(self, path: str) -> bytes:
        content: bytes = self._fs.cat_file(path)
        return content

    def read_end(self, file: StoredFile, count: int) -> bytes:
        """The last `count` bytes, or all when there are fewer."""
        if not file.size:
            return b""
        content: bytes = self._fs.cat_file(file.path, start=max(0, file.size - count), end=file.size)
        return content

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._fs.rm_file(path)

    def sweep(self, now_ms: int) -> int:
        """Deletes what a killed writer left half written: nobody would ever apply a removal to it."""
        before_ms = now_ms - UNFINISHED_FOR_MS
        left = [path for path in self._fs.find(self._root) if path.endswith(".parquet.unfinished")]
        old = [path for path in left if StoredFile(path.removesuffix(".unfinished"), 0).written_ms < before_ms]
        self.delete(old)
        return len(old)

    def _files(self, folder: str) -> list[StoredFile]:
        """Oldest first. Listed anew each time: stores may be shared, and fsspec would answer from memory."""
        self._fs.invalidate_cache()
        try:
            found = self._fs.find(f"{self._root}/{folder}", detail=True)
        except FileNotFoundError:
            return []
        files = [StoredFile(path, int(entry["size"] or 0)) for path, entry in found.items()]
        named = [file for file in files if file.written_ms]
        return sorted(named, key=lambda file: (file.written_ms, file.path))


def _name(written_ms: int) -> str:
    return f"{written_ms:013d}-{secrets.token_hex(6)}.parquet"
