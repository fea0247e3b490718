"""The bytes of an RSS or Atom feed and what was seen of it before -> its new and changed entries. Knows no network."""

import io
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit, urlunsplit

import feedparser

from ingest.payload import Refused
from ingest.post import FUTURE_MS, Author, Post, account_of
from ingest.shape import one_line, post_id, shortened
from ingest.sources.atproto import is_language
from ingest.sources.feed_time import read_time
from ingest.sources.html_text import text_of
from ingest.topic_object import MAX_TEXT

SOURCE = "rss"
MAX_ENTRIES = 500
MAX_MARKUP = 400_000  # characters of one entry
MAX_SEEN = 200  # entries remembered beside those in the feed
MAX_TTL_S = 86_400.0

_READABLE = ("application/xhtml+xml", "text/html", "text/plain")
_UNTEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]")
_CHARACTER = re.compile(rb"&#(?:[xX]([0-9a-fA-F]{1,400})|([0-9]{1,400}));?")
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_TRACKING = re.compile(r"utm_\w+|fbclid|gclid|mc_[ce]id|ref_src|xtor")
_LASTING = re.compile(r"https?://|tag:|urn:", re.IGNORECASE)
_FAULTS = (ValueError, LookupError, OverflowError, AttributeError, TypeError, RecursionError)  # feedparser's, as seen


@dataclass(frozen=True, slots=True)
class Sighting:
    """An entry as it was read last: a hash of its link and text, what it was published as, its own `updated`."""

    content: str
    version_us: int
    updated_us: int | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """`posts`: what is new or changed, the oldest first. `seen`: by entry, for the next reading.

    `skipped` counts the others: "unchanged", "stale" (an older state of what was read before), "empty".
    """

    posts: tuple[Post, ...] = field(default=(), repr=False)
    seen: Mapping[str, Sighting] = field(default_factory=dict, repr=False)
    ttl_s: float | None = None  # the feed asks not to be read more often
    skipped: Counter[str] = field(default_factory=Counter)


def read_feed(
    body: bytes, url: str, seen: Mapping[str, Sighting], now_ms: int, *, content_type: str = "", at: str = ""
) -> Reading:
    """`url` names the feed for ever, `at` is where it was found (for relative links).

    An entry is written when it is new or its text changed, whatever its dates say. Entries that are gone from the feed
    are no deletions. Raises Refused("feed"): this is no feed.
    """
    parsed = _parsed(body, content_type)
    # As plain dicts: feedparser's answer for one name with another's value, with a warning.
    feed = _Feed(dict(parsed.get("feed") or {}), url, at or url, seen, now_ms)
    posts = [post for entry in parsed["entries"][:MAX_ENTRIES] if (post := feed.read(dict(entry))) is not None]
    older = [(key, sighting) for key, sighting in seen.items() if key not in feed.seen]
    return Reading(tuple(reversed(posts)), {**dict(older[-MAX_SEEN:]), **feed.seen}, feed.ttl_s, feed.skipped)


class _Feed:
    def __init__(
        self, channel: Mapping[str, Any], url: str, at: str, seen: Mapping[str, Sighting], now_ms: int
    ) -> None:
        self._channel, self._at, self._before, self._now_ms = channel, at, seen, now_ms
        self._host = (urlsplit(url).hostname or "").lower()
        self._name = f"{self._host}/{_hash(url)[:8]}"
        title = one_line(_plain(channel, "title"))
        self._author = Author(self._name, "", title or self._host)
        self._contents = {sighting.content for sighting in seen.values()}
        self.seen: dict[str, Sighting] = {}
        self.skipped: Counter[str] = Counter()

    @property
    def ttl_s(self) -> float | None:
        """In minutes in the feed."""
        given = str(self._channel.get("ttl") or "").strip()
        return min(int(given) * 60.0, MAX_TTL_S) if re.fullmatch(r"[0-9]{1,9}", given) else None

    def read(self, entry: Mapping[str, Any]) -> Post | None:
        title, text, link = one_line(_plain(entry, "title")), _text(entry), _link(entry, self._at)
        found = self._id(entry, title, text, link)
        key = _hash(found)[:16]
        if not text:
            self.skipped["empty"] += 1
        elif key not in self.seen:
            version_us = self._sight(entry, key, text, link)
            return None if version_us is None else self._post(entry, found, text, link, version_us)
        return None

    def _sight(self, entry: Mapping[str, Any], key: str, text: str, link: str) -> int | None:
        """The version to write it as; None: not to be written."""
        content = _hash(f"{_canonical(link)}\n{text}")[:16]
        updated_us, published_us = _time(entry, "updated"), _time(entry, "published")
        before, now_us = self._before.get(key), self._now_ms * 1000
        updated_us = None if updated_us is None or updated_us > now_us + FUTURE_MS * 1000 else updated_us
        if before is not None and before.content == content:
            self.seen[key] = Sighting(content, before.version_us, updated_us)
            self.skipped["unchanged"] += 1
            return None
        if before is None and link and content in self._contents:  # the feed numbers its entries anew
            self.seen[key] = Sighting(content, now_us, updated_us)
            self.skipped["unchanged"] += 1
            return None
        if before and before.updated_us is not None and updated_us is not None and updated_us < before.updated_us:
            self.seen[key] = before
            self.skipped["stale"] += 1
            return None
        stated_us = published_us if updated_us is None else updated_us
        version_us = now_us if stated_us is None else min(stated_us, now_us)
        if before is not None:
            version_us = max(version_us, before.version_us + 1)
        self.seen[key] = Sighting(content, version_us, updated_us)
        return version_us

    def _id(self, entry: Mapping[str, Any], title: str, text: str, link: str) -> str:
        """guid or id, else the link without what only tracks, else a hash of what it says. Only an id that is made to
        last names an entry in all feeds of its host; others are numbers of this feed."""
        native = str(entry.get("id") or "").strip() or _canonical(link) or _hash(title or text)[:32]
        whole = f"{SOURCE}:{self._host if _LASTING.match(native) else self._name}:{native}"
        try:
            return post_id(whole)
        except ValueError:
            return f"{SOURCE}:{self._name}:{_hash(native)[:32]}"

    def _post(self, entry: Mapping[str, Any], found: str, text: str, link: str, version_us: int) -> Post:
        """Created when it was published or, without a readable date, when it was first seen."""
        published_us, updated_us = _time(entry, "published"), _time(entry, "updated")
        created_us = published_us if published_us is not None else updated_us
        is_edited = published_us is not None and updated_us is not None and updated_us > published_us
        return Post(
            id=found,
            source=SOURCE,
            version_us=version_us,
            text=text,
            created_ms=self._now_ms if created_us is None else created_us // 1000,
            received_ms=self._now_ms,
            author=self._author,
            lang=self._language(entry),
            url=link,
            edited_ms=updated_us // 1000 if is_edited and updated_us is not None else None,
            account=account_of(SOURCE, self._author.id),
        )

    def _language(self, entry: Mapping[str, Any]) -> str:
        details = [entry.get("title_detail"), *(entry.get("content") or []), entry.get("summary_detail")]
        stated = [detail.get("language") for detail in details if isinstance(detail, dict)]
        for tag in (*stated, self._channel.get("language")):
            tag = str(tag or "").strip().replace("_", "-")
            if is_language(tag) and len(tag) <= 35:
                return tag
        return ""


def _parsed(body: bytes, content_type: str) -> Mapping[str, Any]:
    """Raises Refused. Bytes that are UTF-8 are, whatever their declarations say; `bozo` is how most feeds are."""
    charset = _CHARSET.search(content_type)
    is_utf8 = _is_utf8(body)
    declared = "utf-8" if is_utf8 else charset[1] if charset else ""
    tries = [(_with_good_characters(body) if b"\x00" not in body else body, declared)]
    tries.append((_with_good_characters(body.decode("utf-8", "replace").encode()), "utf-8"))
    for content, encoding in tries:
        header = "application/xml" + (f"; charset={encoding}" if encoding else "")
        try:
            # A stream, as feedparser takes bytes for the name of a file first.
            parsed: Mapping[str, Any] = feedparser.parse(
                io.BytesIO(content),
                response_headers={"content-type": header},
                sanitize_html=False,
                resolve_relative_uris=False,
            )
        except _FAULTS:
            continue
        if parsed.get("entries") or parsed.get("version"):
            return parsed
    raise Refused("feed")


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return not body.isascii()


def _with_good_characters(body: bytes) -> bytes:
    """References to what is no character break feedparser: they become U+FFFD."""

    def good(found: re.Match[bytes]) -> bytes:
        number = int(found[1], 16) if found[1] else int(found[2])
        is_good = (
            number in (9, 10, 13) or 32 <= number < 0xD800 or 0xE000 <= number < 0xFFFE or 0x10000 <= number < 0x110000
        )
        return found[0] if is_good else b"&#xFFFD;"

    return _CHARACTER.sub(good, body)


def _text(entry: Mapping[str, Any]) -> str:
    """The title and what follows it; a title that only repeats how the content begins is left out."""
    title = _plain(entry, "title").strip()
    contents = [content for content in entry.get("content") or [] if content.get("type") in _READABLE]
    body = next((text for content in contents if (text := _rendered(content).strip())), "")
    body = body or _plain(entry, "summary").strip()
    start = title.removesuffix("\u2026").removesuffix("...").rstrip()
    text = body if start and body.startswith(start) else "\n".join(part for part in (title, body) if part)
    return shortened(text, MAX_TEXT)


def _plain(given: Mapping[str, Any], name: str) -> str:
    detail = given.get(f"{name}_detail")
    return _rendered(detail) if isinstance(detail, dict) else text_of(str(given.get(name) or "")[:MAX_MARKUP])


def _rendered(detail: Mapping[str, Any]) -> str:
    value = str(detail.get("value") or "")[:MAX_MARKUP]
    return _UNTEXT.sub("\ufffd", value) if detail.get("type") == "text/plain" else text_of(value)


def _time(entry: Mapping[str, Any], name: str) -> int | None:
    given = entry.get(name) or (entry.get("created") if name == "published" else None)
    return read_time(given, entry.get(f"{name}_parsed")) if isinstance(given, str) else None


def _link(entry: Mapping[str, Any], at: str) -> str:
    try:
        link = urljoin(at, str(entry.get("link") or "").strip()) if entry.get("link") else ""
        parts = urlsplit(link)
        return link if parts.scheme in ("http", "https") and parts.hostname else ""
    except ValueError:
        return ""


def _canonical(link: str) -> str:
    """The same for addresses that differ in case of the host, in the fragment, or in what only tracks the reader."""
    parts = urlsplit(link)
    query = [
        (name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if not _TRACKING.fullmatch(name)
    ]
    return urlunsplit(parts._replace(netloc=parts.netloc.lower(), query=urlencode(query), fragment="")) if link else ""


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
