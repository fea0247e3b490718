"""Quotes that the quoted author took back."""

from dataclasses import replace

from ingest.post import Removal
from ingest.sources.bluesky_frame import Detachment
from ingest.sources.bluesky_quotes import Quotes
from ingest.versions import Newest
from tests.ingest.made import post

QUOTED = "bluesky:at://did:plc:b/app.bsky.feed.post/3q"
QUOTING = post("bluesky:at://did:plc:a/app.bsky.feed.post/3k", "look", version_us=100, quote_of=QUOTED)
DETACHED = Detachment(QUOTED, (QUOTING.id,))


def test_a_quoting_post_comes_again_without_its_quote():
    quotes = Quotes()
    assert quotes.seen(QUOTING) == QUOTING
    assert quotes.take_back(DETACHED) == [replace(QUOTING, quote_of=None, version_us=101)]
    assert quotes.take_back(DETACHED) == []


def test_its_deletion_and_its_next_edit_win_in_any_order():
    quotes = Quotes()
    quotes.seen(QUOTING)
    (without,) = quotes.take_back(DETACHED)
    deletion = Removal(QUOTING.id, 101, if_newer=True)  # the soonest that a deletion can come
    for order in ([QUOTING, without, deletion], [QUOTING, deletion, without], [deletion, QUOTING, without]):
        assert Newest(order).posts == []


def test_who_quotes_again_what_was_taken_back_has_no_quote():
    quotes = Quotes()
    assert quotes.take_back(DETACHED) == []
    assert quotes.seen(replace(QUOTING, version_us=500)).quote_of is None


def test_a_post_that_was_deleted_or_quotes_another_now_does_not_come_back():
    quotes = Quotes()
    quotes.seen(QUOTING)
    quotes.seen(Removal(QUOTING.id, 200, if_newer=True))
    assert quotes.take_back(DETACHED) == []
    quotes = Quotes()
    quotes.seen(QUOTING)
    quotes.seen(replace(QUOTING, version_us=200, quote_of=None))
    assert quotes.take_back(DETACHED) == []
    quotes = Quotes()
    quotes.seen(replace(QUOTING, quote_of="bluesky:at://did:plc:b/app.bsky.feed.post/other"))
    assert quotes.take_back(DETACHED) == []


def test_memory_is_bounded():
    quotes = Quotes(limit=3)
    for number in range(10):
        quotes.seen(replace(QUOTING, id=f"bluesky:{number}"))
    again = quotes.take_back(Detachment(QUOTED, tuple(f"bluesky:{number}" for number in range(10))))
    assert [found.id for found in again] == ["bluesky:7", "bluesky:8", "bluesky:9"]
