"""Fields of an X post or user that can be read by themselves; what cannot be read is left out. Knows no ids."""

import re
from collections.abc import Mapping
from typing import Any

from ingest.payload import Refused
from ingest.sources.x_ids import either
from ingest.versions import time_us

EVERYWHERE = frozenset({"XX", "XY"})  # no countries: withheld in all of them; withheld for copyright

_HANDLE = re.compile(r"[A-Za-z0-9_]{1,20}", re.ASCII)
_COUNTRY = re.compile(r"[A-Z]{2}", re.ASCII)
_NO_LANGUAGE = re.compile(r"und|zxx|mul|mis|art|q[a-t][a-z]")  # qme: pictures only, qht: hashtags only ...
_OLD_LANGUAGES = {"in": "id", "iw": "he", "ji": "yi"}


def created_us(given: Mapping[str, Any]) -> int | None:
    """Microseconds since the epoch. Raises Refused for a time that is there and is none."""
    if given.get("created_at") is None:
        return None
    try:
        return time_us(given["created_at"])
    except (ValueError, TypeError):
        raise Refused("created_at") from None


def language(given: Any) -> str:
    """X's own codes for "no language" become "", its old codes those of today."""
    if not isinstance(given, str) or _NO_LANGUAGE.fullmatch(given):
        return ""
    return _OLD_LANGUAGES.get(given, given)


def string(given: Mapping[str, Any], name: str) -> str:
    return given[name] if isinstance(given.get(name), str) else ""


def web_url(user: Mapping[str, Any], native_id: str) -> str:
    """X answers to any name before /status/, so a post whose author is not known has a link too."""
    handle = string(user, "username")
    return f"https://x.com/{handle if _HANDLE.fullmatch(handle) else 'i'}/status/{native_id}"


def withheld_in(given: Mapping[str, Any]) -> set[str]:
    """Country codes of a post or a user, and those of EVERYWHERE."""
    withheld = given.get("withheld")
    if not isinstance(withheld, Mapping):
        return set()
    codes = withheld.get("country_codes")
    found = [one for one in codes if isinstance(one, str)] if isinstance(codes, list) else []
    everywhere = {"XY"} if withheld.get("copyright") is True else set()
    return everywhere.union(one for one in found if _COUNTRY.fullmatch(one))


def labels(given: Mapping[str, Any], countries: set[str]) -> tuple[str, ...]:
    sensitive = ("sensitive",) if given.get("possibly_sensitive") is True else ()
    return (*sensitive, *(f"withheld:{country}" for country in sorted(countries)))


def engagement(metrics: Any) -> dict[str, Any]:
    """Fields of Post."""
    if not isinstance(metrics, Mapping):
        return {}
    return {
        "likes": _number(metrics.get("like_count")) or 0,
        "reposts": _number(either(metrics, "retweet_count", "repost_count")) or 0,
        "replies": _number(metrics.get("reply_count")) or 0,
        "views": _number(metrics.get("impression_count")),
    }


def label(name: Any) -> str:
    """A name that X gave, as a key of a count: short and plain."""
    return name if isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9_.-]{1,60}", name, re.ASCII) else "unknown"


def _number(given: Any) -> int | None:
    return given if type(given) is int and 0 <= given <= 2**53 else None
