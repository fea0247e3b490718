"""Untrusted bytes -> a JSON object of clean text, every limit checked before the decoder runs. Knows no posts."""

import json
import re
from typing import Any

MAX_BYTES = 1_000_000
MAX_DEPTH = 32

# A whole string, or one bracket. A string without an end takes the rest, so that no byte is looked at twice: the
# decoder stops there as well.
_STRUCTURE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)
_ESCAPED_UNTEXT = re.compile(r"\\u(?:[dD][89a-fA-F]|0000)")
_UNTEXT = re.compile("[\x00\ud800-\udfff]")


class Refused(ValueError):
    """`reason` is a short label, `detail` names a field and a fault, never a value."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


def parse(value: bytes, *, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Raises Refused: null, too_large, too_deep, utf8, json."""
    if not value or value.strip() == b"null":
        raise Refused("null", "an empty value or the word null; a deletion is a null value")
    if len(value) > max_bytes:
        raise Refused("too_large")
    if value.count(b"[") + value.count(b"{") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise Refused("too_deep")
    try:
        text = value.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Refused("utf8") from None
    try:
        parsed = json.loads(text, parse_constant=_no_constant)
    except ValueError:
        raise Refused("json") from None
    if not isinstance(parsed, dict):
        raise Refused("json", "not an object")
    return _clean(parsed) if _ESCAPED_UNTEXT.search(text) else parsed


def _depth(value: bytes) -> int:
    deepest = depth = 0
    for found in _STRUCTURE.finditer(value):
        mark = found[0][:1]
        if mark in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif mark in b"]}":
            depth -= 1
    return deepest


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _clean(value: Any) -> Any:
    """Lone surrogates and NUL, which no store takes, become U+FFFD. The depth is limited by then."""
    if isinstance(value, str):
        return _UNTEXT.sub("\ufffd", value)
    if isinstance(value, list):
        return [_clean(entry) for entry in value]
    if isinstance(value, dict):
        return {_clean(name): _clean(entry) for name, entry in value.items()}
    return value
