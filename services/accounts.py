"""API keys, kept as SHA-256. Who holds one may use the API."""

import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path
from typing import Self


class ApiKeys:
    """The keys that open the API. Without a key file it is open, and http.py answers this machine only."""

    def __init__(self, keys: Iterable[str] | None) -> None:
        """`keys` None: no key is asked for. An empty set of keys would lock everybody out: ValueError."""
        self._digests = None if keys is None else sorted({_digest(key) for key in keys})
        if self._digests == []:
            raise ValueError("no API key given: put one key on each line of the key file")

    @classmethod
    def from_file(cls, path: Path | None) -> Self:
        """One key a line; blank lines and lines that start with # are left out. ValueError names the line at fault."""
        if path is None:
            return cls(None)
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"cannot read the API key file {path}: {error}") from error
        keys = []
        for number, line in enumerate(map(str.strip, lines), start=1):
            if not line or line.startswith("#"):
                continue
            if not (line.isascii() and line.isprintable()) or " " in line:
                raise ValueError(f"{path}, line {number}: a key is printable ASCII without spaces")
            keys.append(line)
        if not keys:
            raise ValueError(f"the API key file {path} holds no key")
        return cls(keys)

    @property
    def required(self) -> bool:
        return self._digests is not None

    def owner(self, authorization: str | None) -> str | None:
        """Who sent this Authorization header: a short name that may be logged, or None if its key is not known."""
        scheme, _, key = (authorization or "").strip().partition(" ")
        key = key.strip()
        if scheme.lower() != "bearer" or not key:
            return None
        digest = _digest(key)
        found = None
        for known in self._digests or ():  # every one, always: the time taken tells nothing about the keys
            if hmac.compare_digest(known, digest):
                found = f"key-{digest.hex()[:8]}"
        return found


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
