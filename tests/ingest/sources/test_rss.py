"""Bytes of feeds -> posts: ids, texts, dates, versions, and feeds as they are found in the wild."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.payload import Refused
from ingest.post import Post, account_of
from ingest.record import decode, encode
from ingest.sources.rss import MAX_ENTRIES, MAX_SEEN, Reading, Sighting, read_feed
from ingest.sources.rss_state import FeedState, dump, load
from tests.ingest.sources.feeds import NOW_MS, atom, entry, item, rss

URL = "https://Feeds.Ex.org/news.xml"
TEN_MS = NOW_MS - 300_000


def read(body, seen=None, now_ms=NOW_MS, url=URL, **fields):
    return read_feed(body, url, seen or {}, now_ms, **fields)


def only(body, **fields):
    (post,) = read(body, **fields).posts
    return post


def texts(reading):
    return [post.text for post in reading.posts]


# Reading


def test_an_rss_item_is_a_post():
    body = rss(item("Quake & aftershock", "<p>5.1 felt in <b>X</b></p>", guid="urn:x:1", link="https://ex.org/1"))
    post = only(body)
    assert post.id == "rss:feeds.ex.org:urn:x:1"
    assert post.text == "Quake & aftershock\n5.1 felt in X"
    assert (post.created_ms, post.version_us, post.received_ms) == (TEN_MS, TEN_MS * 1000, NOW_MS)
    assert (post.source, post.url, post.author.name, post.edited_ms) == ("rss", "https://ex.org/1", "News", None)
    assert post.account == account_of("rss", post.author.id)
    assert (post.likes, post.reposts, post.replies, post.views) == (0, 0, 0, None)


def test_an_atom_entry_is_a_post():
    post = only(atom(entry(1, "<p>t</p>"), more=' xml:lang="de"'))
    assert (post.id, post.text, post.lang) == ("rss:feeds.ex.org:tag:ex.org,2026:1", "Entry 1\nt", "de")
    assert (post.created_ms, post.edited_ms, post.version_us) == (TEN_MS, NOW_MS, NOW_MS * 1000)


def test_markup_becomes_text_and_plain_text_is_left_alone():
    """T29"""
    html = '<p>One<br>two</p><script>x()</script><p>A <a href="https://ex.org/long">ex.org/lo…</a></p>'
    assert only(rss(item("T", html, guid="g"))).text == "T\nOne\ntwo\n\nA https://ex.org/long"
    body = atom(entry(1, "x")).replace(b'<title type="html">Entry 1', b'<title type="text">1 &lt; 2 &amp;amp; 3')
    assert only(body).text == "1 < 2 &amp; 3\nx"


def test_the_whole_content_is_taken_before_its_summary():
    more = '<content:encoded xmlns:content="http://purl.org/rss/1.0/modules/content/">&lt;p&gt;Whole&lt;/p&gt;</content:encoded>'
    assert only(rss(item("T", "Summary", guid="g", more=more))).text == "T\nWhole"
    xhtml = '<content type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml"><p>X <i>y</i></p></div></content>'
    assert only(atom(entry(1, "").replace('<content type="html"></content>', xhtml))).text == "Entry 1\nX y"


def test_a_title_that_repeats_the_text_is_left_out():
    assert (
        only(rss(item("A long post that goes…", "A long post that goes on", guid="g"))).text
        == "A long post that goes on"
    )
    assert only(rss(item("Only a title", guid="g"))).text == "Only a title"
    assert only(rss(item("", "No title", guid="g"))).text == "No title"


def test_the_oldest_comes_first():
    assert texts(read(rss(item("new", guid="2"), item("old", guid="1")))) == ["old", "new"]


def test_an_entry_without_words_is_skipped():
    reading = read(rss(item("", "<img src='x'>", guid="1"), item("a", guid="2")))
    assert texts(reading) == ["a"] and reading.skipped == {"empty": 1}


def test_relative_links_are_resolved_and_bad_ones_left_out():
    assert only(rss(item("a", link="/1", guid="g")), at="https://cdn.ex.org/feed").url == "https://cdn.ex.org/1"
    for link in ("javascript:alert(1)", "http://[bad", "mailto:a@b"):
        assert only(rss(item("a", link=link, guid="g"))).url == ""


def test_the_language_is_the_entrys_or_the_feeds():
    assert only(rss(item("a", guid="g"), more="<language>en_US</language>")).lang == "en-US"
    assert only(rss(item("a", guid="g"), more="<language>!!</language>")).lang == ""
    assert only(atom(entry(1, "x").replace("<entry>", '<entry xml:lang="fr">'), more=' xml:lang="de"')).lang == "fr"


def test_a_feed_asks_for_patience_in_minutes():
    assert read(rss(more="<ttl>90</ttl>")).ttl_s == 5400
    assert read(rss(more="<ttl>9999999</ttl>")).ttl_s == 86_400
    assert read(rss(more="<ttl>soon</ttl>")).ttl_s is None


# Names (T31)


def test_ids_are_guid_then_link_then_a_hash():
    by_link = only(rss(item("a", link="https://EX.org/1?utm_source=x&b=2#frag")))
    assert by_link.id == "rss:feeds.ex.org:https://ex.org/1?b=2"
    by_hash = only(rss(item("Only words")))
    assert by_hash.id.startswith("rss:feeds.ex.org/") and by_hash.id == only(rss(item("Only words", "more"))).id
    assert only(rss(item("a", guid="1"))).id != only(rss(item("a", guid="1")), url=URL + "?other").id
    assert only(rss(item("a", guid="urn:x"))).id == only(rss(item("a", guid="urn:x")), url=URL + "?other").id


@pytest.mark.parametrize("guid", ["x" * 3000, "a\u0085b", "https://ex.org/" + "y" * 2000])
def test_a_guid_that_cannot_be_an_id_is_hashed(guid):
    post = only(rss(item("a", guid=guid)))
    assert len(post.id) < 100 and post.id == only(rss(item("b", guid=guid))).id


def test_a_feed_without_guids_does_not_repeat_its_entries():
    """T31: one point per canonical link."""
    first = read(rss(item("a", link="https://ex.org/1?utm_campaign=may"), item("b", link="https://ex.org/2")))
    again = read(
        rss(item("a", link="https://ex.org/1?utm_campaign=june"), item("b", link="https://ex.org/2")), first.seen
    )
    assert len(first.posts) == 2
    assert again.posts == () and again.skipped == {"unchanged": 2}
    twice = read(rss(item("a", link="https://ex.org/1"), item("a", link="https://ex.org/1#top")))
    assert len(twice.posts) == 1


def test_a_feed_that_numbers_its_entries_anew_does_not_repeat_them():
    """T31: feedbin/support#287"""
    first = read(rss(item("a", "x", link="https://ex.org/1", guid="100")))
    again = read(rss(item("a", "x", link="https://ex.org/1", guid="200")), first.seen)
    assert again.posts == () and again.skipped == {"unchanged": 1}
    assert read(rss(item("a", "x", link="https://ex.org/1", guid="200")), again.seen).posts == ()
    days = [rss(item("Good morning", more=f'<guid isPermaLink="false">{day}</guid>')) for day in (1, 2)]
    assert texts(read(days[1], read(days[0]).seen)) == ["Good morning"]


# Versions (T31)


def test_a_date_that_moves_without_the_text_is_no_write():
    """T31"""
    first = read(atom(entry(1, "same")))
    for minute in range(6, 10):
        again = read(atom(entry(1, "same", updated=f"2026-07-04T10:{minute:02d}:00Z")), first.seen, NOW_MS + minute)
        assert again.posts == () and again.skipped == {"unchanged": 1}
        first = again


def test_a_changed_text_is_a_newer_version_even_without_a_newer_date():
    reading = read(rss(item("a", "one", guid="g")))
    versions = [reading.posts[0].version_us]
    for text in ("two", "three", "four"):
        reading = read(rss(item("a", text, guid="g")), reading.seen)
        assert texts(reading) == [f"a\n{text}"]
        versions.append(reading.posts[0].version_us)
    assert versions == sorted(set(versions))


def test_an_older_state_of_an_entry_is_stale():
    """T5: a cache that answers with what was."""
    new = read(atom(entry(1, "new", updated="2026-07-04T10:04:00Z")))
    old = read(atom(entry(1, "old", updated="2026-07-04T10:02:00Z")), new.seen)
    assert old.posts == () and old.skipped == {"stale": 1}
    assert read(atom(entry(1, "new", updated="2026-07-04T10:04:00Z")), old.seen).posts == ()


def test_a_time_in_the_future_orders_no_version():
    first = read(atom(entry(1, "one", updated="2099-01-01T00:00:00Z", published="")))
    assert first.posts[0].version_us == TEN_MS * 1000 + 300_000_000 and first.posts[0].clock == "future"
    assert texts(read(atom(entry(1, "two", updated="2026-07-04T10:06:00Z", published="")), first.seen)) == [
        "Entry 1\ntwo"
    ]


def test_a_publication_in_the_future_orders_no_version():
    first = read(rss(item("a", "one", guid="g", date="Sat, 04 Jul 2099 10:00:00 GMT")))
    assert first.posts[0].version_us == NOW_MS * 1000 and first.posts[0].clock == "future"
    assert first.posts[0].sort_ms == NOW_MS


def test_without_a_readable_date_an_entry_is_from_when_it_was_first_seen():
    """T21"""
    post = only(rss(item("a", guid="g", date="sometime")))
    assert (post.created_ms, post.version_us, post.clock) == (NOW_MS, NOW_MS * 1000, "")
    assert only(rss(item("a", guid="g", date="Sat, 04 Jul 2020 10:00:00 GMT"))).clock == "backdated"


def test_what_falls_out_of_the_feed_is_no_deletion_and_is_not_written_again():
    first = read(rss(item("a", guid="1"), item("b", guid="2")))
    without = read(rss(item("b", guid="2")), first.seen)
    back = read(rss(item("a", guid="1"), item("b", guid="2")), without.seen)
    assert without.posts == () and back.posts == ()


def test_memory_is_bounded_and_still_holds_all_that_the_feed_has():
    many = [item(f"t{n}", guid=str(n)) for n in range(MAX_ENTRIES + 300)]
    first = read(rss(*many))
    assert len(first.posts) == MAX_ENTRIES and read(rss(*many), first.seen).posts == ()
    other = read(rss(*(item(f"u{n}", guid=f"u{n}") for n in range(10))), first.seen)
    assert len(other.seen) == MAX_SEEN + 10


# As they are found


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (rss(item("Café ☕", guid="g")), "text/xml; charset=iso-8859-1"),
        (rss(item("Café ☕", guid="g")), "application/rss+xml; charset=koi8-r"),
        (rss(item("Café ☕", guid="g")).replace(b'"1.0"?>', b'"1.0" encoding="us-ascii"?>'), "text/xml"),
        (rss(item("Café ☕", guid="g")).replace(b'"1.0"?>', b'"1.0" encoding="nonsense"?>'), ""),
        (b"\xef\xbb\xbf" + rss(item("Café ☕", guid="g")), "application/rss+xml"),
        (rss(item("Café ☕", guid="g")).decode().encode("utf-16"), "application/xml"),
        (b"\n \n" + rss(item("Café ☕", guid="g")), "text/html"),
    ],
)
def test_a_wrong_encoding_is_found_out(body, content_type):
    assert only(body, content_type=content_type).text == "Café ☕"


def test_bytes_that_are_not_what_they_say_are_read_as_what_most_are():
    body = rss(item("Café", guid="g")).decode().encode("cp1252").replace(b'"1.0"?>', b'"1.0" encoding="utf-8"?>')
    assert only(body).text == "Café"


def test_bad_xml_is_not_fatal():
    whole = rss(item("a & b", guid="1"), item("c", guid="2"))
    assert texts(read(whole.replace(b"&amp;", b"&"))) == ["c", "a & b"]
    assert texts(read(whole[: whole.index(b"<guid>2")])) == ["c", "a & b"]
    assert texts(read(whole.replace(b"<title>c", b"<title>c&nbsp;&#xD800;&#99999999999;\x01"))) == [
        "c\xa0\ufffd\ufffd\ufffd",
        "a & b",
    ]


@pytest.mark.parametrize(
    "body",
    [b"", b"<html><body>Not here</body></html>", b'{"items": []}', b"/etc/passwd", b"\x00\x01", gzip.compress(rss())],
)
def test_what_is_no_feed_is_refused(body):
    with pytest.raises(Refused, match="feed"):
        read(body)


def test_a_feed_without_entries_is_a_feed():
    assert read(rss()) == Reading()
    assert read(atom()).posts == ()


def test_entities_cannot_grow_and_files_are_not_read():
    laughs = "".join(
        f'<!ENTITY {name} "{f"&{before};" * 10}">' for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    bomb = rss(item("MARK", guid="g")).replace(b"MARK", b"&i;")
    for doctype in (
        f'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">{laughs}]>',
        '<!DOCTYPE x [<!ENTITY i SYSTEM "file:///etc/passwd">]>',
    ):
        reading = read(bomb.replace(b"<rss", doctype.encode() + b"<rss"))
        assert all(len(text) < 1000 and "root:" not in text for text in texts(reading))


def test_long_entries_are_cut_where_the_topic_would():
    post = only(rss(item("T", "word " * 500_000, guid="g")))
    assert 19_000 < len(post.text) <= 20_000


def test_the_topic_takes_all_of_it():
    for body in (rss(item("a", "b", guid="g"), item("c", link="https://ex.org/c")), atom(entry(1, "x"))):
        for post in read(body).posts:
            key, value, headers = encode(post)
            assert decode(key, value, headers, timestamp_ms=NOW_MS, received_ms=NOW_MS) == post


WHOLE = [
    rss(item("a & b", "<p>c</p>", guid="urn:g", link="https://ex.org/1"), item("d")),
    atom(entry(1, "x"), entry(2, "y")),
]
TOKENS = [
    b"<",
    b">",
    b"&",
    b"]]>",
    b"<![CDATA[",
    b"</item>",
    b"<entry>",
    b"&#0;",
    b"\xff",
    b"\x00",
    b'<link href="http://[x"/>',
    b"<pubDate>9</pubDate>",
    b'<content type="image/png" mode="base64">@</content>',
    b"<category/>",
    b'<x xml:base="http://["/>',
    b"<!DOCTYPE x [",
    b"<georss:point>a</georss:point>",
    b"<textInput>",
]


@given(
    st.sampled_from(WHOLE),
    st.lists(st.tuples(st.floats(0, 1), st.sampled_from(TOKENS) | st.binary(max_size=4)), max_size=4),
)
def test_no_damage_raises(body, damage):
    for where, what in damage:
        at = int(where * len(body))
        body = body[:at] + what + body[at:]
    try:
        reading = read(body)
    except Refused:
        return
    assert all(isinstance(post, Post) and post.text.encode() and post.id.startswith("rss:") for post in reading.posts)


@given(st.binary(max_size=100))
def test_no_bytes_raise(body):
    try:
        assert read(body).posts is not None
    except Refused as refused:
        assert refused.reason == "feed"


# What is kept


def test_the_state_survives_as_a_cursor():
    reading = read(rss(item("a", guid="1"), item("b", guid="2")))
    states = {
        URL: FeedState('W/"x"', "Sat, 04 Jul 2026 10:00:00 GMT", "https://ex.org/f", reading.seen),
        "b": FeedState(),
    }
    assert load(dump(states)) == states


@pytest.mark.parametrize(
    "cursor",
    [
        None,
        "",
        "rubbish",
        "[]",
        '{"u": 7}',
        '{"u": {"seen": []}}',
        '{"u": {"seen": {"k": ["a"]}, "etag": "", "modified": "", "at": ""}}',
        '{"u": {"seen": {"k": ["a", "b", null]}, "etag": "", "modified": "", "at": ""}}',
        '{"u": {"seen": {}, "etag": 7}}',
    ],
)
def test_a_cursor_that_cannot_be_read_is_none(cursor):
    assert load(cursor) == {}


def test_one_bad_feed_in_a_cursor_does_not_cost_the_others():
    good = {"a": FeedState(seen={"k": Sighting("c", 1, None)})}
    assert load(json.dumps({**json.loads(dump(good)), "b": None})) == good
