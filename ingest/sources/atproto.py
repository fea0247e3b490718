"""Names of the AT Protocol, by its syntax rules (atproto.com/specs). Knows no Bluesky records."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeGuard

_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_DID = re.compile(r"did:[a-z]+:[a-zA-Z0-9._:%-]*[a-zA-Z0-9._-]")
_HANDLE = re.compile(rf"(?:{_LABEL}\.)+[a-zA-Z](?:[a-zA-Z0-9-]{{0,61}}[a-zA-Z0-9])?")
_NSID = re.compile(rf"[a-zA-Z](?:[a-zA-Z0-9-]{{0,61}}[a-zA-Z0-9])?(?:\.{_LABEL})+\.[a-zA-Z][a-zA-Z0-9]{{0,62}}")
_RECORD_KEY = re.compile(r"[A-Za-z0-9_~.:-]{1,512}")
_TID = re.compile(r"[234567a-j][234567a-z]{12}")
_LANGUAGE = re.compile(r"(?:[a-z]{2,3}|[a-z]{5,8}|[ix](?=-))(?:-[a-z0-9]{1,8})*", re.IGNORECASE | re.ASCII)


def is_did(text: object) -> TypeGuard[str]:
    return isinstance(text, str) and len(text) <= 2048 and _DID.fullmatch(text) is not None


def is_handle(text: object) -> TypeGuard[str]:
    """`handle.invalid`, which stands for no handle, is one by its syntax."""
    return isinstance(text, str) and len(text) <= 253 and _HANDLE.fullmatch(text) is not None


def is_nsid(text: object) -> TypeGuard[str]:
    return isinstance(text, str) and len(text) <= 317 and _NSID.fullmatch(text) is not None


def is_record_key(text: object) -> TypeGuard[str]:
    return isinstance(text, str) and _RECORD_KEY.fullmatch(text) is not None and text not in (".", "..")


def is_tid(text: object) -> TypeGuard[str]:
    return isinstance(text, str) and _TID.fullmatch(text) is not None


def is_language(text: object) -> TypeGuard[str]:
    return isinstance(text, str) and len(text) <= 128 and _LANGUAGE.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class AtUri:
    authority: str  # a DID or a handle
    collection: str = ""
    record_key: str = ""

    def __str__(self) -> str:
        return "at://" + "/".join(part for part in (self.authority, self.collection, self.record_key) if part)


def read_at_uri(text: object) -> AtUri:
    """The strict form that records may hold: no query, no fragment, nothing after the record key. Raises ValueError."""
    if not isinstance(text, str) or len(text) > 8192 or not text.startswith("at://"):
        raise ValueError("not an at-uri")
    parts = text[len("at://") :].split("/")
    checks: tuple[Callable[[object], bool], ...] = (
        lambda part: is_did(part) or is_handle(part),
        is_nsid,
        is_record_key,
    )
    if len(parts) > len(checks) or not all(check(part) for check, part in zip(checks, parts, strict=False)):
        raise ValueError("not an at-uri")
    return AtUri(*parts)
