"""The shapes of the topic's JSON objects, for pydantic. Everything else about them: ingest/topic_object.py."""

import re
import unicodedata
from base64 import b32encode
from collections import Counter
from collections.abc import Mapping, Set
from hashlib import sha256
from typing import Annotated, Any
from urllib.parse import urlsplit

import regex
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ingest.post import AccountState

MAX_ID_BYTES = 1024
MAX_URL = 2048
MAX_LINE = 200
MAX_FIELD_NAME = 40
MAX_CUT = 200  # more than any identifier is long

_LANG = re.compile(r"[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*", re.ASCII)
_SOURCE = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,39}", re.ASCII)
_ACCOUNT = re.compile(r"[a-z2-7]{26}")
_REASON = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}", re.ASCII)
_URL_BREAKS = re.compile(r"[\s\x00-\x20\x7f-\x9f\"<>`{}|\\^\u202a-\u202e\u2066-\u2069]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_WORD = regex.compile(
    r"(?<!\S)\p{L}[\p{L}\p{M}'\u2019-]*+[.,!?;:\u2026)\"\u201d]*+(?=\s)|\p{L}\p{M}*+[\u3002\uff01\uff1f\u0964]"
)


def one_line(text: str) -> str:
    return shortened(_CONTROL.sub(" ", text).strip(), MAX_LINE)


def shortened(text: str, limit: int) -> str:
    """At most `limit` code points, cut after a whole word of letters alone: the screen would not know a part of a
    number or an address. Without such a word among the last MAX_CUT code points, these go."""
    if len(text) <= limit:
        return text
    words = list(_WORD.finditer(text, max(0, limit - MAX_CUT), limit + 1))
    end = max((word.end() for word in words if word.end() <= limit), default=max(0, limit - MAX_CUT))
    while end and not words and unicodedata.category(text[end - 1])[0] not in "LM":
        end -= 1
    return text[:end]


def pseudonym(text: str) -> str:
    """Stands for what may not be shown, the same each time."""
    return "author-" + b32encode(sha256(text.encode()).digest())[:26].decode().lower()


def _author_id(text: str) -> str:
    line = _CONTROL.sub(" ", text).strip()
    return line if len(line) <= MAX_LINE else pseudonym(line)


def _account_id(text: str) -> str:
    """As the authors of posts have it, so that it names the same account."""
    if not (author_id := _author_id(text)):
        raise ValueError("empty")
    return author_id


def post_id(text: str) -> str:
    if not text or len(text.encode()) > MAX_ID_BYTES or text != text.strip() or _CONTROL.search(text):
        raise ValueError("not an id")
    return text


def is_source(source: str) -> bool:
    """`account` is none: it stands in front of the keys of accounts."""
    return _SOURCE.fullmatch(source) is not None and source != "account"


def is_language(tag: str) -> bool:
    return len(tag) <= 35 and _LANG.fullmatch(tag) is not None


def is_account(account: str) -> bool:
    return _ACCOUNT.fullmatch(account) is not None


def is_reason(label: str) -> bool:
    return _REASON.fullmatch(label) is not None


def is_web_url(url: str) -> bool:
    """It becomes a link on a page: only http and https, with a host, and nothing that could break out of it."""
    if len(url) > MAX_URL or _URL_BREAKS.search(url):
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False


def _known_source(source: str) -> str:
    if not is_source(source):
        raise ValueError("not a source")
    return source


Line = Annotated[str, AfterValidator(one_line)]
Id = Annotated[str, AfterValidator(post_id)]
Number = Annotated[int, Field(ge=0, le=2**53)]
_STRICT = ConfigDict(strict=True, extra="ignore")


class AuthorJson(BaseModel):
    model_config = _STRICT

    id: Annotated[str, AfterValidator(_author_id)] | None = None
    handle: Line | None = None
    name: Line | None = None


class EngagementJson(BaseModel):
    model_config = _STRICT

    likes: Number | None = None
    reposts: Number | None = None
    replies: Number | None = None
    views: Number | None = None


class PostJson(BaseModel):
    """The topic object without `id`, `version`, `consent` and `deleted`, which `decode` reads before the rest."""

    model_config = _STRICT

    source: Line | None = None
    author: AuthorJson = AuthorJson()
    text: str
    lang: str | None = None
    url: str | None = None
    created_at: str
    edited_at: str | None = None
    received_at: str | None = None
    reply_to: Id | None = None
    quote_of: Id | None = None
    repost_of: Id | None = None
    conversation: Id | None = None
    account: str | None = None
    labels: list[Line] = Field([], max_length=100)
    engagement: EngagementJson = EngagementJson()


class AccountJson(BaseModel):
    model_config = _STRICT

    source: Annotated[str, AfterValidator(_known_source)]
    id: Annotated[str, AfterValidator(_account_id)]


class AccountChangeJson(BaseModel):
    """The topic object of an account without `version`."""

    model_config = _STRICT

    account: AccountJson
    state: AccountState
    reason: Line | None = None


_KNOWN: dict[type[BaseModel], Set[str]] = {
    PostJson: PostJson.model_fields.keys() | {"id", "version", "consent", "deleted"},
    AccountChangeJson: AccountChangeJson.model_fields.keys() | {"version"},
}
_KNOWN_INSIDE: dict[type[BaseModel], dict[str, Set[str]]] = {
    PostJson: {
        "author": AuthorJson.model_fields.keys(),
        "engagement": EngagementJson.model_fields.keys(),
        "consent": {"indexable"},
    },
    AccountChangeJson: {"account": AccountJson.model_fields.keys()},
}


def count_unknown(shape: type[BaseModel], parsed: Mapping[str, Any], dropped: Counter[str]) -> None:
    for name in parsed.keys() - _KNOWN[shape]:
        dropped[name[:MAX_FIELD_NAME]] += 1
    for outer, known in _KNOWN_INSIDE[shape].items():
        inside = parsed.get(outer)
        if isinstance(inside, dict):
            for name in inside.keys() - known:
                dropped[f"{outer}.{name}"[:MAX_FIELD_NAME]] += 1
