"""Who wrote a post and where it stands: which of it is screened, and what may be shown of it. Rules: docs/feed.md."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol
from urllib.parse import unquote, urlsplit

from ingest.post import Author, Post
from ingest.shape import pseudonym

_ADDRESS = re.compile(r"(@?)([^@\s]+)@([^@\s]+)")
_DECODINGS = 3  # of a url: an address may be escaped twice


class PostVerdict(Protocol):
    """`action`: 0 allow, 1 rewrite, 2 block. `text`: what may be shown."""

    @property
    def action(self) -> int: ...
    @property
    def text(self) -> str: ...


def byline_texts(post: Post) -> list[str]:
    """What must pass the screen besides the post's own text."""
    author = post.author
    texts = (author.name, author.id, _handle_text(post), _url_text(post.url))
    return [text for text in texts if text]


def shown(post: Post, verdict_of: Mapping[str, PostVerdict]) -> Post:
    """The post with what may be shown of its byline. `verdict_of` has the verdict on each of `byline_texts`."""

    def text_of(text: str, whole: str) -> str:
        if not text:
            return ""
        verdict = verdict_of[text]
        return whole if verdict.action == 0 else verdict.text

    author, url_text = post.author, _url_text(post.url)
    is_plain_id = not author.id or verdict_of[author.id].action == 0
    is_plain_url = bool(url_text) and verdict_of[url_text].action == 0
    return replace(
        post,
        author=Author(
            author.id if is_plain_id else pseudonym(author.id),
            text_of(_handle_text(post), author.handle),
            text_of(author.name, author.name),
        ),
        url=post.url if is_plain_url else "",
    )


def _handle_text(post: Post) -> str:
    """A handle as it is; of a federated one (user@instance), which is no e-mail address, its two parts."""
    handle = post.author.handle
    found = _ADDRESS.fullmatch(handle)
    if found is None:
        return handle
    leading, user, instance = found.groups()
    return f"{user} {instance}" if leading or _host(post.url) == instance.lower() else handle


def _host(url: str) -> str:
    return (urlsplit(url).hostname or "") if url else ""


def _url_text(url: str) -> str:
    """A url as a reader would see it: an address does not hide behind %40."""
    for _ in range(_DECODINGS):
        url = unquote(url)
    return url
