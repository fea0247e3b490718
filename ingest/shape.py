"""The shape of the topic's JSON object, for pydantic. Everything else about it: ingest/record.py."""

import re
import unicodedata
from base64 import b32encode
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from typing import Annotated, Any

import regex
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

MAX_ID_BYTES = 1024
MAX_LINE = 200
MAX_FIELD_NAME = 40
MAX_CUT = 200  # more than any identifier is long

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


def post_id(text: str) -> str:
    if not text or len(text.encode()) > MAX_ID_BYTES or text != text.strip() or _CONTROL.search(text):
        raise ValueError("not an id")
    return text


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
    reply_to: Id | None = None
    quote_of: Id | None = None
    repost_of: Id | None = None
    labels: list[Line] = Field([], max_length=100)
    engagement: EngagementJson = EngagementJson()


_KNOWN = PostJson.model_fields.keys() | {"id", "version", "consent", "deleted"}
_KNOWN_INSIDE = {
    "author": AuthorJson.model_fields.keys(),
    "engagement": EngagementJson.model_fields.keys(),
    "consent": {"indexable"},
}


def count_unknown(parsed: Mapping[str, Any], dropped: Counter[str]) -> None:
    for name in parsed.keys() - _KNOWN:
        dropped[name[:MAX_FIELD_NAME]] += 1
    for outer, known in _KNOWN_INSIDE.items():
        inside = parsed.get(outer)
        if isinstance(inside, dict):
            for name in inside.keys() - known:
                dropped[f"{outer}.{name}"[:MAX_FIELD_NAME]] += 1
