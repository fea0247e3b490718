"""What came lately from one instance: drops what comes again, says where to go on. Knows no network and no clock."""

from collections import OrderedDict, deque
from dataclasses import replace
from typing import TypeVar

from ingest.post import Post, Record, Removal
from ingest.sources.mastodon import Happening, id_order

MOST_POSTS = 20_000
MOST_DELETED = 20_000
STEP_MS = 1000

V = TypeVar("V")


class Recent:
    """The stream and the REST API give the same statuses, in no order between them; this keeps each post in order."""

    def __init__(self) -> None:
        self._versions: OrderedDict[str, tuple[int, int]] = OrderedDict()  # post id -> version_us, hash of the rest
        self._deleted: OrderedDict[str, None] = OrderedDict()  # local ids
        self.repeated = 0

    def new_in(self, happening: Happening) -> tuple[Record, ...]:
        """The records that say something new: not those that came already, not an older version than one that came,
        and nothing of a status that was deleted (REST may have read it just before)."""
        if happening.event == "delete" and happening.local_id:
            _put(self._deleted, happening.local_id, None, MOST_DELETED)
            return happening.records
        deleted = {post_id for local_id, post_id in happening.aliases if local_id in self._deleted}
        return tuple(record for record in happening.records if self._is_new(record, deleted))

    def _is_new(self, record: Record, deleted: set[str]) -> bool:
        if not isinstance(record, Post | Removal):
            return True
        post_id = record.id if isinstance(record, Post) else record.post_id
        content = hash(replace(record, received_ms=0)) if isinstance(record, Post) else hash(record)
        earlier = self._versions.get(post_id)
        if post_id in deleted or (earlier and (record.version_us < earlier[0] or earlier[1] == content)):
            self.repeated += 1
            return False
        _put(self._versions, post_id, (record.version_us, content), MOST_POSTS)
        return True


class Trail:
    """Which status was the newest at which time.

    A status that arrives late has an id older than the newest: Mastodon makes ids from the time of writing. So going
    on means going on from `overlap_ms` before the end.
    """

    def __init__(self, overlap_ms: int) -> None:
        self._overlap_ms = overlap_ms
        self._newest: deque[tuple[int, str]] = deque()

    def add(self, local_id: str, now_ms: int) -> None:
        if self._newest and id_order(local_id) <= id_order(self._newest[-1][1]):
            return
        if len(self._newest) > 1 and now_ms - self._newest[-2][0] < STEP_MS:
            self._newest.pop()
        self._newest.append((now_ms, local_id))

    def resume_from(self, now_ms: int) -> str | None:
        """The newest id that was the newest `overlap_ms` ago; before that long, the first."""
        while len(self._newest) > 1 and self._newest[1][0] <= now_ms - self._overlap_ms:
            self._newest.popleft()
        return self._newest[0][1] if self._newest else None


def _put(entries: OrderedDict[str, V], key: str, value: V, most: int) -> None:
    entries[key] = value
    entries.move_to_end(key)
    if len(entries) > most:
        entries.popitem(last=False)
