"""Times, version strings, and which of two versions wins."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ingest.post import Author, Post, Removal
from ingest.versions import Newest, moved_version, time_text, time_us, version_us

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def post(post_id: str, version: int, text: str = "text") -> Post:
    return Post(post_id, "test", version, text, 0, 0, Author("a"))


@pytest.mark.parametrize(
    ("text", "as_utc"),
    [
        # atproto-interop-tests, datetime_syntax_valid.txt
        ("1985-04-12T23:20:50.123Z", "1985-04-12T23:20:50.123+00:00"),
        ("1985-04-12T23:20:50.1235678912345Z", "1985-04-12T23:20:50.123567+00:00"),
        ("1985-04-12T23:20:50Z", "1985-04-12T23:20:50+00:00"),
        ("1985-04-12T23:20:50.0Z", "1985-04-12T23:20:50+00:00"),
        ("1985-04-12T23:20:50.123-07:00", "1985-04-13T06:20:50.123+00:00"),
        ("1985-04-12T23:20:50.123+01:45", "1985-04-12T21:35:50.123+00:00"),
        ("0985-04-12T23:20:50.123-07:00", "0985-04-13T06:20:50.123+00:00"),
        ("0123-01-01T00:00:00.000Z", "0123-01-01T00:00:00+00:00"),
        ("3001-12-31T23:00:00.000Z", "3001-12-31T23:00:00+00:00"),
        # a real Bluesky record, and what other networks write
        ("2026-07-04T14:38:02+00:00", "2026-07-04T14:38:02+00:00"),
        ("2026-07-04t14:38:02z", "2026-07-04T14:38:02+00:00"),
        ("2026-07-04 14:38:02-00:00", "2026-07-04T14:38:02+00:00"),
        ("2026-07-04T14:38:02", "2026-07-04T14:38:02+00:00"),
        ("2026-07-04T14:38Z", "2026-07-04T14:38:00+00:00"),
        ("2026-07-04T14:38:02,5+0200", "2026-07-04T12:38:02.5+00:00"),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00+00:00"),
        ("2024-02-29T00:00:00Z", "2024-02-29T00:00:00+00:00"),
    ],
)
def test_times(text: str, as_utc: str) -> None:
    assert time_us(text) == (datetime.fromisoformat(as_utc) - EPOCH) // timedelta(microseconds=1)


@pytest.mark.parametrize(
    "text",
    [
        # atproto-interop-tests, datetime_parse_invalid.txt
        "1985-00-12T23:20:50.123Z",
        "1985-04-00T23:20:50.123Z",
        "1985-13-12T23:20:50.123Z",
        "1985-04-12T25:20:50.123Z",
        "1985-04-12T23:99:50.123Z",
        "1985-04-12T23:20:61.123Z",
        # datetime_syntax_invalid.txt, as far as we are no more lenient
        "01985-04-12T23:20:50.123Z",
        "985-04-12T23:20:50.123Z",
        "1985-04-12T23:20:50.Z",
        "1985-04-32T23;20:50.123Z",
        "1985\u201404-32T23;20:50.123Z",
        " 1985-04-12T23:20:50.123Z",
        "1985-04-12T23:20:50.123Z ",
        "1985-04-12T 23:20:50.123Z",
        "1985-4-12T23:20:50.123Z",
        "1985-04-12T3:20:50.123Z",
        "1985-04-12T23:20:050.123Z",
        "1985-04-12_23:20:50.123Z",
        "1985-04-274T23:20:50.123Z",
        "1985-04-12",
        "+001985-04-12T23:20:50.123Z",
        "23:20:50.123Z",
        "1985-04-12T23:20:50.123+00:0",
        "1985-04-12T23:20:50.123+",
        "0000-01-01T00:00:00+01:00",
        "-000001-12-31T23:00:00.000Z",
        # impossible
        "2023-02-29T00:00:00Z",
        "2026-07-04T24:00:00Z",
        "2026-07-04T14:38:02+24:00",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "\u0661985-04-12T23:20:50.123Z",
        "Sat, 04 Jul 2026 10:00:00 GMT",
        "",
    ],
)
def test_no_times(text: str) -> None:
    with pytest.raises(ValueError):
        time_us(text)


@given(st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31), timezones=st.just(UTC)))
def test_a_written_time_reads_back(moment: datetime) -> None:
    us = (moment - EPOCH) // timedelta(microseconds=1)
    assert time_us(time_text(us)) == us


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("3mptbyoeyc22k", 1_783_175_886_240_000),  # a real record key, made at 2026-07-04T14:38:06.240Z
        ("3mptbypcq372f", 1_783_175_887_214_629),  # and the revision that carried it
        ("azzzzzzzzzzzz", 7_881_299_347_898_367),
        ("1783175888090", 1_783_175_888_090_000),
        ("7777777777777", 7_777_777_777_777_000),  # also a TID: read as milliseconds
        ("1783175888090631", 1_783_175_888_090_631),
        ("2026-07-04T14:38:08.090631Z", 1_783_175_888_090_631),
    ],
)
def test_versions(text: str, us: int) -> None:
    assert version_us(text) == us


@pytest.mark.parametrize(
    "text",
    [
        # atproto-interop-tests, tid_syntax_invalid.txt ("0000000000000" is 1970 in milliseconds here)
        "3jzfcijpj2z21",
        "3jzfcijpj2z2aa",
        "3jzfcijpj2z2",
        "3jzf-cij-pj2z-2a",
        "zzzzzzzzzzzzz",
        "kjzfcijpj2z2a",
        "3JZFCIJPJ2Z2A",
        "1346889436626259968",  # an X id is no time
        "20261130120000",
        "17831758880",
        "-1783175888090",
        "\u0661783175888090",
        "v2",
        "",
    ],
)
def test_no_versions(text: str) -> None:
    with pytest.raises(ValueError):
        version_us(text)


@given(st.integers(1_000_000_000_000_000, 2_200_000_000_000_000), st.integers(0, 1023), st.integers(-(10**13), 10**13))
def test_a_moved_version_keeps_its_kind_and_moves_by_as_much(us: int, clock: int, by: int) -> None:
    digits = "234567abcdefghijklmnopqrstuvwxyz"
    number = us << 10 | clock
    tid = "".join(digits[number >> shift & 31] for shift in range(60, -1, -5))
    moved = moved_version(tid, lambda at: at + by)
    assume(not tid.isdigit() and not moved.isdigit())  # 13 digits are read as milliseconds: docs/feed.md
    assert version_us(moved) == us + by and len(moved) == 13
    assert version_us(tid) == us
    assert moved_version(str(us), lambda at: at + by) == str(us + by)
    assert version_us(moved_version(time_text(us), lambda at: at + by)) == us + by


class OneByOne:
    """The rule of the index (docs/feed.md) for one post, as a reference: what is stored after each record in turn."""

    def __init__(self) -> None:
        self.version, self.text = -1, None

    def apply(self, record: Post | Removal) -> None:
        if isinstance(record, Removal):
            if record.if_newer and record.version_us < self.version:
                return
            self.version, self.text = max(self.version, record.version_us), None
        elif record.version_us > self.version or (self.text is not None and record.version_us == self.version):
            self.version, self.text = record.version_us, record.text


RECORDS = st.lists(
    st.one_of(
        st.builds(post, st.just("p"), st.integers(0, 4), st.text(min_size=1, max_size=2)),
        st.builds(Removal, st.just("p"), st.integers(0, 4), st.just("deleted"), st.booleans()),
    ),
    max_size=8,
)


@given(RECORDS, RECORDS)
def test_a_batch_leaves_what_its_records_would_leave_one_by_one(
    stored: list[Post | Removal], batch: list[Post | Removal]
) -> None:
    expected, shortened = OneByOne(), OneByOne()
    for record in stored:
        expected.apply(record)
        shortened.apply(record)
    for record in batch:
        expected.apply(record)
    newest = Newest(batch)
    for record in [*newest.removals, *newest.posts]:
        shortened.apply(record)
    assert shortened.text == expected.text
    assert shortened.version == expected.version


def test_posts_keep_the_order_in_which_they_were_first_seen() -> None:
    newest = Newest([post("b", 1), post("a", 1), post("b", 2)])
    assert [(kept.id, kept.version_us) for kept in newest.posts] == [("b", 2), ("a", 1)]
