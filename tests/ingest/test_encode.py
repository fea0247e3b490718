"""What is written to the topic is read back as it was."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.payload import Refused
from ingest.post import AccountChange, Author, Malformed, Post, Removal, account_of
from ingest.record import decode, encode, json_bytes

RECEIVED_MS = 1_783_175_900_000
US = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
MS = st.integers(0, 253_370_764_799_999)  # 1970 to 9998
LINE = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=20).map(str.strip)
POST_ID = LINE.filter(bool).map(lambda name: f"test:{name}")
SOURCE = st.sampled_from(["bluesky", "test", "my.net_2-x"])
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1).map(
    lambda text: text + "x"
)
POSTS = st.builds(
    Post,
    id=POST_ID,
    source=SOURCE,
    version_us=US,
    text=TEXT,
    created_ms=MS,
    received_ms=st.integers(0, RECEIVED_MS),
    author=st.builds(Author, LINE, LINE, LINE),
    lang=st.sampled_from(["", "en", "zh-Hant"]),
    url=st.sampled_from(["", "https://ex.am/1"]),
    edited_ms=st.none() | MS,
    reply_to=st.none() | POST_ID,
    quote_of=st.none() | POST_ID,
    repost_of=st.none() | POST_ID,
    labels=st.lists(LINE, max_size=2).map(tuple),
    likes=st.integers(0, 2**53),
    views=st.none() | st.integers(0, 2**53),
    conversation=st.none() | POST_ID,
)
ACCOUNTS = st.builds(
    AccountChange, SOURCE, LINE.filter(bool), st.sampled_from(["active", "hidden", "deleted"]), US, LINE
)
REASONS = st.sampled_from(["deleted", "consent", "empty", "screened", "tweet_edit"])


def read_back(record: Post | Removal | AccountChange, timestamp_ms: int = RECEIVED_MS) -> Any:
    key, value, headers = encode(record)
    return decode(key, value, headers, timestamp_ms=timestamp_ms, received_ms=RECEIVED_MS)


def with_account(post: Post, **fields: Any) -> Post:
    account = account_of(post.source, post.author.id) if post.author.id else ""
    return Post(**{name: getattr(post, name) for name in Post.__slots__} | {"account": account} | fields)


@given(POSTS)
def test_a_post(post: Post) -> None:
    written = with_account(post)
    assert read_back(written) == written


@given(POSTS, POST_ID)
def test_a_plain_repost(post: Post, original: str) -> None:
    repost = with_account(post, text="", repost_of=original)
    assert read_back(repost) == repost


def test_a_post_of_a_pseudonym_keeps_its_account() -> None:
    """As it comes back from the archive: a change of its account must still find it."""
    account = account_of("test", "ana")
    post = Post("test:1", "test", 5, "t", 0, 7, Author("author-x"), account=account)
    assert read_back(post) == post


@given(POST_ID, US, REASONS)
def test_a_removal_that_states_its_version(post_id: str, version_us: int, reason: str) -> None:
    removal = Removal(post_id, version_us, reason, if_newer=True)
    assert read_back(removal) == removal


@given(POST_ID, st.integers(1, RECEIVED_MS), REASONS)
def test_a_removal_that_states_none_is_as_old_as_its_record(post_id: str, event_ms: int, reason: str) -> None:
    removal = Removal(post_id, event_ms * 1000, reason)
    assert read_back(removal, event_ms) == removal


@given(ACCOUNTS)
def test_a_change_of_an_account(change: AccountChange) -> None:
    assert read_back(change) == change


def test_the_headers() -> None:
    """Those of feeds.md 2.5: a stream processor can tell what a record does without reading it."""
    post = Post("test:1", "test", 1_783_175_887_214_629, "t", 0, 0, Author(""))
    version = b"2026-07-04T14:38:07.214629Z"
    assert encode(post)[0] == b"test:1"
    assert dict(encode(post)[2]) == {"op": b"upsert", "version": version, "source": b"test", "v": b"1"}
    stated = Removal("test:1", post.version_us, "consent", if_newer=True)
    of_stated = {"op": b"delete", "version": version, "source": b"test", "v": b"1", "reason": b"consent"}
    assert encode(stated)[:2] == (b"test:1", None) and dict(encode(stated)[2]) == of_stated
    guessed = dict(encode(Removal("test:1", 7))[2])
    assert guessed == {"op": b"delete", "source": b"test", "v": b"1", "reason": b"deleted"}


def test_the_examples_of_the_documentation_are_what_they_say() -> None:
    page = (Path(__file__).parents[2] / "docs/feed.md").read_text()
    examples = page.split("one of each kind:")[1].split("Of a post only")[0]
    objects, start = [], examples.index("{")
    while start >= 0:
        found, end = json.JSONDecoder().raw_decode(examples, start)
        objects.append(found)
        start = examples.find("{", end)
    now_ms = 1_796_000_000_000
    read = [decode(None, json.dumps(found).encode(), timestamp_ms=now_ms, received_ms=now_ms) for found in objects]
    kinds = [Post, Post, Removal, Removal, Post, Post, Post, AccountChange, AccountChange, AccountChange]
    assert [type(record) for record in read] == kinds
    _, edit, deletion, consent, repost, quote, reply, hidden, active, deleted = read
    assert isinstance(edit, Post) and edit.edited_ms is not None and edit.version_us == edit.edited_ms * 1000
    assert isinstance(deletion, Removal) and deletion.if_newer and isinstance(consent, Removal)
    assert isinstance(repost, Post) and repost.repost_of and isinstance(quote, Post) and quote.quote_of
    assert isinstance(reply, Post) and (reply.reply_to, reply.conversation) == ("x:30", "x:10")
    states = [change.state for change in (hidden, active, deleted) if isinstance(change, AccountChange)]
    assert states == ["hidden", "active", "deleted"]


def test_a_post_without_consent_is_read_as_its_removal() -> None:
    post = Post("test:1", "test", 5, "t", 0, 0, Author(""), indexable=False)
    assert read_back(post) == Removal("test:1", 5, "consent", if_newer=True)


@pytest.mark.parametrize("text", ["a\ud83d", "\x00"])
def test_what_no_store_takes_is_replaced(text: str) -> None:
    """T24."""
    post = read_back(Post("test:1", "test", 5, f"x{text}", 0, 0, Author("", text)))
    assert isinstance(post, Post) and post.text.endswith("\ufffd")


def test_an_id_that_is_no_text_is_refused_by_its_readers() -> None:
    for record in (Post("test:\ud83d", "test", 5, "t", 0, 0, Author("")), Removal("test:\ud83d", 5)):
        assert isinstance(read_back(record), Malformed)
    assert isinstance(read_back(AccountChange("test", "\ud83d", "hidden", 5)), Malformed)


@pytest.mark.parametrize("value", [{"x": float("nan")}, {"x": {1}}, {"x": b""}])
def test_what_is_not_json_is_refused(value: Any) -> None:
    with pytest.raises(Refused, match="json"):
        json_bytes(value)


def test_text_is_written_as_text() -> None:
    value = encode(Post("test:1", "test", 5, "Ol\u00e1 \U0001f30d", 0, 0, Author("")))[1] or b""
    assert "Ol\u00e1 \U0001f30d".encode() in value and json.loads(value)["text"] == "Ol\u00e1 \U0001f30d"
