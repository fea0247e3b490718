"""What an index stores: a post's pieces, what is left of a removed one, an account. And what a question asks of them.

Every store keeps the same payloads and can translate the same conditions. Knows no vector store.
"""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ingest.duplicates import saying
from ingest.index import Copy, Query, author_key, storable
from ingest.index_rules import MAX_INT, AccountEntry, Entry, is_bare
from ingest.post import Match, Passage, Receipt

Payload = dict[str, Any]

# Payload fields that are searched by, as each store wants to know beforehand. Indexing one costs Edge 15 to 45 MB for
# 100,000 posts, so a field is left out of a payload where it says the usual: no likes, a first piece, a right clock.
KEYWORDS = (
    "language", "source", "who", "labels", "thread", "saying", "account", "repost_of", "clock", "account_state",
    "hidden", "original_hidden", "bare", "rest",
)  # fmt: skip
RANGES = ("sort_ms", "likes", "reposts", "replies", "removed_ms")  # integers


@dataclass(frozen=True, slots=True)
class Condition:
    """What a payload must say, or must not (`is_not`): any of `values`, or a number within the bounds (inclusive).

    The points of `ids` fulfil it whatever they say.
    """

    key: str
    values: tuple[str, ...] = ()
    gte: int | None = None
    lte: int | None = None
    is_not: bool = False
    ids: tuple[str, ...] = ()


DENSE, BM25 = "dense", "bm25"  # the two vectors of a point
# Marks are words: a search that asks Edge for a boolean reads every payload, 8 ms become 330 (50,000 posts).
YES, NO = "yes", "no"
# Of what is not hidden. A repost of a hidden post may hold its text.
VISIBLE = (Condition("hidden", (YES,), is_not=True), Condition("original_hidden", (YES,), is_not=True))
POSTS = (Condition("sort_ms", gte=-MAX_INT), Condition("rest", (YES,), is_not=True))  # once each
FOUND = (*POSTS, Condition("bare", (YES,), is_not=True), *VISIBLE)
REMOVED = Condition("removed_ms", gte=-MAX_INT)
HIDDEN_ACCOUNTS = Condition("account_state", ("hidden",))
# What is no post, and what is no post that can be found: any of these. Counting few and subtracting is quicker.
NO_POST = (Condition("rest", (YES,)), REMOVED, Condition("account_state", ("active", "hidden", "deleted")))
UNFOUND = (*NO_POST, *(Condition(mark, (YES,)) for mark in ("bare", "hidden", "original_hidden")))
BELIEVED = Condition("clock", ("future", "backdated"), is_not=True)


def conditions(query: Query) -> Iterator[Condition]:
    """All of them have to hold. Hidden posts are left out."""
    yield from VISIBLE
    if query.since_ms is not None or query.until_ms is not None:
        yield Condition("sort_ms", gte=query.since_ms, lte=query.until_ms)
    languages = tuple(dict.fromkeys(primary_language(language) for language in query.languages))
    for key, values, is_not in (
        ("language", languages, False),
        ("source", query.sources, False),
        ("who", tuple(author_key(author) for author in query.authors), False),
        ("who", tuple(author_key(author) for author in query.without_authors), True),
        ("labels", query.labels, False),
        ("labels", query.without_labels, True),
        ("saying", query.without_sayings, True),
    ):
        if values:
            yield Condition(key, tuple(storable(value) for value in values), is_not=is_not)
    for key, least in (
        ("likes", query.min_likes), ("reposts", query.min_reposts), ("replies", query.min_replies),
    ):  # fmt: skip
        if least > 0:
            yield Condition(key, gte=least)
    if query.conversation is not None:
        yield Condition("thread", (thread_of(query.conversation),), ids=(point_id(query.conversation),))


def point_id(post_id: str, number: int = 0) -> str:
    """uuid5 of the post's id; a later piece's is uuid5 of that and its number, so that no other post can have it."""
    head = uuid.uuid5(uuid.NAMESPACE_URL, post_id.encode("utf-8", "backslashreplace").decode())
    return str(uuid.uuid5(head, str(number)) if number else head)


def account_point_id(account: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, account))


def thread_of(post_id: str) -> str:
    """Stands for a thread: ids may be long, and a store keeps each value."""
    return uuid.UUID(point_id(post_id)).hex


def payload_of(passage: Passage, entry: Entry, known: Mapping[str, Entry]) -> Payload:
    """`entry`: of the passage's post; `known` tells of the post that it reposts, if there is one.

    `hidden`: its account is; `original_hidden`: it is a repost, and the account of what it reposts is.
    """
    post, pieces = passage.post, entry.pieces
    original = known.get(post.repost_of or "")
    payload: Payload = {
        "post_id": post.id,
        "number": passage.number,
        "pieces": pieces,
        "text": passage.text,
        "source": post.source,
        "author_id": post.author.id,
        "author_handle": post.author.handle,
        "author_name": post.author.name,
        "account": post.account,
        "url": post.url,
        "lang": post.lang,
        "language": primary_language(post.lang),
        "created_ms": post.created_ms,
        "sort_ms": post.sort_ms,
        "version_us": post.version_us,
        "saying": saying(passage.text),
    }
    for key in ("repost_of", "reply_to", "quote_of", "conversation", "clock", "likes", "reposts", "replies"):
        if value := getattr(post, key):
            payload[key] = value
    payload = {key: storable(value) if isinstance(value, str) else value for key, value in payload.items()}
    if post.labels:
        payload["labels"] = [storable(label) for label in post.labels]
    if post.conversation is not None or pieces > 1:  # a post of one piece is found as the start of a thread by its id
        payload["thread"] = thread_of(post.conversation or post.id)
    names = (author_key(post.author.id), author_key(post.author.handle))
    payload["who"] = [name for name in dict.fromkeys(names) if name]
    marks = {
        "hidden": entry.is_hidden,
        "original_hidden": original is not None and original.is_hidden,
        "bare": is_bare(passage),
        "rest": passage.number > 0,
    }
    return payload | {key: YES for key, is_set in marks.items() if is_set}


def surplus(changed: Mapping[str, Entry], stored: Mapping[str, Entry]) -> list[str]:
    """The points of pieces that a post has no longer."""
    return [
        point_id(post_id, number)
        for post_id, entry in changed.items()
        if post_id in stored
        for number in range(max(entry.pieces, 1), stored[post_id].pieces)
    ]


def tombstone(entry: Entry, now_ms: int) -> Payload:
    """All that is left of a removed post. `removed_ms`: when the index was told, whatever the version claims."""
    return {
        "version_us": entry.version_us,
        "pieces": 0,
        "removed_ms": entry.removed_ms or now_ms,
        "event_ms": entry.event_ms,
        "reason": entry.reason,
    }


ENTRY_FIELDS = ["version_us", "pieces", "hidden", "removed_ms", "event_ms", "reason"]


def entry_of(payload: Payload) -> Entry:
    return Entry(
        payload["version_us"],
        payload["pieces"],
        is_hidden=payload.get("hidden") == YES,
        reason=payload.get("reason", ""),
        event_ms=payload.get("event_ms", 0),
        removed_ms=payload.get("removed_ms", 0),
    )


def account_payload(entry: AccountEntry, now_ms: int) -> Payload:
    return {
        "account_state": entry.state,
        "version_us": entry.version_us,
        "reason": storable(entry.reason),
        "changed_ms": now_ms,
    }


def account_entry_of(payload: Payload) -> AccountEntry:
    return AccountEntry(payload["account_state"], payload["version_us"], payload["reason"])


def receipt_of(post_id: str, payload: Payload) -> Receipt | None:
    """None for what was not removed."""
    if payload["pieces"]:
        return None
    return Receipt(post_id, payload["reason"], payload["event_ms"], payload["removed_ms"])


def match_of(
    payload: Payload, score: float = 0.0, why: dict[str, float] | None = None, vector: tuple[float, ...] = ()
) -> Match:
    return Match(
        post_id=payload["post_id"],
        number=payload["number"],
        text=payload["text"],
        source=payload["source"],
        author_id=payload["author_id"],
        author_handle=payload["author_handle"],
        author_name=payload["author_name"],
        url=payload["url"],
        lang=payload["lang"],
        created_ms=payload["created_ms"],
        sort_ms=payload["sort_ms"],
        version_us=payload["version_us"],
        score=score,
        why=why or {},
        vector=vector,
        repost_of=payload.get("repost_of"),
        reply_to=payload.get("reply_to"),
        quote_of=payload.get("quote_of"),
        conversation=payload.get("conversation"),
        account=payload["account"],
        labels=tuple(payload.get("labels", ())),
        likes=payload.get("likes", 0),
        reposts=payload.get("reposts", 0),
        replies=payload.get("replies", 0),
        clock=payload.get("clock", ""),
        saying=payload["saying"],
    )


def copy_of(payload: Payload, is_known_author: bool) -> Copy:
    return Copy(
        payload["post_id"], payload["account"], payload["sort_ms"], "repost_of" in payload, is_known_author
    )  # fmt: skip


def primary_language(lang: str) -> str:
    return lang.replace("_", "-").split("-")[0].lower()
