"""A frame of Bluesky's Jetstream, v1 or v2 -> what it means for us. Pure; knows no connection.

v1 sends `{"did", "time_us", "kind", KIND: {...}}`, v2 `{"$type": "message", "payload": {"$type": "...#KIND", ...}}`
(shared/reference/feeds.md 2.1; the lexicon network.bsky.jetstream.subscribeEvents).
"""

import re
from collections.abc import Collection
from hashlib import sha256
from typing import Any

from ingest.payload import Refused, parse
from ingest.post import AccountChange, AccountState, Author, Malformed, Post, Record, Removal, account_of
from ingest.shape import MAX_ID_BYTES, is_reason
from ingest.sources.atproto import AtUri, is_did, is_handle, is_nsid, is_record_key, is_tid, read_at_uri
from ingest.sources.bluesky_frame import AuthorNews, Detachment, Frame
from ingest.sources.bluesky_record import (
    NO_UNAUTHENTICATED,
    OPTED_OUT,
    POST,
    SOURCE,
    post_id,
    primary,
    quoted_post,
    reference,
    self_labels,
    spoken_languages,
    strong_reference,
)
from ingest.sources.bluesky_text import full_text
from ingest.topic_object import END_US, FIRST_US
from ingest.versions import time_us, version_us

REPOST = "app.bsky.feed.repost"
PROFILE, POSTGATE = "app.bsky.actor.profile", "app.bsky.feed.postgate"
COLLECTIONS = (POST, REPOST, PROFILE, POSTGATE)
MAX_LABELS = 100
MAX_DETACHED = 50

# The network's statuses of an account that is not active. The last two say nothing about what its owner wants.
_STATES: dict[str, AccountState | None] = {
    "deleted": "deleted", "deactivated": "hidden", "suspended": "hidden", "takendown": "hidden",
    "desynchronized": None, "throttled": None,
}  # fmt: skip
_KNOWN_SKIPS = ("like", "follow", "block", "list", "listitem", "threadgate", "generator", "starterpack", "status")
_WORD = re.compile(r"[A-Za-z0-9_.-]{1,40}", re.ASCII)
_LAST_US = 10**16  # the year 2286


def read_frame(raw: bytes | str, now_ms: int, languages: Collection[str] = ()) -> Frame:
    """Never raises on what comes from the wire: what cannot be read is a frame with one Malformed.

    `languages` (primary subtags, lower case): posts that state others only are skipped, and an edit into another
    takes the post away. A post whose `createdAt` is missing, cannot be read or is no time of a post (some clients write
    the year 1) was created when the server saw it, and without that now.
    """
    content = raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw
    try:
        outer = parse(content)
    except Refused as refused:
        malformed = Malformed(refused.reason, refused.detail)
        return Frame("", key=f"#{sha256(content).hexdigest()[:32]}", records=(malformed,))
    kind = outer.get("$type")
    if kind == "error" or ("error" in outer and "kind" not in outer and "payload" not in outer):
        return Frame("error", notice=_word(outer.get("error")))
    event = _Event(outer.get("payload"), now_ms, is_v2=True) if kind == "message" else _Event(outer, now_ms)
    try:
        return event.frame({language.lower() for language in languages})
    except Refused as refused:
        malformed = Malformed(refused.reason, refused.detail)
        return Frame(event.kind, event.did, event.time_us, event.seq, event.key, (malformed,))


class _Event:
    """The fields of either wire form by the same names, read in the order in which a fault loses least."""

    def __init__(self, given: Any, now_ms: int, is_v2: bool = False) -> None:
        self._now_ms = now_ms
        self._given: dict[str, Any] = given if isinstance(given, dict) else {}
        kind = self._given.get("$type" if is_v2 else "kind")
        self.kind = _word(kind.rpartition("#")[2] if is_v2 and isinstance(kind, str) else kind)
        body = self._given if is_v2 and self.kind == "commit" else self._given.get(self.kind)
        self._body: dict[str, Any] = body if isinstance(body, dict) else {}
        did = self._given.get("did")
        self.did = did if is_did(did) else ""
        self.seq = _position(self._given.get("seq")) if is_v2 else None
        self.time_us = _time(self._given.get("time")) if is_v2 else _position(self._given.get("time_us"))
        self.key = ""

    def frame(self, languages: Collection[str]) -> Frame:
        """Raises Refused."""
        if self.kind == "info":
            return Frame("info", notice=_word(self._given.get("name")))
        if not self.kind:
            raise Refused("kind")
        if not self.did:
            raise Refused("did")
        if self.kind == "commit":
            return self._commit(languages)
        self.key = self._key(f"#{self.kind}", _position(self._body.get("seq")), self.time_us)
        if self.kind == "identity":
            return self._frame(skipped="identity", news=AuthorNews(handle=_handle(self._body.get("handle"))))
        if self.kind == "account":
            return self._account()
        return self._frame(skipped=self.kind if self.kind == "sync" else "other_kind")

    def _frame(self, *records: Record, **said: Any) -> Frame:
        return Frame(self.kind, self.did, self.time_us, self.seq, self.key, records, **said)

    def _key(self, what: str, *places: str | int | None) -> str:
        """ "" for an event that does not say when it was: nothing tells it from the next."""
        place = next((place for place in places if place is not None), None)
        return "" if place is None else f"{self.did}{what}@{place}"

    def _commit(self, languages: Collection[str]) -> Frame:
        collection, rkey, rev = (self._body.get(name) for name in ("collection", "rkey", "rev"))
        operation = self._body.get("operation")
        if not is_nsid(collection):
            raise Refused("collection")
        if not is_record_key(rkey):
            raise Refused("rkey")
        self.key = self._key(f"/{collection}/{rkey}", rev if is_tid(rev) else None, self.time_us)
        if collection not in COLLECTIONS:
            return self._frame(skipped=_skip_name(collection))
        if operation not in ("create", "update", "delete"):
            raise Refused("operation")
        uri = AtUri(self.did, collection, rkey)
        if len(post_id(uri).encode()) > MAX_ID_BYTES:
            raise Refused("id", "too long")
        if operation == "delete":
            return self._deletion(uri, rev)
        record = self._body.get("record")
        if not isinstance(record, dict):
            raise Refused("record")
        if uri.collection in (POST, REPOST) and NO_UNAUTHENTICATED in self_labels(record):
            return self._frame(self._removal(uri, rev, "consent"))
        if not is_tid(rev):
            raise Refused("rev")
        return self._written(uri, version_us(rev), record, languages, is_edit=operation == "update")

    def _deletion(self, uri: AtUri, rev: Any) -> Frame:
        if uri.collection == PROFILE:
            return self._profile({})
        if uri.collection == POSTGATE:
            return self._frame(skipped="postgate")
        return self._frame(self._removal(uri, rev, "deleted"))

    def _removal(self, uri: AtUri, rev: Any, reason: str) -> Removal:
        """Never refused for its version: one that cannot be read removes whatever is there."""
        if is_tid(rev):
            return Removal(post_id(uri), version_us(rev), reason, if_newer=True)
        return Removal(post_id(uri), self._seen_us(), reason)

    def _written(
        self, uri: AtUri, version: int, record: dict[str, Any], languages: Collection[str], *, is_edit: bool
    ) -> Frame:
        if uri.collection == PROFILE:
            return self._profile(record)
        if uri.collection == POSTGATE:
            return self._postgate(uri, record)
        if uri.collection == REPOST:
            return self._repost(uri, version, record)
        spoken = spoken_languages(record)
        if languages and spoken and not any(primary(tag) in languages for tag in spoken):
            # The older version, in a language that was wanted, must not stay for the post's words.
            gone = (Removal(post_id(uri), version, "empty", if_newer=True),) if is_edit else ()
            return self._frame(*gone, skipped="language")
        return self._frame(self._post(uri, version, record, spoken))

    def _post(self, uri: AtUri, version: int, record: dict[str, Any], spoken: tuple[str, ...]) -> Post:
        text = record.get("text")
        if not isinstance(text, str):
            raise Refused("text", "missing or not a string")
        root, parent = (reference(record.get("reply"), "reply", name) for name in ("root", "parent"))
        return Post(
            id=post_id(uri),
            source=SOURCE,
            version_us=version,
            text=full_text(record, text),
            created_ms=self._created_us(record) // 1000,
            received_ms=self._now_ms,
            author=Author(self.did),
            lang=spoken[0] if spoken else "",
            url=f"https://bsky.app/profile/{self.did}/post/{uri.record_key}",
            reply_to=parent,
            quote_of=quoted_post(record.get("embed")),
            labels=self_labels(record)[:MAX_LABELS],
            conversation=root,
            account=account_of(SOURCE, self.did),
        )

    def _repost(self, uri: AtUri, version: int, record: dict[str, Any]) -> Frame:
        subject = strong_reference(record.get("subject"), "subject")
        if subject is None:
            raise Refused("subject")
        if subject.collection != POST:
            return self._frame(skipped="repost_of_other")
        created_ms = self._created_us(record) // 1000
        return self._frame(
            Post(
                id=post_id(uri), source=SOURCE, version_us=version, text="", created_ms=created_ms,
                received_ms=self._now_ms, author=Author(self.did), repost_of=post_id(subject),
                account=account_of(SOURCE, self.did),
            )
        )  # fmt: skip

    def _profile(self, record: dict[str, Any]) -> Frame:
        name = record.get("displayName")
        news = AuthorNews(
            name=name if isinstance(name, str) else "", opted_out=NO_UNAUTHENTICATED in self_labels(record)
        )
        if not news.opted_out:
            return self._frame(skipped="profile", news=news)
        hidden = AccountChange(SOURCE, self.did, "hidden", self._seen_us(), OPTED_OUT)
        return self._frame(hidden, news=news)

    def _postgate(self, uri: AtUri, record: dict[str, Any]) -> Frame:
        """Only the author of a post can take it out of others: the record lies beside the post, under its key."""
        listed = record.get("detachedEmbeddingUris")
        quoting = []
        for text in listed[:MAX_DETACHED] if isinstance(listed, list) else ():
            try:
                quoting.append(post_id(read_at_uri(text)))
            except ValueError:
                raise Refused("detachedEmbeddingUris", "not an at-uri") from None
        quoted = AtUri(self.did, POST, uri.record_key)
        detached = Detachment(post_id(quoted), tuple(quoting)) if quoting else None
        return self._frame(skipped="postgate", detached=detached)

    def _account(self) -> Frame:
        active, status = self._body.get("active"), self._body.get("status")
        if not isinstance(active, bool):
            raise Refused("account", "active is missing")
        reason = status if not active and isinstance(status, str) and is_reason(status) else ""
        # An inactive account whose status is new to us is hidden: better a post too few.
        state = "active" if active else _STATES.get(reason, "hidden")
        if state is None:
            return self._frame(skipped=f"account_{reason}")
        return self._frame(AccountChange(SOURCE, self.did, state, self._seen_us(), reason))

    def _seen_us(self) -> int:
        """One clock for all that is said of an account: the server's."""
        return self._now_ms * 1000 if self.time_us is None else self.time_us

    def _created_us(self, record: dict[str, Any]) -> int:
        created = _time(record.get("createdAt"))
        return created if created is not None and FIRST_US <= created < END_US else self._seen_us()


def _handle(given: Any) -> str:
    return given.lower() if is_handle(given) and given.lower() != "handle.invalid" else ""


def _time(given: Any) -> int | None:
    try:
        return time_us(given) if isinstance(given, str) else None
    except ValueError:
        return None


def _position(given: Any) -> int | None:
    return given if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < _LAST_US else None


def _word(given: Any) -> str:
    """A label of theirs as a label of ours: short, and never what somebody wrote."""
    return given if isinstance(given, str) and _WORD.fullmatch(given) else ""


def _skip_name(collection: str) -> str:
    name = collection.rpartition(".")[2]
    return name if collection.startswith("app.bsky.") and name in _KNOWN_SKIPS else "other_collection"
