"""What a caller may ask of the feed: a question and what limits the answer. Bad values are refused by name."""

import math
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from ingest.rank import BM25_SHARE, RECENCY_HALF_LIFE_MS

MAX_LIMIT = 100
MAX_QUESTION_CHARS = 8192  # more never fits the embedder
MAX_VALUES, MAX_VALUE_CHARS = 100, 1024  # of one filter
MAX_MS = 253_402_300_800_000  # the year 10000
MAX_COUNT = 2**53
MINUTE_MS, YEAR_MS = 60_000, 366 * 24 * 3_600_000
LISTS = ("sources", "authors", "without_authors", "languages", "labels", "without_labels")


class BadAsk(ValueError):
    """`field` of the ask cannot be used; `reason` continues a sentence that begins with its name."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(field, reason)
        self.field, self.reason = field, reason

    def __str__(self) -> str:
        return f"{self.field} {self.reason}"


@dataclass(frozen=True, slots=True)
class Ask:
    """Raises BadAsk. Times are epoch milliseconds, both ends included; empty filters let everything through.

    `time_zone`: IANA name; "" is the service's. `read_time_words`: "yesterday" in the question limits the time, unless
    `since_ms` or `until_ms` does.
    """

    question: str
    limit: int = 10
    since_ms: int | None = None
    until_ms: int | None = None
    sources: tuple[str, ...] = ()
    authors: tuple[str, ...] = ()  # ids or handles
    without_authors: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()  # "en" finds "en-GB" too
    labels: tuple[str, ...] = ()  # any of them
    without_labels: tuple[str, ...] = ()
    min_likes: int = 0
    min_reposts: int = 0
    min_replies: int = 0
    conversation: str | None = None  # the post that a thread began with
    half_life_ms: int = RECENCY_HALF_LIFE_MS  # after as long, half of what being new adds is left
    bm25_share: float = BM25_SHARE  # 1: words alone decide, 0: meaning alone
    time_zone: str = ""
    read_time_words: bool = True

    def __post_init__(self) -> None:
        _check(isinstance(self.question, str), "question", "must be a string")
        _check(len(self.question) <= MAX_QUESTION_CHARS, "question", f"is longer than {MAX_QUESTION_CHARS} characters")
        _check_int(self.limit, "limit", 1, MAX_LIMIT)
        _check_int(self.half_life_ms, "half_life_ms", MINUTE_MS, YEAR_MS)
        for name in ("min_likes", "min_reposts", "min_replies"):
            _check_int(getattr(self, name), name, 0, MAX_COUNT)
        for name in ("since_ms", "until_ms"):
            if getattr(self, name) is not None:
                _check_int(getattr(self, name), name, 0, MAX_MS)
        if self.since_ms is not None and self.until_ms is not None:
            _check(self.since_ms <= self.until_ms, "until_ms", "is before since_ms")
        for name in LISTS:
            _check_list(getattr(self, name), name)
        if self.conversation is not None:
            _check_name(self.conversation, "conversation")
        share = self.bm25_share
        is_number = isinstance(share, int | float) and not isinstance(share, bool) and math.isfinite(share)
        _check(is_number and 0 <= share <= 1, "bm25_share", "must be a number from 0 to 1")
        _check(isinstance(self.read_time_words, bool), "read_time_words", "must be true or false")
        _check_zone(self.time_zone)


def _check(is_right: bool, field: str, reason: str) -> None:
    if not is_right:
        raise BadAsk(field, reason)


def _check_int(value: object, field: str, least: int, most: int) -> None:
    is_right = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
    _check(is_right, field, f"must be a whole number from {least} to {most}")


def _check_list(values: object, field: str) -> None:
    _check(isinstance(values, tuple), field, "must be a list of strings")
    assert isinstance(values, tuple)
    _check(len(values) <= MAX_VALUES, field, f"has more than {MAX_VALUES} values")
    for value in values:
        _check_name(value, field)


def _check_name(value: object, field: str) -> None:
    _check(isinstance(value, str), field, "must hold strings only")
    assert isinstance(value, str)
    _check(bool(value.strip()), field, "holds an empty value")
    _check(len(value) <= MAX_VALUE_CHARS, field, f"holds a value of more than {MAX_VALUE_CHARS} characters")


def _check_zone(name: object) -> None:
    _check(isinstance(name, str), "time_zone", "must be a string")
    if name:
        try:
            ZoneInfo(str(name))
        except (KeyError, ValueError, OSError):  # unknown; a path; a folder of zones
            raise BadAsk("time_zone", "is no IANA time zone, such as Europe/Berlin") from None
