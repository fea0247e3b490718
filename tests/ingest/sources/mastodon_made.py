"""Mastodon statuses and events for tests, in the shapes of shared/reference/feeds.md 2.2."""

import json

from ingest.sources.mastodon import Instance, read_event

HOST = "here.example"
NOW_MS = 1_783_159_201_000  # 2026-07-04T10:00:01Z
CREATED_US = NOW_MS * 1000 - 1_000_000
CREATED = "2026-07-04T10:00:00.000Z"
EDITED = "2026-07-04T10:05:00.000Z"
EDITED_US = CREATED_US + 300_000_000

CONTENT = (
    '<p>Line one<br />two</p><p><a href="https://example.org/very/long"><span class="invisible">https://</span>'
    '<span class="ellipsis">example.org/very</span><span class="invisible">/long</span></a> '
    '<a href="https://ex.social/tags/x" class="mention hashtag">#<span>x</span></a></p>'
)
TEXT = "Line one\ntwo\n\nhttps://example.org/very/long #x"


def account(name="a", host="ex.social", **fields):
    return {
        "id": "1", "acct": f"{name}@{host}", "username": name, "display_name": name.title(), "bot": False,
        "uri": f"https://{host}/users/{name}", "url": f"https://{host}/@{name}", "indexable": True,
    } | fields  # fmt: skip


def status(number=1, **fields):
    return {
        "id": f"1089143549079846{number:02d}", "uri": f"https://ex.social/users/a/statuses/{number}",
        "url": f"https://ex.social/@a/{number}", "created_at": CREATED, "edited_at": None, "visibility": "public",
        "language": "en", "sensitive": False, "spoiler_text": "", "content": CONTENT, "reblog": None,
        "in_reply_to_id": None, "account": account(), "tags": [{"name": "x", "url": "https://ex.social/tags/x"}],
        "mentions": [], "media_attachments": [], "card": None, "poll": None, "quote": None,
    } | fields  # fmt: skip


def local_id(number=1):
    return status(number)["id"]


def post_id(number=1):
    return f"mastodon:https://ex.social/users/a/statuses/{number}"


def instance(known=(), **fields):
    """`known`: numbers of statuses that came before."""
    aliases = {local_id(number): post_id(number) for number in known}
    return Instance(HOST, aliases.get, **fields)


def read(event, payload, known=(), now_ms=NOW_MS, **fields):
    content = payload if isinstance(payload, str | bytes) else json.dumps(payload)
    return read_event(event, content, now_ms, instance(known, **fields))
