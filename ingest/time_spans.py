"""What was said about time, and now -> from when to when. Knows no language; days and hours are those of a zone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from ingest.time_grammar import table
from ingest.time_lexicon import Lexicon

Interval = tuple[datetime, datetime]  # the end is not in it

UNIT = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
    "month": timedelta(days=30),
}
PART = {
    "early": (0, 6),
    "morning": (5, 12),
    "midday": (11, 14),
    "afternoon": (12, 18),
    "evening": (17, 24),
    "night": (18, 30),  # until six of the next day
}
RIGHT_NOW = timedelta(hours=3)
AROUND = timedelta(minutes=30)  # "at 3 pm" is from half past two to half past three
LONGEST = timedelta(days=3650)
SMALL_HOURS = 6  # until then "tonight" is the night that began yesterday


@dataclass(frozen=True, slots=True)
class Said:
    """The words that a pattern found, by slot."""

    lexicon: Lexicon
    words: Mapping[str, str | None]

    def has(self, slot: str) -> bool:
        return self.words.get(slot) is not None

    def value(self, slot: str, of: str = "") -> Any:
        """What the word in the slot means by the table of that name, or by another."""
        return table(self.lexicon, of or slot)[" ".join((self.words[slot] or "").split())]

    def count(self, slot: str) -> float:
        """A number, in digits or in words."""
        word = self.words[slot] or ""
        return float(word) if word.isdecimal() else float(self.value(slot, "number"))

    def clock(self, to: str = "") -> tuple[int, int] | None:
        """(hour, minute), hours from 0 to 24. None when there is no such time of day."""
        if self.has(f"hour_name{to}"):
            return self.value(f"hour_name{to}", "hour_name"), 0
        hour, minute = int(self.count(f"hour{to}")), 0
        if self.has(f"minute{to}"):
            minute = int(self.count(f"minute{to}"))
        elif self.has(f"fraction{to}"):
            minute = self.value(f"fraction{to}", "fraction")
        if hour <= 12 and (half := self._half(to)) is not None:
            hour = hour % 12 + half
        return (hour, minute) if (hour < 24 and minute < 60) or (hour, minute) == (24, 0) else None

    def _half(self, to: str) -> int | None:
        """Before or after noon. "Between 2 and 4 pm" says it once for both; "from 11 to 2 pm" begins in the other."""
        if self.has(f"half{to}"):
            return int(self.value(f"half{to}", "half"))
        other = "" if to else "_to"
        if not (self.has(f"half{other}") and self.has("hour") and self.has("hour_to")):
            return None
        half = int(self.value(f"half{other}", "half"))
        return half if self.count("hour") % 12 < self.count("hour_to") % 12 else 12 - half


def span_of(kind: str, said: Said, now: datetime, is_since: bool) -> Interval | None:
    """None when it is no time, or begins later than now. The end may be later."""
    try:
        span = SPANS[kind](said, now)
    except (ValueError, OverflowError):  # 31 February; more days than the calendar has
        return None
    if span is None or span[0] > now:
        return None
    if is_since:
        return span[0], now
    is_moment = span[0] == span[1]
    return (earlier(span[0], AROUND), earlier(span[0], -AROUND)) if is_moment else span


def at(day: date, hour: int, minute: int, now: datetime) -> datetime:
    """That time of that day in now's zone, hours beyond 24 of the next days. Of a clock that is put back the first."""
    days, hour = divmod(hour, 24)
    day += timedelta(days=days)
    return datetime(day.year, day.month, day.day, hour, minute, tzinfo=now.tzinfo)


def day_from(now: datetime, days: int) -> date:
    return now.date() + timedelta(days=days)


def whole_days(first: date, days: int, now: datetime) -> Interval:
    return at(first, 0, 0, now), at(first, 24 * days, 0, now)


def earlier(now: datetime, by: timedelta) -> datetime:
    """Elapsed time, whatever the clocks did meanwhile."""
    return (now.astimezone(UTC) - min(by, LONGEST)).astimezone(now.tzinfo)


def rolling(said: Said, now: datetime) -> Interval:
    if not said.has("unit"):  # "die letzte Stunde"
        return earlier(now, UNIT["hour"]), now
    unit, some = said.value("unit")
    return earlier(now, UNIT[unit] * (said.count("number") if said.has("number") else some)), now


def ago(said: Said, now: datetime) -> Interval:
    """Some days ago is that day; "two hours ago" is then, give or take half an hour."""
    unit, count = said.value("unit")[0], said.count("number")
    if unit == "day" and count == int(count):
        return whole_days(day_from(now, -int(count)), 1, now)
    spread = min(max(UNIT[unit] / 2, UNIT[unit] * count / 4), UNIT[unit] * count / 2)
    return earlier(now, UNIT[unit] * count + spread), earlier(now, UNIT[unit] * count - spread)


def since_ago(said: Said, now: datetime) -> Interval:
    return earlier(now, UNIT[said.value("unit")[0]] * said.count("number")), now


def right_now(said: Said, now: datetime) -> Interval:
    return earlier(now, RIGHT_NOW), now


def day(said: Said, now: datetime) -> Interval:
    return whole_days(day_from(now, said.value("day")), 1, now)


def part_of(first: date, part: str, now: datetime) -> Interval:
    begin, end = PART[part]
    return at(first, begin, 0, now), at(first, end, 0, now)


def day_part(said: Said, now: datetime) -> Interval:
    days, part = said.value("day_part") if said.has("day_part") else (said.value("day"), said.value("part"))
    if days == 0 and part in ("evening", "night") and now.hour < SMALL_HOURS:
        days = -1
    return part_of(day_from(now, days), part, now)


def day_clock(said: Said, now: datetime) -> Interval | None:
    clock = said.clock()
    if clock is None:
        return None
    moment = at(day_from(now, said.value("day")), *clock, now)
    return moment, moment


def clock(said: Said, now: datetime) -> Interval | None:
    """Today, or yesterday if it is not yet that late."""
    said_clock = said.clock()
    if said_clock is None:
        return None
    moment = at(now.date(), *said_clock, now)
    if moment > now:
        moment = at(day_from(now, -1), *said_clock, now)
    return moment, moment


def between(said: Said, now: datetime) -> Interval | None:
    first, last = said.clock(), said.clock("_to")
    if first is None or last is None:
        return None
    days = said.value("day") if said.has("day") else 0
    if not said.has("day") and at(now.date(), *first, now) > now:
        days = -1
    begin = day_from(now, days)
    end = begin if last > first else begin + timedelta(days=1)
    return at(begin, *first, now), at(end, *last, now)


def weekday(said: Said, now: datetime) -> Interval:
    """The latest of these days that has begun."""
    return whole_days(day_from(now, -((now.weekday() - said.value("weekday")) % 7)), 1, now)


def last_weekday(said: Said, now: datetime) -> Interval:
    """The latest before today."""
    return whole_days(day_from(now, -((now.weekday() - said.value("weekday") - 1) % 7 + 1)), 1, now)


def weekday_part(said: Said, now: datetime) -> Interval:
    """Of the latest that has begun: on a Friday morning "Friday night" is a week ago."""
    first = weekday(said, now)[0].date()
    span = part_of(first, said.value("part"), now)
    return span if span[0] <= now else part_of(first - timedelta(days=7), said.value("part"), now)


def calendar_date(said: Said, now: datetime) -> Interval:
    """This year's, or last year's if this year's is still to come."""
    month, number = said.value("month"), int(said.count("date"))
    found = date(now.year, month, number)
    return whole_days(found if found <= now.date() else date(now.year - 1, month, number), 1, now)


def nth(said: Said, now: datetime) -> Interval | None:
    """The latest day of that number in its month."""
    number, month = int(said.count("date")), now.date().replace(day=1)
    for _ in range(12):
        if 1 <= number <= 31:
            found = month + timedelta(days=number - 1)
            if found.month == month.month and found <= now.date():
                return whole_days(found, 1, now)
        month = (month - timedelta(days=1)).replace(day=1)
    return None


def calendar_span(said: Said, now: datetime) -> Interval:
    """Weeks begin on Monday. "The weekend" is the one that is now, or the last."""
    name, which = said.value("span")
    monday = day_from(now, -now.weekday())
    if name == "week":
        return whole_days(monday + timedelta(days=7 * which), 7, now)
    if name == "weekend":
        saturday = monday + timedelta(days=5)
        weeks = which if now.date() >= saturday else -1
        return whole_days(saturday + timedelta(days=7 * weeks), 2, now)
    first = now.date().replace(day=1)
    if which:
        return at((first - timedelta(days=1)).replace(day=1), 0, 0, now), at(first, 0, 0, now)
    return at(first, 0, 0, now), at((first + timedelta(days=31)).replace(day=1), 0, 0, now)


SPANS: dict[str, Callable[[Said, datetime], Interval | None]] = {
    "rolling": rolling,
    "since_ago": since_ago,
    "ago": ago,
    "now": right_now,
    "day": day,
    "day_part": day_part,
    "day_clock": day_clock,
    "clock": clock,
    "between": between,
    "weekday": weekday,
    "last_weekday": last_weekday,
    "weekday_part": weekday_part,
    "date": calendar_date,
    "nth": nth,
    "span": calendar_span,
}
