"""What the ingest loop has done and how far it is behind."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ingest.post import Passage
from ingest.rate import Rate

MAX_NAMES = 200  # counted by name: the names come from outside
SHORT_S, MINUTE_S = 10, 60


@dataclass(frozen=True, slots=True)
class IngestStats:
    """Counts since the start; times are epoch milliseconds. `reason` says why it is not healthy, "" when it is."""

    healthy: bool
    reason: str
    lag_records: int
    newest_ms: int | None  # the newest record's own time
    last_applied_ms: int | None
    oldest_unapplied_ms: int | None = None  # age of the oldest record that is here and not in the index yet
    records_in_flight: int = 0
    bytes_in_flight: int = 0
    records_per_s: float = 0.0  # read, over the last 10 s
    records_per_s_minute: float = 0.0
    posts_per_s: float = 0.0  # in the index, over the last 10 s
    posts_per_s_minute: float = 0.0
    records: int = 0
    posts: int = 0  # versions handed to the index
    removals: int = 0
    account_changes: int = 0
    rewritten: int = 0
    blocked: int = 0
    empty: int = 0
    refused_consent: int = 0
    dead_letters: int = 0
    retries: int = 0
    failed_commits: int = 0
    malformed: dict[str, int] = field(default_factory=dict)  # by reason
    dropped_fields: dict[str, int] = field(default_factory=dict)  # by field, of records that were accepted
    languages: dict[str, int] = field(default_factory=dict)  # found where the source gave none; "" is unsure


class Tally:
    """Counts what the stages do."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self.counts: Counter[str] = Counter()
        self.malformed: Counter[str] = Counter()
        self._dropped_fields: Counter[str] = Counter()
        self._languages: Counter[str] = Counter()
        self._records, self._posts = Rate(now_s()), Rate(now_s())

    def read(self, records: int) -> None:
        self.counts["records"] += records
        self._records.add(records, self._now_s())

    def applied(self, passages: Iterable[Passage], removals: int, account_changes: int) -> None:
        posts = len({passage.post.id for passage in passages})
        self.counts.update(posts=posts, removals=removals, account_changes=account_changes)
        self._posts.add(posts, self._now_s())

    def dropped(self, fields: Counter[str]) -> None:
        _add(self._dropped_fields, fields)

    def detected(self, languages: Iterable[str]) -> None:
        _add(self._languages, Counter(languages))

    def numbers(self) -> dict[str, int | float | dict[str, int]]:
        """The counts and rates, by their names in IngestStats."""
        now_s = self._now_s()
        return {
            **self.counts,
            "records_per_s": self._records.per_s(SHORT_S, now_s),
            "records_per_s_minute": self._records.per_s(MINUTE_S, now_s),
            "posts_per_s": self._posts.per_s(SHORT_S, now_s),
            "posts_per_s_minute": self._posts.per_s(MINUTE_S, now_s),
            "malformed": dict(self.malformed),
            "dropped_fields": dict(self._dropped_fields),
            "languages": dict(self._languages),
        }


def _add(counted: Counter[str], more: Counter[str]) -> None:
    for name, count in more.items():
        known = name in counted or len(counted) < MAX_NAMES
        counted[name if known else "(others)"] += count
