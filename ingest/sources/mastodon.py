"""One event of a Mastodon stream, or one status from its REST API -> what it means for us. Pure; knows no connection.

Sources: docs.joinmastodon.org (methods/streaming, entities/Status, entities/Quote), shared/reference/feeds.md 2.2.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ingest.payload import Refused, parse
from ingest.post import BACKDATED_MS, Author, Malformed, Post, Record, Removal, account_of
from ingest.sources.mastodon_fields import (
    SOURCE,
    author_of,
    count,
    labels_of,
    language_of,
    local_id_of,
    read_local_id,
    read_post_id,
    read_time,
    refusal_of_account,
    refusal_of_status,
    url_of,
    version_us,
)
from ingest.sources.mastodon_text import full_text

ERROR = "ERROR"  # no name of an instance's is in capitals

_WORD = re.compile(r"[a-z0-9_.]{1,40}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Instance:
    """The server that speaks. `known` finds the post behind one of its local ids, if it came before."""

    host: str
    known: Callable[[str], str | None] = field(default=lambda local_id: None, repr=False)
    indexable_only: bool = True  # only people who opted into search


@dataclass(frozen=True, slots=True)
class Account:
    """An author that was seen. `refusal`: why no post of theirs may be found ("indexable", "noindex", "limited",
    "suspended"), or "" when they may."""

    author_id: str
    refusal: str


@dataclass(frozen=True, slots=True)
class Happening:
    """What one event means. A quoted or boosted status comes before the one that refers to it."""

    event: str = ""
    records: tuple[Record, ...] = field(default=(), repr=False)
    aliases: tuple[tuple[str, str], ...] = ()  # local id, post id
    accounts: tuple[Account, ...] = ()
    local_id: str = ""  # of the status or the deletion
    skipped: tuple[str, ...] = ()  # labels of what made no record
    age_ms: int | None = None  # of a new status, if it can be believed


@dataclass(frozen=True, slots=True)
class Message:
    """An event as it came, not yet read: what it means may depend on the one before."""

    event: Any
    payload: Any = field(repr=False)  # text: str or bytes
    received_ms: int
    fault: Malformed | None = None


def read_frame(raw: bytes | str, received_ms: int) -> Message:
    """A websocket message: `{"stream", "event", "payload"}`, payload being a string.

    The other form, `{"error", "status"}`, becomes the event ERROR with the status. Never raises.
    """
    try:
        frame = parse(raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw)
    except Refused as refused:
        return Message("", None, received_ms, Malformed(refused.reason, refused.detail))
    if "error" in frame and "event" not in frame:
        status = frame.get("status")
        return Message(ERROR, status if type(status) is int and 0 < status < 1000 else 0, received_ms)
    payload = frame.get("payload")
    return Message(frame.get("event"), json.dumps(payload) if isinstance(payload, dict) else payload, received_ms)


def read_message(message: Message, instance: Instance) -> Happening:
    if message.fault is not None:
        return Happening(records=(message.fault,))
    return read_event(message.event, message.payload, message.received_ms, instance)


def read_event(event: Any, payload: Any, now_ms: int, instance: Instance) -> Happening:
    """`payload` is text (bytes or str). Never raises on what comes from the wire.

    `update` is a status, `status.update` its edit, `delete` carries a local id and nothing else. Other events are
    skipped by name; more of them appear with each version of Mastodon.
    """
    name = event if isinstance(event, str) and _WORD.fullmatch(event) else "other_event"
    try:
        if name == "delete":
            return _deletion(payload, now_ms, instance)
        if name not in ("update", "status.update"):
            return Happening(name, skipped=(name,))
        if not isinstance(payload, str | bytes):
            raise Refused("payload", "not a string")
        content = payload.encode("utf-8", "surrogatepass") if isinstance(payload, str) else payload
        return read_status(parse(content), now_ms, instance, event=name)
    except Refused as refused:
        return Happening(name, records=(Malformed(refused.reason, refused.detail),))


def read_status(status: Mapping[str, Any], now_ms: int, instance: Instance, *, event: str) -> Happening:
    """A parsed status. `event`: `update` for one that is new, `status.update` for a look at one that may be known."""
    reading = _Reading(now_ms, instance, is_new=event == "update")
    try:
        reading.read(status)
    except Refused as refused:
        reading.records.append(Malformed(refused.reason, refused.detail))
    return Happening(
        event,
        tuple(reading.records),
        tuple(reading.aliases),
        tuple(reading.accounts),
        local_id_of(status.get("id")),
        tuple(reading.skipped),
        _age_ms(status, now_ms) if event == "update" else None,
    )


def id_order(local_id: str) -> tuple[int, str]:
    """Newer ids sort behind older ones, on Mastodon and on servers whose ids are no numbers."""
    return len(local_id), local_id


class _Reading:
    """Collects what one event says: a status, what it boosts and what it quotes."""

    def __init__(self, now_ms: int, instance: Instance, is_new: bool) -> None:
        self._now_ms, self._instance, self._is_new = now_ms, instance, is_new
        self.records: list[Record] = []
        self.aliases: list[tuple[str, str]] = []
        self.accounts: list[Account] = []
        self.skipped: list[str] = []

    def read(self, status: Mapping[str, Any]) -> str | None:
        """Returns the post's id if it may be found. Raises Refused.

        What may not be found is looked at before the rest, so that no other fault keeps it findable.
        """
        post_id, local_id = read_post_id(status.get("uri")), read_local_id(status.get("id"))
        account, boosted = status.get("account"), status.get("reblog")
        if not isinstance(account, dict):
            raise Refused("account", "missing")
        author = author_of(account, self._instance.host)
        refusal = refusal_of_account(account, self._instance.indexable_only)
        self.accounts.append(Account(author.id, refusal))
        if refusal := refusal or refusal_of_status(status):
            self._remove(post_id, local_id, status, refusal)
            if boosted is not None:
                self._inner(boosted, "reblog")
            return None
        if boosted is None:
            post = self._post(post_id, status, account, author)
        elif (original := self._inner(boosted, "reblog")) is not None:
            post = self._boost(post_id, status, author, original)
        else:
            self.skipped.append("boost_of_refused")
            return None
        self.records.append(post)
        self.aliases.append((local_id, post_id))
        return post_id

    def _inner(self, status: Any, name: str) -> str | None:
        if not isinstance(status, dict):
            raise Refused(name, "not an object")
        return self.read(status)

    def _remove(self, post_id: str, local_id: str, status: Mapping[str, Any], refusal: str) -> None:
        """New and never seen: there is nothing to take away, and tombstones for every post of everybody who did not
        opt in would be most of the index."""
        if self._is_new and self._instance.known(local_id) is None:
            self.skipped.append(refusal)
            return
        try:
            removal = Removal(post_id, version_us(status), "consent", if_newer=True)
        except Refused:
            removal = Removal(post_id, self._now_ms * 1000, "consent")
        self.records.append(removal)

    def _boost(self, post_id: str, status: Mapping[str, Any], author: Author, original: str) -> Post:
        created_us = read_time(status, "created_at")
        return Post(
            id=post_id,
            source=SOURCE,
            version_us=created_us,
            text="",
            created_ms=created_us // 1000,
            received_ms=self._now_ms,
            author=author,
            repost_of=original,
            account=account_of(SOURCE, author.id),
        )

    def _post(self, post_id: str, status: Mapping[str, Any], account: Mapping[str, Any], author: Author) -> Post:
        version, parent = version_us(status), local_id_of(status.get("in_reply_to_id"))
        return Post(
            id=post_id,
            source=SOURCE,
            version_us=version,
            text=full_text(status),
            created_ms=read_time(status, "created_at") // 1000,
            received_ms=self._now_ms,
            author=author,
            lang=language_of(status),
            url=url_of(status),
            edited_ms=None if status.get("edited_at") is None else version // 1000,
            reply_to=self._instance.known(parent) if parent else None,
            quote_of=self._quoted(status.get("quote")),
            labels=labels_of(status, account),
            likes=count(status.get("favourites_count")),
            reposts=count(status.get("reblogs_count")),
            replies=count(status.get("replies_count")),
            account=account_of(SOURCE, author.id),
        )

    def _quoted(self, quote: Any) -> str | None:
        """Only an accepted quote may be shown; a state that is new to us is treated as not authorised (entities/Quote).

        A shallow quote names a local id. A quoted status that cannot be read leaves the quoting one as it is.
        """
        if not isinstance(quote, dict) or quote.get("state") != "accepted":
            return None
        quoted = quote.get("quoted_status")
        if quoted is None:
            local_id = local_id_of(quote.get("quoted_status_id"))
            return self._instance.known(local_id) if local_id else None
        try:
            return self._inner(quoted, "quote")
        except Refused as refused:
            self.records.append(Malformed(refused.reason, f"quote {refused.detail}".strip()))
            return None


def _deletion(payload: Any, now_ms: int, instance: Instance) -> Happening:
    """Says neither whose post it was nor when: the alias finds the post, and whatever is there goes."""
    text = payload.decode("ascii", "replace") if isinstance(payload, bytes) else payload
    local_id = read_local_id(text.strip() if isinstance(text, str) else text)
    post_id = instance.known(local_id)
    if post_id is None:
        return Happening("delete", local_id=local_id, skipped=("delete_of_unknown",))
    return Happening("delete", (Removal(post_id, now_ms * 1000),), local_id=local_id)


def _age_ms(status: Mapping[str, Any], now_ms: int) -> int | None:
    try:
        age_ms = now_ms - version_us(status) // 1000
    except Refused:
        return None
    return age_ms if 0 <= age_ms < BACKDATED_MS else None
