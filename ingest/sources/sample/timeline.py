"""Story time: milliseconds since the epoch around one fixed `NOW`, and how they are written down."""

from datetime import UTC, datetime, timedelta

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
FIRST_MIN = -360  # minutes from NOW; the feed spans [FIRST_MIN, LAST_MIN)
LAST_MIN = 120

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOW_MS = (NOW - _EPOCH) // timedelta(milliseconds=1)
LAST_MS = NOW_MS + LAST_MIN * 60_000

_SORTABLE = "234567abcdefghijklmnopqrstuvwxyz"


def at_minute(minute: float) -> int:
    """Epoch milliseconds of a minute counted from `NOW`."""
    return NOW_MS + int(minute * 60_000)


def iso(ms: int) -> str:
    """RFC 3339 in UTC with milliseconds: `2026-01-01T12:00:00.000Z`."""
    moment = _EPOCH + timedelta(milliseconds=ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z"


def native_id(ms: int) -> str:
    """13 characters that sort like the time they were made from, as on networks that use such ids."""
    number = (ms * 1000) << 10
    digits = [_SORTABLE[(number >> shift) & 31] for shift in range(60, -1, -5)]
    return "".join(digits)
