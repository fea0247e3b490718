"""A folder that is replaced as a whole: generations side by side, and a file CURRENT that names the one that counts.

Killed at any moment, the folder opens with the generation that CURRENT names; what else lies there is swept away.
"""

import logging
import os
import shutil
from pathlib import Path

log = logging.getLogger(__name__)

CURRENT = "CURRENT"


class Generations:
    def __init__(self, path: Path) -> None:
        self._path = path
        path.mkdir(parents=True, exist_ok=True)

    @property
    def current(self) -> Path | None:
        """None before the first `switch`."""
        try:
            name = (self._path / CURRENT).read_text().strip()
        except FileNotFoundError:
            return None
        return self._path / name

    def next(self) -> Path:
        """The path of the next one; nothing is there yet, not even what could not be swept away."""
        taken = [int(path.name) for path in self._path.iterdir() if path.name.isdecimal()]
        return self._path / str(max(taken, default=0) + 1)

    def switch(self, to: Path) -> None:
        """From now on this one counts, in one step that is on disk when it returns."""
        draft = self._path / f"{CURRENT}.new"
        with draft.open("w") as file:
            file.write(to.name)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path / CURRENT)
        folder = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def sweep(self) -> None:
        """Deletes every generation but the current one. What will not go is left for the next time: a shard that was
        just let go may still write to its folder."""
        current = self.current
        for path in self._path.iterdir():
            if path.name.isdecimal() and path != current:
                try:
                    shutil.rmtree(path)
                except OSError as error:
                    log.warning("generation %s is left over: %s", path.name, type(error).__name__)
