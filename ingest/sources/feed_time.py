"""The dates of feeds, as they are found: RFC 822 in any spelling, ISO 8601, and what feedparser makes of the rest."""

import re
from datetime import UTC, datetime
from time import struct_time

from ingest.versions import time_us

FIRST_YEAR, LAST_YEAR = 1990, 2100  # outside of these it is a default or a slip, not a date

_ISO = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d(?::\d\d(?:[.,]\d{1,32})?)?) ?([Zz]|[+-]\d\d:?\d\d)?", re.ASCII)
_BASIC = re.compile(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)([Zz]|[+-]\d\d:?\d\d)?", re.ASCII)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_EPOCH = re.compile(r"[0-9]{10}|[0-9]{13}")
# The weekday, in whatever language, and whatever follows (the same date once more) are not looked at.
_RFC822 = re.compile(
    r"\b(\d{1,2})[ -]([^\W\d_]{3,12})\.?[ -](\d{4}|\d{2,3})\b"
    r"(?:,? +(\d{1,2}):(\d\d)(?::(\d\d))?(?: *([+-]\d{4}\b|[A-Z]+))?)?"
)
_MONTHS = {
    "jan": 1, "ene": 1, "gen": 1, "feb": 2, "fév": 2, "fev": 2, "mar": 3, "mär": 3, "mrt": 3, "apr": 4, "abr": 4,
    "avr": 4, "may": 5, "mai": 5, "mag": 5, "mei": 5, "jun": 6, "juin": 6, "giu": 6, "jul": 7, "juil": 7, "lug": 7,
    "aug": 8, "ago": 8, "aoû": 8, "sep": 9, "set": 9, "oct": 10, "okt": 10, "ott": 10, "out": 10, "nov": 11,
    "dec": 12, "dez": 12, "dic": 12, "déc": 12,
}  # fmt: skip
_ZONES_H = {
    "EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7, "BST": 1, "CET": 1,
    "CEST": 2, "EET": 2, "EEST": 3, "MSK": 3, "JST": 9, "KST": 9, "AEST": 10, "AEDT": 11,
}  # fmt: skip
_DAY_US = 86_400_000_000


def read_time(text: str, parsed: struct_time | None = None) -> int | None:
    """Microseconds since the epoch; without a zone, or in one that is not known, it is UTC. None: no date.

    `parsed`: feedparser's reading, for the forms that only it knows. Of the others it loses some: without a zone, with
    a weekday in another language, in digits alone.
    """
    text = text.strip()[:200]
    try:
        us = _read(text)
        if us is None and parsed is not None:
            us = round(datetime(*parsed[:5], min(parsed[5], 59), tzinfo=UTC).timestamp() * 1e6)
    except (ValueError, OverflowError):
        return None
    if us is None:
        return None
    first, last = (round(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000 for year in (FIRST_YEAR, LAST_YEAR))
    return us if first <= us < last else None


def _read(text: str) -> int | None:
    """Raises ValueError."""
    if found := _ISO.match(text):
        return time_us(f"{found[1]}T{found[2]}{found[3] or 'Z'}")
    if found := _BASIC.match(text):
        year, month, day, hour, minute, second, zone = found.groups()
        return time_us(f"{year}-{month}-{day}T{hour}:{minute}:{second}{zone or 'Z'}")
    if _DAY.fullmatch(text):
        return time_us(f"{text}T00:00Z")
    if _EPOCH.fullmatch(text):
        return int(text) * (1_000_000 if len(text) == 10 else 1000)
    found = _RFC822.search(text)
    return None if found is None else _rfc822(*found.groups())


def _rfc822(
    day: str, month: str, year: str, hour: str | None, minute: str | None, second: str | None, zone: str | None
) -> int | None:
    number = _MONTHS.get(month.lower()[:4]) or _MONTHS.get(month.lower()[:3])
    if number is None:
        return None
    full_year = int(year) + (0 if len(year) == 4 else 1900 if len(year) == 3 or int(year) >= 50 else 2000)
    hours = int(hour or 0)
    offset = zone or "Z"
    if offset[0] not in "+-":
        offset = f"{_ZONES_H.get(offset, 0):+03d}00"
    clock = f"{hours % 24:02d}:{int(minute or 0):02d}:{int(second or 0):02d}{offset}"
    midnight = _DAY_US if hours == 24 else 0
    return time_us(f"{full_year:04d}-{number:02d}-{int(day):02d}T{clock}") + midnight if hours <= 24 else None
