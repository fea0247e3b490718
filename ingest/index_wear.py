"""What makes a vacuum due: how much of a shard is dead, or new, and since when it holds text that was removed."""

import json
from pathlib import Path


class Wear:
    """Kept in a file beside the shard; counts are since the last vacuum, and about. `dead`: points deleted or written
    over; `added`: points written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._removed_since_ms: int | None = None  # the first after `begin`
        try:
            kept = json.loads(path.read_text()) if path.is_file() else {}
        except ValueError:  # a power cut may leave it empty: something may have been removed
            kept = {"removed_ms": 0}
        self.dead: int = kept.get("dead", 0)
        self.added: int = kept.get("added", 0)
        self.removed_ms: int | None = kept.get("removed_ms")

    def removed(self, now_ms: int) -> None:
        """Text that must go is still in the files. On disk at once: a kill must not forget it."""
        if self._removed_since_ms is None:
            self._removed_since_ms = now_ms
        if self.removed_ms is None:
            self.removed_ms = now_ms
            self.save()

    def begin(self) -> None:
        """A vacuum does: what is removed from now on may get into the files that it makes."""
        self._removed_since_ms = None

    def reset(self) -> None:
        """The files are those of the vacuum that began last."""
        self.dead, self.added, self.removed_ms = 0, 0, self._removed_since_ms
        self.save()

    def save(self) -> None:
        draft = self._path.with_suffix(".new")
        draft.write_text(json.dumps({"dead": self.dead, "added": self.added, "removed_ms": self.removed_ms}))
        draft.replace(self._path)
