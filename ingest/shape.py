"""The shape of the topic's JSON object, for pydantic. Everything else about it: ingest/record.py."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

MAX_ID_BYTES = 1024
MAX_LINE = 200
MAX_FIELD_NAME = 40

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def one_line(text: str) -> str:
    return _CONTROL.sub(" ", text).strip()[:MAX_LINE]


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

    id: Line | None = None
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
