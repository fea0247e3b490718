"""X's ids: strings of digits that hold the time at which they were made. Knows no posts.

An edit has a new id. The post is known by the first id of its edit chain, `x:<first>`; the others are its aliases.
"""

import re
from collections.abc import Mapping
from typing import Any

from ingest.payload import Refused

FIRST_SNOWFLAKE = 29_700_859_247  # smaller ids were counted up and hold no time
MAX_CHAIN = 100  # X allows five edits
_EPOCH_MS = 1_288_834_974_657
_ID = re.compile(r"[1-9][0-9]{0,19}", re.ASCII)


def checked_id(given: Any, field: str) -> str:
    """Raises Refused for a number (above 2**53 somebody has rounded it already), "1.34e+18", and anything else."""
    if not isinstance(given, str) or not _ID.fullmatch(given) or int(given) >= 2**64:
        raise Refused("id", f"{field}: missing" if given is None else f"{field}: not a string of digits")
    return given


def post_id(native_id: str) -> str:
    return f"x:{native_id}"


def made_ms(native_id: str) -> int | None:
    """Epoch milliseconds; None for an id older than November 2010."""
    number = int(native_id)
    return (number >> 22) + _EPOCH_MS if number >= FIRST_SNOWFLAKE else None


def first_id_at(ms: int) -> str:
    """The smallest id that X could have made at this time."""
    return str(max(0, ms - _EPOCH_MS) << 22)


def edit_chain(post: Mapping[str, Any]) -> list[str]:
    """All ids of the post, oldest first, its own included. Raises Refused.

    The live API says `edit_history_tweet_ids`, its schema (2.167) `edit_history_post_ids`.
    """
    own = checked_id(post.get("id"), "id")
    history = either(post, "edit_history_tweet_ids", "edit_history_post_ids")
    if history is None:
        return [own]
    if not isinstance(history, list) or len(history) > MAX_CHAIN:
        raise Refused("id", "edit history: not a short list")
    return sorted({own, *(checked_id(given, "edit history") for given in history)}, key=int)


def version_us(chain: list[str], native_id: str, created_us: int | None) -> int:
    """Microseconds since the epoch, later for each later id of the chain. Raises Refused without any time."""
    position = chain.index(native_id)
    ms = made_ms(native_id)
    if ms is not None:
        return ms * 1000 + position
    if created_us is None:
        raise Refused("created_at", "missing, and the id is too old to say it")
    return created_us + position


def either(given: Mapping[str, Any], *names: str) -> Any:
    """The first of these fields that is there: X renames fields without a new version of its API."""
    return next((given[name] for name in names if given.get(name) is not None), None)
