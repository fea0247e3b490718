"""Which of two versions of a post is the newer: version strings -> microseconds since the epoch (docs/feed.md).

Knows no JSON and no index.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from ingest.post import AccountChange, Post, Removal

_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,32}))?)?(?:([Zz])|([+-])(\d\d)(?::?(\d\d))?)?",
    re.ASCII,
)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_US = (1 - _EPOCH_DAY) * 86_400_000_000
_LAST_US = (date.max.toordinal() + 1 - _EPOCH_DAY) * 86_400_000_000 - 1
_TID_DIGITS = "234567abcdefghijklmnopqrstuvwxyz"
_TID = re.compile(r"[234567a-j][234567a-z]{12}")
_TID_VALUES = {digit: value for value, digit in enumerate(_TID_DIGITS)}
_EPOCH_NUMBER = re.compile(r"[0-9]{13}|[0-9]{16}")


def time_us(text: str) -> int:
    """RFC 3339 and the usual ISO 8601 date-times; no zone means UTC, digits past the microsecond are cut.

    Raises ValueError for anything else, dates alone and impossible times included.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError("no RFC 3339 time")
    year, month, day, hour, minute = (int(part) for part in found.groups()[:5])
    second = int(found[6] or 0)
    micros = int(((found[7] or "") + "000000")[:6])
    zone_hour, zone_minute = int(found[10] or 0), int(found[11] or 0)
    if hour > 23 or minute > 59 or second > 60 or zone_hour > 23 or zone_minute > 59:  # 60: a leap second
        raise ValueError("no such time of day")
    days = date(year, month, day).toordinal() - _EPOCH_DAY
    offset_min = (zone_hour * 60 + zone_minute) * (-1 if found[9] == "-" else 1)
    us = ((days * 1440 + hour * 60 + minute - offset_min) * 60 + second) * 1_000_000 + micros
    if not _FIRST_US <= us <= _LAST_US:
        raise ValueError("outside the years 1 to 9999")
    return us


def time_text(us: int) -> str:
    """RFC 3339 in UTC with microseconds. Times outside the years 1 to 9999 are clamped to them."""
    moment = _EPOCH + timedelta(microseconds=max(_FIRST_US, min(us, _LAST_US)))
    return moment.strftime("%Y-%m-%dT%H:%M:%S.").rjust(20, "0") + f"{moment.microsecond:06d}Z"


def version_us(text: str) -> int:
    """An atproto TID, an RFC 3339 time, or the epoch in 13 (ms) or 16 (us) digits. Raises ValueError for anything else.

    Thirteen digits are read as milliseconds: no TID between 2012 and 2041 is made of digits alone.
    """
    if _EPOCH_NUMBER.fullmatch(text):
        return int(text) * (1000 if len(text) == 13 else 1)
    if _TID.fullmatch(text):
        return _tid_number(text) >> 10
    return time_us(text)


def moved_version(text: str, move: Callable[[int], int]) -> str:
    """The same kind of version string at another time; `move` maps microseconds to microseconds."""
    if _EPOCH_NUMBER.fullmatch(text):
        divisor = 1000 if len(text) == 13 else 1
        return str(move(version_us(text)) // divisor)
    if _TID.fullmatch(text):
        number = move(version_us(text)) << 10 | _tid_number(text) & 1023
        return "".join(_TID_DIGITS[number >> shift & 31] for shift in range(60, -1, -5))
    return time_text(move(time_us(text)))


def _tid_number(text: str) -> int:
    number = 0
    for digit in text:
        number = number << 5 | _TID_VALUES[digit]
    return number


class Newest:
    """What a batch, read in order, leaves of each post and each account: the rule of the index, applied before any work
    is spent.

    A post may end with both a removal and a newer version that follows it: the removal must be applied first.
    """

    def __init__(self, records: Iterable[Post | Removal | AccountChange] = ()) -> None:
        self._posts: dict[str, Post] = {}
        self._removals: dict[str, Removal] = {}
        self._accounts: dict[str, AccountChange] = {}
        for record in records:
            self.add(record)

    def add(self, record: Post | Removal | AccountChange) -> None:
        if isinstance(record, Post):
            self._add_post(record)
        elif isinstance(record, Removal):
            self._add_removal(record)
        else:
            self._add_account(record)

    def join(self, later: "Newest") -> None:
        """Adds what a later batch left."""
        for change in later.accounts:
            self._add_account(change)
        for removal in later.removals:
            self._add_removal(removal)
        for post in later.posts:
            self._add_post(post)

    def overtaking(self, ahead: Sequence["Newest"]) -> list[Removal]:
        """The removals that may be applied at once, before the batches `ahead` of this one, and once more in their
        place: in the end the index holds the same. The others find a newer version of their post in their place."""
        return [removal for removal in self.removals if not any(batch._outdates(removal) for batch in ahead)]

    def _outdates(self, removal: Removal) -> bool:
        """Whether the removal, coming after this batch, would change nothing: the post is here, and newer."""
        post = self._posts.get(removal.post_id)
        return removal.if_newer and post is not None and removal.version_us < post.version_us

    def _add_post(self, post: Post) -> None:
        older, removal = self._posts.get(post.id), self._removals.get(post.id)
        if older is not None and post.version_us < older.version_us:
            return
        if removal is not None and post.version_us <= removal.version_us:
            return
        self._posts[post.id] = post

    def _add_removal(self, removal: Removal) -> None:
        post, earlier = self._posts.get(removal.post_id), self._removals.get(removal.post_id)
        if self._outdates(removal):
            return
        if removal.if_newer and earlier is not None and removal.version_us < earlier.version_us:
            return
        self._posts.pop(removal.post_id, None)
        known = [removal.version_us, *(seen.version_us for seen in (post, earlier) if seen is not None)]
        if_newer = removal.if_newer and (earlier is None or earlier.if_newer)
        self._removals[removal.post_id] = replace(removal, version_us=max(known), if_newer=if_newer)

    def _add_account(self, change: AccountChange) -> None:
        """A deleted account stays deleted; else the newer change counts, and of two of one version the later."""
        known = self._accounts.get(change.account)
        is_final = known is not None and known.state == "deleted"
        is_newer = known is None or change.version_us >= known.version_us
        if not is_final and (change.state == "deleted" or is_newer):
            self._accounts[change.account] = change

    @property
    def posts(self) -> list[Post]:
        return list(self._posts.values())

    @property
    def removals(self) -> list[Removal]:
        return list(self._removals.values())

    @property
    def accounts(self) -> list[AccountChange]:
        return list(self._accounts.values())
