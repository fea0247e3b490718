"""Search without an answer: the posts that bear on a question, each with its reasons. Knows no HTTP beyond statuses."""

from dataclasses import replace
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ingest.ask import Ask, BadAsk
from ingest.explain import explain
from ingest.post import Match, Receipt
from ingest.retrieve import Found
from ingest.versions import time_text, time_us
from safety.verdict import Action, Surface, Verdict
from services.remote import UNAVAILABLE, Unavailable
from services.wire import ApiError, first_fault

Json = dict[str, Any]
MAX_QUERY = 2000
MAX_MATCHES = 50


class Screens(Protocol):
    async def check(self, text: str, surface: Surface) -> Verdict: ...


class Finds(Protocol):
    async def search(self, ask: Ask) -> Found: ...


class Receipts(Protocol):
    async def receipt(self, post_id: str) -> Receipt | None: ...


class SearchBody(BaseModel):
    """`POST /v1/search`. Lists that are empty and fields that are null let everything through."""

    model_config = ConfigDict(strict=True, extra="forbid")

    query: str = Field(min_length=1, max_length=MAX_QUERY)
    limit: int | None = Field(None, ge=1, le=MAX_MATCHES)
    since: str | None = None
    until: str | None = None
    sources: list[str] | None = Field(None, max_length=100)
    authors: list[str] | None = Field(None, max_length=100)
    without_authors: list[str] | None = Field(None, max_length=100)
    languages: list[str] | None = Field(None, max_length=100)
    labels: list[str] | None = Field(None, max_length=100)
    without_labels: list[str] | None = Field(None, max_length=100)
    min_likes: int | None = Field(None, ge=0, lt=2**53)
    min_reposts: int | None = Field(None, ge=0, lt=2**53)
    min_replies: int | None = Field(None, ge=0, lt=2**53)
    conversation: str | None = None
    half_life_s: float | None = Field(None, ge=60, le=366 * 86_400)
    bm25_share: float | None = Field(None, ge=0, le=1)
    time_zone: str | None = None
    time_words: bool | None = None


class Search:
    def __init__(self, screen: Screens, retriever: Finds, index: Receipts) -> None:
        self._screen, self._retriever, self._index = screen, retriever, index

    async def search(self, raw: Any) -> Json:
        """The decoded JSON body -> the answer's. Raises ApiError 400; 503 when a part does not answer."""
        ask = read_ask(raw)
        verdict = await self._screen.check(ask.question, "question")
        if verdict.action is Action.BLOCK:
            if verdict.reason == UNAVAILABLE:
                raise _not_available("SafetyFilter")
            raise ApiError(400, "This query is refused by the safety filter.", code="content_filter", param="query")
        try:
            found = await self._retriever.search(replace(ask, question=verdict.text))
        except Unavailable as error:
            raise _not_available(error.deployment) from error
        return {
            "object": "list",
            "time_filter": _time_filter(found),
            "searched": found.candidates,
            "data": [found_match(match) for match in found.matches],
        }

    async def removal(self, post_id: str) -> Json:
        """When the post was removed at its source, and when here. Raises ApiError 404 for one that was not."""
        try:
            receipt = await self._index.receipt(post_id)
        except Unavailable as error:
            raise _not_available(error.deployment) from error
        if receipt is None:
            raise ApiError(404, "There is no record of this post's removal.", code="not_found", param="id")
        return {
            "object": "removal",
            "post_id": receipt.post_id,
            "reason": receipt.reason,
            "removed_at": _text(receipt.event_ms),
            "purged_at": _text(receipt.purged_ms),
        }


def _not_available(part: str) -> ApiError:
    message = f"{part} is not available; try again in a few seconds."
    return ApiError(503, message, "server_error", "service_unavailable", headers={"retry-after": "5"})


def read_ask(raw: Any) -> Ask:
    """Raises ApiError 400 that names the field."""
    if not isinstance(raw, dict):
        raise ApiError(400, "The body should be a JSON object.", code="invalid_type")
    try:
        body = SearchBody.model_validate(raw)
    except ValidationError as error:
        raise first_fault(error) from None
    given = body.model_dump(exclude_none=True, exclude={"query", "since", "until", "half_life_s", "time_words"})
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    if body.half_life_s is not None:
        fields["half_life_ms"] = int(body.half_life_s * 1000)
    if body.time_words is not None:
        fields["read_time_words"] = body.time_words
    for name in ("since", "until"):
        if (text := getattr(body, name)) is not None:
            fields[f"{name}_ms"] = _ms(name, text)
    try:
        return Ask(body.query, **fields)
    except BadAsk as error:
        name = {"question": "query", "since_ms": "since", "until_ms": "until"}.get(error.field, error.field)
        reason = error.reason.replace("since_ms", "since")
        raise ApiError(400, f"Invalid '{name}': {reason}.", code="invalid_value", param=name) from None


def found_match(match: Match) -> Json:
    """A match as it is shown, with why it was found."""
    shown: Json = {
        "post_id": match.post_id,
        "text": match.text,
        "source": match.source,
        "author": {"id": match.author_id, "handle": match.author_handle, "name": match.author_name},
        "url": match.url,
        "lang": match.lang,
        "created_at": _text(match.created_ms),
        "clock": match.clock,
        "labels": list(match.labels),
        "engagement": {"likes": match.likes, "reposts": match.reposts, "replies": match.replies},
        "score": match.score,
        "why": match.why,
        "reasons": list(explain(match)),
        "repeats": match.repeats,
        "independent": match.independent,
        "first_at": None if match.first_ms is None else _text(match.first_ms),
        "context": [_context(post) for post in match.context],
    }
    for name in ("reply_to", "quote_of", "repost_of", "conversation"):
        if (post_id := getattr(match, name)) is not None:
            shown[name] = post_id
    return shown


def time_notice(found: Found) -> str:
    """How the words for a time in the question were understood, for its reader; "" if there were none."""
    if not found.time_words:
        return ""
    limits = [("from", found.since_ms), ("to", found.until_ms)]
    said = " ".join(f"{word} {_short(ms)}" for word, ms in limits if ms is not None)
    return f'Only posts {said} UTC ("{found.time_words}").'


def _time_filter(found: Found) -> Json | None:
    if not found.time_words:
        return None
    limits = {"since": found.since_ms, "until": found.until_ms}
    return {"words": found.time_words, **{name: None if ms is None else _text(ms) for name, ms in limits.items()}}


def _context(post: Match) -> Json:
    return {
        "post_id": post.post_id,
        "text": post.text,
        "author": {"id": post.author_id, "handle": post.author_handle, "name": post.author_name},
        "url": post.url,
        "created_at": _text(post.created_ms),
    }


def _ms(name: str, text: str) -> int:
    try:
        return time_us(text) // 1000
    except ValueError:
        reason = "should be an RFC 3339 time such as 2026-11-30T12:00:00Z"
        raise ApiError(400, f"Invalid '{name}': {reason}.", code="invalid_value", param=name) from None


def _text(ms: int) -> str:
    return time_text(ms * 1000)


def _short(ms: int) -> str:
    return _text(ms)[:16].replace("T", " ")
