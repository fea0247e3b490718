"""Where a source goes on after a restart: one small file a source, never half written."""

import json
import logging
import os
from pathlib import Path
from threading import Lock

log = logging.getLogger(__name__)


class CursorFile:
    """`save` survives a crash and a power cut at any moment: what is there is the old cursor or the new one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writing = Lock()  # a cancelled save goes on in its thread

    def load(self) -> str | None:
        """None when there is none; a damaged file counts as none, which costs the source a gap or a repetition. Raises
        OSError for a file that is there and may not be read."""
        try:
            cursor = json.loads(self._path.read_bytes())["cursor"]
            if not isinstance(cursor, str):
                raise TypeError("not a string")
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            log.warning("the cursor in %s cannot be read (%s): starting without one", self._path, type(error).__name__)
            return None
        return cursor

    def save(self, cursor: str) -> None:
        """Waits for the disk. Raises OSError."""
        with self._writing:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            new = self._path.with_name(f"{self._path.name}.new")
            with new.open("wb") as file:
                file.write(json.dumps({"cursor": cursor}).encode())
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
