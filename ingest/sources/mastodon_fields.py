"""The fields of a Mastodon status and of its account, each read by itself. Faults raise Refused (ingest/payload.py)."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from ingest.payload import Refused
from ingest.post import Author
from ingest.shape import post_id as checked_id
from ingest.versions import time_us

SOURCE = "mastodon"
MAX_TAGS = 30

_LOCAL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)  # digits on Mastodon, other servers use letters too
_MOST = 2**53


def local_id_of(given: Any) -> str:
    """A server's id of a status; "" for anything that is none. A number is none: somebody may have rounded it."""
    return given if isinstance(given, str) and _LOCAL_ID.fullmatch(given) else ""


def read_local_id(given: Any) -> str:
    if not (local_id := local_id_of(given)):
        raise Refused("id", "missing or not an id")
    return local_id


def read_post_id(uri: Any) -> str:
    """The post's id everywhere: its `uri`, which is the same on every server."""
    if not isinstance(uri, str) or not uri:
        raise Refused("uri", "missing or not a string")
    try:
        return checked_id(f"{SOURCE}:{uri}")
    except ValueError:
        raise Refused("uri", "not an id") from None


def refusal_of_account(account: Mapping[str, Any], indexable_only: bool) -> str:
    """Why nothing of the account may be found, "" if it may. Anything that is not plainly a no counts as the flag."""
    for flag in ("suspended", "limited", "noindex"):
        if account.get(flag) not in (None, False):
            return flag
    return "indexable" if indexable_only and account.get("indexable") is not True else ""


def refusal_of_status(status: Mapping[str, Any]) -> str:
    """Unlisted means: in no public timeline and no search. A post for one instance alone is not public either."""
    if status.get("visibility") != "public":
        return "visibility"
    return "local_only" if status.get("local_only") not in (None, False) else ""


def author_of(account: Mapping[str, Any], host: str) -> Author:
    """Its id is the account's address, the same on every server; of old servers, which state no `uri`, its page.

    A local account is named without its host: it is added.
    """
    acct = _string(account.get("acct")).strip()
    handle = acct if not acct or "@" in acct else f"{acct}@{host}"
    addresses = (_string(account.get(name)).strip() for name in ("uri", "url"))
    author_id = next(filter(None, addresses), handle)
    if not author_id:
        raise Refused("account", "no name")
    return Author(author_id, handle, _string(account.get("display_name")))


def labels_of(status: Mapping[str, Any], account: Mapping[str, Any]) -> tuple[str, ...]:
    """`sensitive`, `bot`, and each hashtag as `#name`."""
    labels = ["sensitive"] * (status.get("sensitive") is True) + ["bot"] * (account.get("bot") is True)
    tags = status.get("tags")
    for tag in tags[:MAX_TAGS] if isinstance(tags, list) else ():
        name = _string(tag.get("name")).strip().lstrip("#") if isinstance(tag, dict) else ""
        if name:
            labels.append(f"#{name.lower()}")
    return tuple(dict.fromkeys(labels))


def url_of(status: Mapping[str, Any]) -> str:
    for given in (status.get("url"), status.get("uri")):
        try:
            parts = urlsplit(_string(given))
        except ValueError:
            continue
        if parts.scheme in ("http", "https") and parts.netloc:
            return _string(given)
    return ""


def language_of(status: Mapping[str, Any]) -> str:
    return _string(status.get("language"))


def version_us(status: Mapping[str, Any]) -> int:
    """When it was written: `edited_at`, else `created_at`. The same for a change that is none of its text."""
    return read_time(status, "created_at" if status.get("edited_at") is None else "edited_at")


def read_time(status: Mapping[str, Any], name: str) -> int:
    """Microseconds since the epoch."""
    given = status.get(name)
    if not isinstance(given, str):
        raise Refused(name, "missing or not a string")
    try:
        return time_us(given)
    except ValueError:
        raise Refused(name) from None


def count(given: Any) -> int:
    return given if isinstance(given, int) and not isinstance(given, bool) and 0 <= given <= _MOST else 0


def _string(given: Any) -> str:
    return given if isinstance(given, str) else ""
