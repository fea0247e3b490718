"""The dates of feeds in the forms in which they are found."""

import io
from datetime import UTC, datetime

import feedparser
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.sources.feed_time import read_time

TEN = "2026-07-04T10:00:00"


def utc(us):
    return None if us is None else datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%S")


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("Sat, 04 Jul 2026 10:00:00 GMT", TEN),
        ("Sat, 4 Jul 26 10:00:00 +0000", TEN),
        ("04 Jul 2026 10:00 UT", TEN),
        ("Sat, 04 Jul 2026 10:00:00", TEN),  # no zone is UTC
        ("Sat, 04 Jul 2026 12:00:00 +0200", TEN),
        ("Sat, 04 Jul 2026 06:00:00 EDT", TEN),
        ("Sat, 04 Jul 2026 10:00:00 XYZ", TEN),
        ("Sa, 04 Juli 2026 12:00:00 CEST", TEN),
        ("Mo, 25 Jun 2018 10:00:00 +0200", "2018-06-25T08:00:00"),  # feedparser#135
        ("sábado, 04 Ago. 2026 10:00:00 GMT", "2026-08-04T10:00:00"),
        ("Sam, 04 juil. 2026 10:00:00 GMT", TEN),
        ("土, 04 Jul 2026 10:00:00 GMT", TEN),
        ("Sat, 04 Jul 2026 10:00:00 GMT Sat, 04 Jul 2026 10:00:00 GMT", TEN),  # feedparser#72
        (f"{TEN}Z{TEN}Z", TEN),
        ("Saturday, 04-Jul-26 10:00:00 GMT", TEN),
        ("Sat, 4 Jul 2026 24:00:00 GMT", "2026-07-05T00:00:00"),
        ("Sat, 04 Jul 1996 10:00:00 GMT", "1996-07-04T10:00:00"),
        ("Sat, 04 Jul 96 10:00:00 GMT", "1996-07-04T10:00:00"),
        ("04 Jul 2026", "2026-07-04T00:00:00"),
        (f"{TEN}Z", TEN),
        (TEN, TEN),  # liferea#1174
        ("2026-07-04 10:00:00", TEN),
        ("2026-07-04T12:00:00.123456789+02:00", TEN),
        ("2026-07-04T12:00+0200", TEN),
        ("2026-07-04", "2026-07-04T00:00:00"),
        ("20260704T100000Z", TEN),
        ("20260704", "2026-07-04T00:00:00"),
        ("1783159200", TEN),
        ("1783159200000", TEN),
        ("Sat Jul  4 10:00:00 2026", TEN),  # feedparser's own
    ],
)
def test_forms_that_are_read(text, read):
    feed = f'<rss version="2.0"><channel><item><pubDate>{text}</pubDate></item></channel></rss>'
    item = feedparser.parse(io.BytesIO(feed.encode())).entries[0]
    assert utc(read_time(item.published, item.get("published_parsed"))) == read


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "Sat, 31 Feb 2026 10:00:00 GMT",
        "Thu, 01 Jan 1970 00:00:00 GMT",
        "0001-01-01T00:00:00Z",
        "9" * 60,
        "2026-13-04T10:00:00Z",
        "04 Xyz 2026 10:00:00",
        "Sat, 04 Jul 2026 25:00:00 GMT",
        "3026-07-04",
    ],
)
def test_what_is_no_date_is_none(text):
    assert read_time(text) is None


@given(st.text(max_size=60) | st.from_regex(r"\w{2}, \d{1,3} [A-Za-z]{3} \d{1,5} \d\d:\d\d:\d\d [A-Z+-]\w{0,4}"))
def test_nothing_is_raised(text):
    assert read_time(text) is None or read_time(text) > 0
