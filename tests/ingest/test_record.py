"""What a Kafka record becomes (docs/feed.md). T-numbers: shared/reference/cases.md."""

import json
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.payload import _STRUCTURE
from ingest.post import AccountChange, Author, Malformed, Post, Record, Removal, account_of
from ingest.record import decode, encode
from ingest.topic_object import MAX_TEXT

CREATED = "2026-07-04T14:38:06.240Z"
CREATED_MS = 1_783_175_886_240
RECEIVED_MS = 1_783_175_900_000
RECORD_MS = RECEIVED_MS - 5  # the record's own time
ID = "bluesky:at://did:plc:x/app.bsky.feed.post/3k"


def topic_object(**changes: Any) -> dict[str, Any]:
    """The smallest topic object, with fields changed; `...` takes one out."""
    given = {"id": ID, "text": "hello", "created_at": CREATED} | changes
    return {name: content for name, content in given.items() if content is not ...}


def decoded(given: Any, key: bytes | None = None, dropped: Counter[str] | None = None, **rest: Any) -> Record:
    value = given if isinstance(given, bytes | None) else json.dumps(given).encode()
    return decode(key, value, timestamp_ms=RECORD_MS, received_ms=RECEIVED_MS, dropped=dropped, **rest)


def decoded_post(given: Any, **rest: Any) -> Post:
    record = decoded(given, **rest)
    assert isinstance(record, Post), record
    return record


def test_the_whole_object() -> None:
    given = {
        "id": ID, "source": "bluesky", "version": "3mptbypcq372f",
        "author": {"id": "did:plc:x", "handle": "ana.example", "name": "Ana"}, "text": "Olá \U0001f30d",
        "lang": "pt-BR", "url": "https://ex.am/1?q=%20#a",
        "created_at": CREATED, "edited_at": "2026-07-04T14:40:00Z", "reply_to": "a:1",
        "quote_of": "a:2", "repost_of": "a:3", "conversation": "a:0", "labels": ["spam"],
        "consent": {"indexable": True},
        "engagement": {"likes": 1, "reposts": 2, "replies": 3, "views": 4},
    }  # fmt: skip
    dropped: Counter[str] = Counter()
    assert decoded(given, key=ID.encode(), dropped=dropped) == Post(
        id=ID, source="bluesky", version_us=1_783_175_887_214_629, text="Olá \U0001f30d", created_ms=CREATED_MS,
        received_ms=RECORD_MS, author=Author("did:plc:x", "ana.example", "Ana"), lang="pt-BR",
        url="https://ex.am/1?q=%20#a", edited_ms=1_783_176_000_000, reply_to="a:1", quote_of="a:2", repost_of="a:3",
        labels=("spam",), likes=1, reposts=2, replies=3, views=4, conversation="a:0",
        account=account_of("bluesky", "did:plc:x"),
    )  # fmt: skip
    assert not dropped


def test_the_smallest_object() -> None:
    smallest = decoded_post(topic_object())
    assert smallest == Post(ID, "bluesky", CREATED_MS * 1000, "hello", CREATED_MS, RECORD_MS, Author(""))


def test_null_stands_for_absent() -> None:
    names = ("source", "version", "author", "lang", "url", "edited_at", "reply_to", "labels", "consent", "engagement")
    inside = {"author": {"id": None, "handle": None}, "engagement": {"likes": None}, "consent": {"indexable": None}}
    assert decoded(topic_object(**dict.fromkeys(names))) == decoded(topic_object()) == decoded(topic_object(**inside))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (b"", "null"),  # T3: no tombstone
        (b"null", "null"),
        (b" null\n", "null"),
        (b"{", "json"),
        (b"[]", "json"),
        (b'"text"', "json"),
        (b"17", "json"),
        (b'{"id": "a:1", "text": NaN, "created_at": "2026-07-04T14:38:06Z"}', "json"),
        (b'{"id": "a:1", "text": "t", "engagement": {"likes": Infinity}}', "json"),
        (b'{"id": "a:1", "likes": ' + b"9" * 5000 + b"}", "json"),
        (b'{"id": "a:1", "text": "\xff", "created_at": "2026-07-04T14:38:06Z"}', "utf8"),
        (b'{"id": "a:1", "text": "\xed\xa0\x80", "created_at": "2026-07-04T14:38:06Z"}', "utf8"),  # T24
        (json.dumps(topic_object()).encode("utf-16"), "utf8"),
        (b'{"id": "a:1", "x": "' + b"a" * 1_000_000 + b'"}', "too_large"),  # T32
        (b'{"id": ' + b"[" * 100_000, "too_deep"),
        (b'{"x": ' + b"[" * 40 + b"]" * 40 + b"}", "too_deep"),
        (b'{"x": ' + b'{"a":' * 40 + b"1" + b"}" * 41, "too_deep"),
        (topic_object(id=...), "id"),
        (topic_object(id=None), "id"),
        (topic_object(id=1346889436626259968), "id"),  # T23
        (topic_object(id=1.34688943662626e18), "id"),
        (topic_object(id=""), "id"),
        (topic_object(id=" a:1"), "id"),
        (topic_object(id="a:1\nb"), "id"),
        (topic_object(id="a:" + "x" * 1024), "id"),
        (topic_object(text=...), "field"),
        (topic_object(text=None), "field"),
        (topic_object(text=["a"]), "field"),
        (topic_object(created_at=...), "field"),
        (topic_object(created_at=1783175886), "field"),
        (topic_object(created_at="yesterday"), "created_at"),
        (topic_object(created_at="2026-02-30T00:00:00Z"), "created_at"),
        (topic_object(edited_at="2026-07-04T25:00:00Z"), "edited_at"),
        (topic_object(created_at="1969-12-31T23:59:59.999999Z"), "created_at"),  # impossible: before any network
        (topic_object(created_at="1601-01-01T00:00:00Z"), "created_at"),
        (topic_object(created_at="0001-01-01T00:00:00Z"), "created_at"),
        (topic_object(created_at="9999-12-31T23:59:59Z"), "created_at"),
        (topic_object(created_at="9998-12-31T23:00:00-01:00"), "created_at"),
        (topic_object(edited_at="9999-12-31T23:59:59Z"), "edited_at"),
        (topic_object(edited_at="1969-12-31T23:59:59Z"), "edited_at"),
        (topic_object(version="1346889436626259968"), "version"),
        (topic_object(version=1783175888090), "version"),
        (topic_object(author="ana"), "field"),
        (topic_object(author={"handle": 5}), "field"),
        (topic_object(reply_to=1346889436626259968), "field"),
        (topic_object(quote_of=""), "field"),
        (topic_object(conversation=7), "field"),
        (topic_object(account={"id": "did:plc:x"}), "field"),
        (topic_object(id="account:bluesky:did:plc:x"), "id"),
        (topic_object(labels="spam"), "field"),
        (topic_object(labels=["x"] * 101), "field"),
        (topic_object(engagement={"likes": -1}), "field"),
        (topic_object(engagement={"likes": "12"}), "field"),
        (topic_object(engagement={"likes": 1.5}), "field"),
        (topic_object(engagement={"likes": 2**53 + 1}), "field"),
    ],
    ids=lambda part: part if isinstance(part, str) else repr(part)[:60],
)
def test_what_is_no_post(given: Any, reason: str) -> None:
    record = decoded(given)
    assert isinstance(record, Malformed) and record.reason == reason, record


def test_a_fault_names_the_field_and_never_the_value() -> None:
    assert decoded(topic_object(author={"handle": 5})) == Malformed("field", "author.handle: string_type")
    assert decoded(topic_object(text=...)) == Malformed("field", "text: missing")
    assert "secret" not in repr(decoded(topic_object(created_at="secret")))


@pytest.mark.parametrize("depth", [30, 31])
def test_nesting_up_to_the_limit_is_an_unknown_field(depth: int) -> None:
    value = json.dumps(topic_object())[:-1].encode() + b', "x": ' + b"[" * depth + b"]" * depth + b"}"
    assert isinstance(decoded(value), Post)


def test_brackets_in_a_text_are_no_nesting() -> None:
    assert decoded_post(topic_object(text='["\\{' * 500)).text == '["\\{' * 500


@pytest.mark.parametrize(
    ("key", "agrees"),
    [(None, True), (b"", True), (ID.encode(), True), (b"other:1", False), (b"\xff", False), (b" ", False)],
)
def test_key_and_id_agree(key: bytes | None, agrees: bool) -> None:
    record = decoded(topic_object(), key=key)
    assert isinstance(record, Post) if agrees else isinstance(record, Malformed) and record.reason == "key"


@pytest.mark.parametrize(
    ("headers", "version_us", "if_newer"),
    [
        ((), RECORD_MS * 1000, False),
        ((("op", b"delete"), ("version", b"3mptbypcq372f")), 1_783_175_887_214_629, True),
        ((("ver", b"1783175888090"),), 1_783_175_888_090_000, True),
        (
            (("version", b"1783175888090"), ("version", b"1783175888091")),
            1_783_175_888_091_000,
            True,
        ),  # the last counts
        ((("version", None), ("version", b"")), RECORD_MS * 1000, False),
        ((("op", b"upsert"), ("v", b"2"), ("src", b"bsky"), ("x", None)), RECORD_MS * 1000, False),
    ],
)
def test_a_null_value_is_a_deletion(headers: Any, version_us: int, if_newer: bool) -> None:
    """T2, T3, T18."""
    assert decoded(None, key=ID.encode(), headers=headers) == Removal(ID, version_us, if_newer=if_newer)


@pytest.mark.parametrize("header", [b"x", b"\xff\xfe", b"1346889436626259968"])
def test_a_deletion_is_not_refused_for_its_version(header: bytes) -> None:
    dropped: Counter[str] = Counter()
    record = decoded(None, key=ID.encode(), headers=(("version", header),), dropped=dropped)
    assert record == Removal(ID, RECORD_MS * 1000)
    assert dropped == {"version": 1}


@pytest.mark.parametrize(
    ("headers", "reason", "dropped"),
    [
        ((("reason", b"consent"),), "consent", {}),
        ((("reason", b"screened"), ("reason", None)), "screened", {}),
        ((("reason", b"deleted"), ("reason", b"empty")), "empty", {}),
        ((("reason", b"because I said so"),), "deleted", {"reason": 1}),
        ((("reason", b"\xff"),), "deleted", {"reason": 1}),
        ((("reason", b"x" * 41),), "deleted", {"reason": 1}),
    ],
)
def test_a_deletion_may_say_why(headers: Any, reason: str, dropped: dict[str, int]) -> None:
    left_out: Counter[str] = Counter()
    assert decoded(None, key=ID.encode(), headers=headers, dropped=left_out) == Removal(ID, RECORD_MS * 1000, reason)
    assert left_out == dropped


@pytest.mark.parametrize("name", ["op", "version", "ver", "source", "src", "v", "reason", "content-type", ""])
@pytest.mark.parametrize("content", [None, b"", b"\xff\x00", b"x" * 1000, b"delete"])
def test_no_header_changes_what_a_value_says(name: str, content: bytes | None) -> None:
    """Unknown, repeated and null ones are in the wild; a value speaks for itself."""
    headers = ((name, content), (name, None), (name, content))
    assert decoded(topic_object(), headers=headers) == decoded(topic_object())


@pytest.mark.parametrize("key", [None, b"", b"\xff", b"a\x00b"])
def test_a_deletion_needs_a_key(key: bytes | None) -> None:
    assert isinstance(decoded(None, key=key), Malformed)


def test_a_record_without_a_timestamp_counts_from_its_arrival() -> None:
    assert decode(b"a:1", None, timestamp_ms=-1, received_ms=7) == Removal("a:1", 7000)


@pytest.mark.parametrize("deleted", [True, 1, "yes"])
def test_an_object_can_say_that_the_post_is_deleted(deleted: Any) -> None:
    given = {"id": ID, "deleted": deleted, "version": "1783175888090"}
    assert decoded(given) == Removal(ID, 1_783_175_888_090_000, if_newer=True)
    assert decoded(topic_object(deleted=deleted)) == Removal(ID, RECORD_MS * 1000)
    assert isinstance(decoded(topic_object(deleted=False)), Post)


def test_an_unversioned_deletion_is_not_older_than_its_record() -> None:
    """Or an edit that it has overtaken would bring the post back."""
    deletion = decoded(topic_object(deleted=True))
    edit = decoded_post(topic_object(edited_at="2026-07-04T14:38:16Z"))
    assert isinstance(deletion, Removal) and deletion.version_us > edit.version_us > CREATED_MS * 1000
    ahead = decoded(topic_object(deleted=True, edited_at="3001-12-31T23:00:00Z"))
    assert ahead == Removal(ID, 32_566_748_400_000_000)


@pytest.mark.parametrize("consent", [{"indexable": False}, {"indexable": "true"}, {"indexable": 1}, "no", [], False])
def test_without_consent_a_post_is_removed_whatever_else_is_wrong(consent: Any) -> None:
    assert decoded(topic_object(consent=consent)) == Removal(ID, RECORD_MS * 1000, "consent")
    versioned = decoded(topic_object(consent=consent, version="3mptbypcq372f"))
    assert versioned == Removal(ID, 1_783_175_887_214_629, "consent", if_newer=True)
    broken = decoded(topic_object(consent=consent, text=5, created_at="x", version=7, labels="x"))
    assert broken == Removal(ID, RECORD_MS * 1000, "consent")


@pytest.mark.parametrize("text", ["", "  \n", "\u200b\ufeff\u2060", "\u00a0"])
def test_a_post_without_text_takes_its_older_text_away(text: str) -> None:
    given = topic_object(text=text, edited_at="2026-07-04T14:40:00Z")
    assert decoded(given) == Removal(ID, 1_783_176_000_000_000, "empty", if_newer=True)


@pytest.mark.parametrize("text", ["", " \u200b\n"])
def test_a_repost_needs_no_text_of_its_own(text: str) -> None:
    repost = decoded_post(topic_object(text=text, repost_of="a:1"))
    assert (repost.text, repost.repost_of) == ("", "a:1")
    assert isinstance(decoded(topic_object(text=text, quote_of="a:1")), Removal)


@pytest.mark.parametrize(
    ("fields", "version_us"),
    [
        ({}, CREATED_MS * 1000),
        ({"edited_at": "2026-07-04T14:40:00Z"}, 1_783_176_000_000_000),
        ({"edited_at": "2026-07-04T14:40:00Z", "version": "3mptbypcq372f"}, 1_783_175_887_214_629),
    ],
)
def test_the_version_orders_edits(fields: dict[str, Any], version_us: int) -> None:
    """T5: from the payload, never from the record's time or offset."""
    assert decoded_post(topic_object(**fields)).version_us == version_us


@pytest.mark.parametrize(
    ("created_at", "created_ms", "sort_ms", "clock"),
    [
        ("2014-01-01T00:00:00Z", 1_388_534_400_000, 1_388_534_400_000, "backdated"),
        ("1970-01-01T00:00:00Z", 0, 0, "backdated"),
        ("2026-07-03T14:38:20Z", 1_783_089_500_000, 1_783_089_500_000, ""),
        ("2026-07-04T14:48:20Z", 1_783_176_500_000, RECORD_MS, "future"),
        ("3001-12-31T23:00:00Z", 32_566_748_400_000, RECORD_MS, "future"),
        ("9998-12-31T23:59:59.999Z", 253_370_764_799_999, RECORD_MS, "future"),
    ],
)
def test_times_far_from_now(created_at: str, created_ms: int, sort_ms: int, clock: str) -> None:
    """T21: a future time is clamped to the arrival, an old one stays old, and both are marked."""
    far = decoded_post(topic_object(created_at=created_at))
    assert (far.created_ms, far.sort_ms, far.clock) == (created_ms, sort_ms, clock)


@pytest.mark.parametrize(
    ("timestamp_ms", "received_ms"),
    [(CREATED_MS + 7, CREATED_MS + 7), (RECEIVED_MS, RECEIVED_MS), (RECEIVED_MS + 1, RECEIVED_MS), (-1, RECEIVED_MS)],
)
def test_a_post_was_received_when_its_record_was_written(timestamp_ms: int, received_ms: int) -> None:
    """Or a backlog that is drained two days late would be full of backdated posts."""
    value = json.dumps(topic_object()).encode()
    late = decode(None, value, timestamp_ms=timestamp_ms, received_ms=RECEIVED_MS)
    assert isinstance(late, Post) and late.received_ms == received_ms
    two_days = 2 * 24 * 3600 * 1000
    drained = decode(None, value, timestamp_ms=CREATED_MS + 7, received_ms=CREATED_MS + two_days)
    assert isinstance(drained, Post) and (drained.received_ms, drained.clock) == (CREATED_MS + 7, "")


@pytest.mark.parametrize(
    ("received_at", "received_ms", "dropped"),
    [
        ("2026-07-04T14:38:07Z", 1_783_175_887_000, {}),
        ("2027-07-04T14:38:07Z", RECORD_MS, {}),  # it has come already
        ("yesterday", RECORD_MS, {"received_at": 1}),
        ("1601-01-01T00:00:00Z", RECORD_MS, {"received_at": 1}),
    ],
)
def test_a_post_may_say_when_it_was_received(received_at: str, received_ms: int, dropped: dict[str, int]) -> None:
    left_out: Counter[str] = Counter()
    assert decoded_post(topic_object(received_at=received_at), dropped=left_out).received_ms == received_ms
    assert left_out == dropped


@pytest.mark.parametrize("account", ["", "x" * 25, "x" * 27, "X" * 26, "0" * 26, "did:plc:x"])
def test_an_account_that_is_none_is_left_out(account: str) -> None:
    dropped: Counter[str] = Counter()
    named = decoded_post(topic_object(author={"id": "did:plc:x"}, account=account), dropped=dropped)
    assert named.account == account_of("bluesky", "did:plc:x")
    assert dropped == ({"account": 1} if account else {})


def test_lone_surrogates_and_nul_become_replacement_characters() -> None:
    """T24: escaped in the JSON; valid pairs are untouched."""
    value = b'{"id": "a:1", "text": "a\\ud83d b\\u0000 \\ud83c\\udf0d", "created_at": "2026-07-04T14:38:06Z"}'
    assert decoded_post(value).text == "a\ufffd b\ufffd \U0001f30d"
    named = topic_object(author={"name": "a\udc00"}, labels=["\ud800"])
    assert (decoded_post(named).author.name, decoded_post(named).labels) == ("a\ufffd", ("\ufffd",))
    assert decoded_post(topic_object(text="\\u0000")).text == "\\u0000"  # an escaped backslash is no escape


def test_names_are_one_line_and_short() -> None:
    names = decoded_post(
        topic_object(author={"name": " Ana\r\n\u2028system: obey\x1b[0m ", "handle": "ha " * 99})
    ).author
    assert names == Author("", "ha " * 66 + "ha", "Ana system: obey [0m")


@pytest.mark.parametrize(
    ("before", "across"),
    [
        ("x " * 9991, " 4111 1111 1111 1111"),
        ("x " * 9991, "+49 (151) 1234-5678 90"),
        ("x " * 9985 + "write to", " jane.doe+some.where@gmail.example.com"),
        ("Call me. " * 2220, " 4111. 1111 1111 1111 4111. 1111 1111"),
        ("\u6a4b\u306f\u9589\u9396\u3002" * 3998, "4111 1111 1111 1111"),
        ("\u6a4b" * 19_990, "4111 1111 1111 1111"),
    ],
    ids=["card", "phone", "email", "sentences", "no spaces", "no sentences"],
)
def test_a_long_text_is_not_cut_within_a_number_or_an_address(before: str, across: str) -> None:
    """The screen knows a whole card number, and not twelve digits of one."""
    assert len(before) < MAX_TEXT < len(before + across)
    text = decoded_post(topic_object(text=before + across)).text
    assert len(text) >= MAX_TEXT - 200 and before.startswith(text)


def test_a_long_name_is_not_cut_within_a_number_or_an_address() -> None:
    name = "Ana Maria " * 18 + "at 4111 1111 1111 1111 4111"
    author = {"name": name, "handle": "+49151" * 40, "id": "4111 1111 1111 1111 " * 11}
    long = decoded_post(topic_object(author=author)).author
    assert (long.name, long.handle) == ("Ana Maria " * 18 + "at", "")
    assert re.fullmatch("author-[a-z2-7]{26}", long.id)
    other = decoded_post(topic_object(author=author | {"id": author["id"] + "2"})).author
    assert other.id != long.id


@pytest.mark.parametrize("source", ["+4915112345678", "jane@gmail.com", "a b", "x" * 41, "\u00fc"])
def test_a_source_is_a_short_plain_word(source: str) -> None:
    dropped: Counter[str] = Counter()
    assert decoded_post(topic_object(source=source), dropped=dropped).source == "bluesky"
    assert dropped == {"source": 1}
    assert decoded_post(topic_object(id=f"{source}:1")).source == ""
    assert decoded_post(topic_object(source="my.net_2-x")).source == "my.net_2-x"


@pytest.mark.parametrize("ending", [b"", b"\\"])
def test_a_string_without_an_end_is_read_once(ending: bytes) -> None:
    """34 marks: the brackets, and the rest as one. Were it looked at again from each quote in it, a megabyte would take
    hours."""
    broken = b"[" * 33 + b'"' + b'\\"' * 50 + ending
    marks = [found[0] for found in _STRUCTURE.finditer(broken)]
    assert len(marks) == 34 and sum(map(len, marks)) == len(broken)
    assert decoded(b"[" * 33 + b'"' + b'\\"' * 490_000 + ending) == Malformed("too_deep")


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "//ex.am/1",
        "https://",
        "https:///x",
        "https://[::1",
        'https://ex.am/"onclick=',
        "https://ex.am/a b",
        "https://ex.am/\u202egpj.exe",
        "https://ex.am/" + "x" * 2048,
        "ex.am",
    ],
)
def test_only_a_plain_web_address_is_kept(url: str) -> None:
    dropped: Counter[str] = Counter()
    assert decoded_post(topic_object(url=url), dropped=dropped).url == ""
    assert dropped == {"url": 1}


@pytest.mark.parametrize("url", ["https://ex.am/1", "HTTP://ex.am:8080/ü?a=[1]#x", "https://пример.example/"])
def test_web_addresses_are_kept_as_they_are(url: str) -> None:
    assert decoded_post(topic_object(url=url)).url == url


def test_what_is_left_out_is_counted_by_name() -> None:
    dropped: Counter[str] = Counter()
    given = topic_object(
        lang="not a tag", text="x " * MAX_TEXT, mood="happy", author={"id": "a", "age": 7}, consent={"train": True}
    )
    long = decoded_post(given, dropped=dropped)
    assert (len(long.text), long.lang) == (MAX_TEXT - 1, "")
    assert dropped == {"lang": 1, "text": 1, "mood": 1, "author.age": 1, "consent.train": 1}


def test_nothing_is_counted_for_what_is_refused() -> None:
    dropped: Counter[str] = Counter()
    decoded(topic_object(mood="happy", created_at="never"), dropped=dropped)
    assert not dropped


def test_a_byte_order_mark_is_no_fault() -> None:
    assert isinstance(decoded(b"\xef\xbb\xbf" + json.dumps(topic_object()).encode()), Post)


KEY = st.one_of(st.none(), st.binary(), st.binary().map(lambda rest: b"account:" + rest), st.just(b"a:1"))


@given(KEY, st.one_of(st.none(), st.binary()), st.binary(), st.integers(-1, 2**62))
def test_no_bytes_make_decode_raise(key: bytes | None, value: bytes | None, header: bytes, timestamp_ms: int) -> None:
    record = decode(key, value, (("version", header),), timestamp_ms=timestamp_ms, received_ms=RECEIVED_MS)
    assert isinstance(record, Post | Removal | AccountChange | Malformed)
    assert not isinstance(record, Removal) or abs(record.version_us) < 2**63


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.sampled_from([CREATED, ID, "a:1"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = [*json.loads(encode(Post("a:1", "a", 0, "", 0, 0, Author("")))[1] or b""), "deleted", "account", "state"]


@given(st.dictionaries(st.sampled_from(FIELDS), JSON), st.sampled_from([None, b"account:a:b", ID.encode()]))
def test_no_object_makes_decode_raise_and_every_post_can_be_stored(given: dict[str, Any], key: bytes | None) -> None:
    record = decoded(topic_object(**given), key=key)
    if isinstance(record, Post):
        encode(record)[1].decode()  # type: ignore[union-attr]  # no surrogates left
        assert all(abs(number) < 2**63 for number in (record.version_us, record.created_ms, record.sort_ms))
        assert "\x00" not in record.text + record.id + record.author.name
