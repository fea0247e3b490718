"""Changes of accounts on the topic (docs/feed.md)."""

import json
from collections import Counter
from typing import Any

import pytest

from ingest.post import AccountChange, Author, Malformed, Post, Record, account_of
from ingest.record import decode, encode

RECORD_MS, RECEIVED_MS = 1_783_175_899_995, 1_783_175_900_000
KEY = b"account:bluesky:did:plc:x"
TID, TID_US = "3mptbypcq372f", 1_783_175_887_214_629


def change(**changes: Any) -> dict[str, Any]:
    given = {"account": {"source": "bluesky", "id": "did:plc:x"}, "state": "hidden", "version": TID} | changes
    return {name: content for name, content in given.items() if content is not ...}


def decoded(given: Any, key: bytes | None = KEY, dropped: Counter[str] | None = None) -> Record:
    value = None if given is None else json.dumps(given).encode()
    return decode(key, value, timestamp_ms=RECORD_MS, received_ms=RECEIVED_MS, dropped=dropped)


@pytest.mark.parametrize("state", ["active", "hidden", "deleted"])
def test_an_account_changes(state: str) -> None:
    """T19."""
    given = decoded(change(state=state, reason="takendown"))
    assert given == AccountChange("bluesky", "did:plc:x", state, TID_US, "takendown")  # type: ignore[arg-type]
    assert decoded(change(state=state), key=None) == decoded(change(state=state, reason=None))


def test_it_names_the_same_account_as_the_posts_of_its_author() -> None:
    """Also where the author's id is too long or too dirty to be kept as it is."""
    for author_id in ("did:plc:x", "1346889436626259968", " 7\n8 ", "x" * 300, "\u00fc@instance.example", "a:b"):
        given = {"id": "bluesky:1", "text": "t", "created_at": "2026-07-04T14:38:06Z", "author": {"id": author_id}}
        post = decoded(given, key=None)
        of_account = change(account={"source": "bluesky", "id": author_id})
        hidden = decoded(of_account, key=f"account:bluesky:{author_id}".encode())
        assert isinstance(post, Post) and isinstance(hidden, AccountChange), (post, hidden)
        assert post.account == hidden.account != ""
    assert account_of("mastodon", "7") != account_of("bluesky", "7")


def test_a_post_without_an_author_id_is_of_no_account() -> None:
    given = {"id": "a:1", "text": "t", "created_at": "2026-07-04T14:38:06Z", "author": {"handle": "ana"}}
    post = decoded(given, key=None)
    assert isinstance(post, Post) and (post.account, post.author) == ("", Author("", "ana"))


@pytest.mark.parametrize(
    ("given", "key", "reason", "detail"),
    [
        (change(state="gone"), KEY, "field", "state: literal_error"),
        (change(state=...), KEY, "field", "state: missing"),
        (change(account=...), KEY, "field", "account: missing"),
        (change(account="did:plc:x"), KEY, "field", "account: model_type"),
        (change(account={"source": "bluesky"}), KEY, "field", "account.id: missing"),
        (change(account={"source": "bluesky", "id": ""}), b"account:bluesky:", "field", "account.id: value_error"),
        (change(account={"source": "bluesky", "id": " "}), b"account:bluesky: ", "field", "account.id: value_error"),
        (
            change(account={"source": "x", "id": 2244994945}),
            b"account:x:2244994945",
            "field",
            "account.id: string_type",
        ),
        (change(account={"source": "a b", "id": "7"}), b"account:a b:7", "field", "account.source: value_error"),
        (
            change(account={"source": "account", "id": "7"}),
            b"account:account:7",
            "field",
            "account.source: value_error",
        ),
        (change(), b"account:bluesky:did:plc:y", "key", "differs from the account"),
        (change(), b"bluesky:did:plc:x", "key", "differs from the account"),
        (change(), b"account:bluesky:\xff", "key", "differs from the account"),
        (None, KEY, "account", "a null value says nothing of it: send active, hidden or deleted"),
        ({"id": "bluesky:1", "text": "t", "created_at": "2026-07-04T14:38:06Z"}, KEY, "field", "account: missing"),
        (change(state="active", version="soon"), KEY, "version", ""),
        (change(state="active", version=7), KEY, "version", "not a string"),
    ],
)
def test_what_is_no_change_of_an_account(given: Any, key: bytes, reason: str, detail: str) -> None:
    assert decoded(given, key=key) == Malformed(reason, detail)


@pytest.mark.parametrize("state", ["hidden", "deleted"])
def test_what_takes_posts_away_is_not_refused_for_its_version(state: str) -> None:
    dropped: Counter[str] = Counter()
    given = decoded(change(state=state, version="soon"), dropped=dropped)
    assert given == AccountChange("bluesky", "did:plc:x", state, RECORD_MS * 1000)  # type: ignore[arg-type]
    assert dropped == {"version": 1}


@pytest.mark.parametrize("state", ["active", "hidden", "deleted"])
def test_without_a_version_the_record_s_own_time_counts(state: str) -> None:
    given = decoded(change(state=state, version=...))
    assert isinstance(given, AccountChange) and given.version_us == RECORD_MS * 1000


def test_what_is_left_out_is_counted_by_name() -> None:
    dropped: Counter[str] = Counter()
    decoded(change(mood="sad", account={"source": "bluesky", "id": "did:plc:x", "seq": 7}), dropped=dropped)
    assert dropped == {"mood": 1, "account.seq": 1}


def test_it_is_written_with_its_key_and_headers() -> None:
    key, value, headers = encode(AccountChange("bluesky", "did:plc:x", "hidden", TID_US, "takendown"))
    assert key == KEY
    assert json.loads(value or b"") == change(version="2026-07-04T14:38:07.214629Z", reason="takendown")
    assert dict(headers) == {
        "op": b"account", "source": b"bluesky", "version": b"2026-07-04T14:38:07.214629Z", "v": b"1",
    }  # fmt: skip
