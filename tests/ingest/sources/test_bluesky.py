"""Jetstream frames -> records: 152 real events in both wire forms, the case table, and whatever the wire may bring."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.payload import MAX_DEPTH
from ingest.post import AccountChange, Malformed, Post, Removal, account_of
from ingest.record import decode, encode
from ingest.sources.bluesky import read_frame
from ingest.sources.bluesky_frame import Frame
from ingest.versions import version_us
from tests.ingest.sources.bluesky_events import (
    CORPUS,
    DID,
    REV,
    RKEY,
    TIME_US,
    account,
    commit,
    frame_of,
    identity,
    in_v2,
    real_events,
    shared,
    vectors,
)

NOW_MS = TIME_US // 1000 + 250
POST_ID = f"bluesky:at://{DID}/app.bsky.feed.post/{RKEY}"
OTHER = "at://did:plc:bbbb/app.bsky.feed.post/3mptbyoeyc22q"


def read(event, languages=()):
    return read_frame(frame_of(event), NOW_MS, languages)


def post_of(record, **fields):
    frame = read(commit(record, **fields))
    assert [type(found) for found in frame.records] == [Post], frame.records
    return frame.records[0]


def text_of(text, *facets, **record):
    return post_of({"text": text, "facets": list(facets), **record}).text


def link(start, end, uri, **more):
    feature = {"$type": "app.bsky.richtext.facet#link", "uri": uri}
    return {"index": {"byteStart": start, "byteEnd": end}, "features": [feature], **more}


# The real events


def test_all_real_events_are_read():
    frames = [read(event) for event in real_events()]
    found = Counter(frame.skipped or type(frame.records[0]).__name__ for frame in frames)
    assert found == {
        "like": 105, "Post": 32, "follow": 9, "other_collection": 1, "block": 1, "status": 1,
        "Removal": 1, "identity": 1, "AccountChange": 1,
    }  # fmt: skip
    assert all(len(frame.records) <= 1 for frame in frames)
    assert len({frame.key for frame in frames}) == 152


def test_real_posts_carry_what_their_records_say():
    for event in real_events():
        if event["kind"] != "commit" or event["commit"]["operation"] != "create":
            continue
        body = event["commit"]
        record = body["record"]
        (post,) = read(event).records or (None,)
        if body["collection"] == "app.bsky.feed.post":
            assert post.id == f"bluesky:at://{event['did']}/app.bsky.feed.post/{body['rkey']}"
            assert post.version_us == version_us(body["rev"])
            assert abs(post.version_us - event["time_us"]) < 5_000_000
            assert post.author.id == event["did"] and post.account == account_of("bluesky", event["did"])
            assert post.url == f"https://bsky.app/profile/{event['did']}/post/{body['rkey']}"
            assert post.lang == (record.get("langs") or [""])[0]
            assert post.received_ms == NOW_MS and abs(post.created_ms - NOW_MS) < 100_000
            reply = record.get("reply")
            assert post.reply_to == (f"bluesky:{reply['parent']['uri']}" if reply else None)
            assert post.conversation == (f"bluesky:{reply['root']['uri']}" if reply else None)
            words = [word for word in record["text"].split() if "..." not in word]
            assert all(word in post.text for word in words)
            assert (post.likes, post.reposts, post.replies, post.views) == (0, 0, 0, None)
        elif body["collection"] == "app.bsky.feed.repost":
            assert (post.text, post.repost_of) == ("", f"bluesky:{record['subject']['uri']}")


def test_a_real_link_that_is_shown_cut_becomes_whole():
    texts = [record.text for event in real_events() for record in read(event).records if isinstance(record, Post)]
    assert "https://www.youtube.com/watch?v=V5lDo-jw8mA" in texts
    assert not any("V5lD..." in text for text in texts)


def test_the_topic_takes_all_of_it():
    """What these functions give is never refused by the topic, and comes out of it as it went in."""
    for event in [*real_events(), *WHOLE, commit({"text": "x"}, did="did:web:" + "a" * 400)]:
        for record in read(event).records:
            key, value, headers = encode(record)
            back = decode(key, value, headers, timestamp_ms=NOW_MS, received_ms=NOW_MS)
            if isinstance(record, Post) and not record.text and record.repost_of is None:
                assert isinstance(back, Removal) and back.reason == "empty"
            elif isinstance(record, Post) and len(record.author.id) > 200:
                assert replace(back, author=record.author) == record
            else:
                assert back == record


def test_both_wire_forms_say_the_same():
    lexicon = json.loads(shared(CORPUS / "subscribeEvents.json").read_text())["defs"]
    for seq, event in enumerate(real_events(), 1000):
        framed = in_v2(event, seq)
        shape = lexicon[event["kind"]]
        assert set(shape["required"]) <= framed["payload"].keys()
        assert framed["payload"].keys() - {"$type"} <= shape["properties"].keys()
        assert read(framed) == replace(read(event), seq=seq)


# Versions, deletions, accounts


def test_a_deletion_without_record_or_cid_removes_the_post_in_its_place_in_the_order():
    """T18"""
    frame = read(commit(operation="delete", rev="3mptbypuw3t2q"))
    assert frame.records == (Removal(POST_ID, version_us("3mptbypuw3t2q"), if_newer=True),)
    assert frame.records[0].version_us > version_us(REV)


def test_a_deletion_whose_version_cannot_be_read_removes_all_the_same():
    assert read(commit(operation="delete", rev=None)).records == (Removal(POST_ID, TIME_US),)


def test_the_deletion_of_a_repost_is_a_removal_and_that_of_a_like_is_nothing():
    repost = read(commit(operation="delete", collection="app.bsky.feed.repost"))
    assert repost.records[0].post_id == f"bluesky:at://{DID}/app.bsky.feed.repost/{RKEY}"
    assert read(commit(operation="delete", collection="app.bsky.feed.like")).skipped == "like"


def test_an_edit_is_a_newer_version_of_the_same_post():
    first, edited = post_of({"text": "a"}), post_of({"text": "b"}, operation="update", rev="3mptbypzzzz2q")
    assert first.id == edited.id and first.version_us < edited.version_us and edited.text == "b"


@pytest.mark.parametrize(
    ("active", "status", "state"),
    [
        (False, "takendown", "hidden"),
        (False, "suspended", "hidden"),
        (False, "deactivated", "hidden"),
        (False, "deleted", "deleted"),
        (False, None, "hidden"),
        (False, "a new word", "hidden"),
        (False, 7, "hidden"),
        (True, None, "active"),
        (True, "deactivated", "active"),
    ],
)
def test_accounts(active, status, state):
    """T19"""
    reason = status if state != "active" and isinstance(status, str) and " " not in status else ""
    assert read(account(active, status)).records == (AccountChange("bluesky", DID, state, TIME_US, reason),)


@pytest.mark.parametrize("status", ["desynchronized", "throttled"])
def test_what_the_network_does_to_an_account_by_itself_hides_nothing(status):
    frame = read(account(False, status))
    assert frame.records == () and frame.skipped == f"account_{status}"


def test_the_same_event_has_the_same_key_and_two_events_never():
    events = [account(False, "deactivated", seq=1), account(True, seq=2), identity(seq=2), commit({"text": "a"})]
    events += [
        commit(operation="delete", rev="3mptbypuw3t2q"),
        commit({"text": "a"}, rkey="b"),
        commit({"text": "a"}, did="did:plc:b"),
    ]
    keys = [read(event).key for event in events]
    assert len(set(keys)) == len(events) and [read(event | {"time_us": 5}).key for event in events] == keys
    timeless = {**account(True), "time_us": None, "account": {"active": True}}
    assert read(timeless).key == "" and read(timeless).records
    assert read({**timeless, "time_us": 5}).key != read({**timeless, "time_us": 6}).key


def test_an_account_event_that_does_not_say_whether_it_is_active_is_malformed():
    event = account(True)
    del event["account"]["active"]
    assert [record.reason for record in read(event).records] == ["account"]


def test_a_label_against_logged_out_readers_takes_the_post_away_whatever_else_is_wrong():
    label = {"labels": {"$type": "com.atproto.label.defs#selfLabels", "values": [{"val": "!no-unauthenticated"}]}}
    assert read(commit({"text": "a", **label})).records == (
        Removal(POST_ID, version_us(REV), "consent", if_newer=True),
    )
    broken = read(commit({"text": 7, "reply": {"parent": {"uri": "x"}}, **label}, rev="x"))
    assert broken.records == (Removal(POST_ID, TIME_US, "consent"),)
    many = {"values": [{"val": f"label{number}"} for number in range(500)] + [{"val": "!no-unauthenticated"}]}
    assert isinstance(read(commit({"text": "a", "labels": many})).records[0], Removal)


def test_a_profile_with_that_label_hides_the_account():
    label = {"labels": {"values": [{"val": "!no-unauthenticated"}]}, "displayName": "Ana"}
    frame = read(commit(label, collection="app.bsky.actor.profile", rkey="self", operation="update"))
    assert frame.records == (AccountChange("bluesky", DID, "hidden", TIME_US, "no-unauthenticated"),)
    assert (frame.news.name, frame.news.opted_out) == ("Ana", True)
    plain = read(commit({"displayName": "Ana"}, collection="app.bsky.actor.profile", rkey="self"))
    assert plain.records == () and plain.news.opted_out is False


def test_other_self_labels_are_kept():
    values = [{"val": "porn"}, {"val": "porn"}, {"val": 7}, "graphic-media", {"val": "x" * 200}, {"val": "nudity"}]
    assert post_of({"text": "a", "labels": {"values": values}}).labels == ("porn", "nudity")
    assert len(post_of({"text": "a", "labels": {"values": [{"val": f"l{n}"} for n in range(300)]}}).labels) == 100


@pytest.mark.parametrize(
    ("handle", "known"),
    [("Ana.Example", "ana.example"), (None, ""), ("handle.invalid", ""), ("not a handle", ""), (7, "")],
)
def test_identity_events_say_a_handle_or_forget_it(handle, known):
    frame = read(identity(handle))
    assert (frame.records, frame.skipped, frame.news.handle) == ((), "identity", known)


# What a post refers to


def test_quotes_in_both_embeds_and_other_records_that_are_no_quotes():
    ref = {"cid": "bafyq", "uri": OTHER}
    plain = {"$type": "app.bsky.embed.record", "record": ref}
    media = {"$type": "app.bsky.embed.images", "images": [{"alt": "A cat", "image": {}}]}
    wrapped = {"$type": "app.bsky.embed.recordWithMedia", "record": {"record": ref}, "media": media}
    feed = {"$type": "app.bsky.embed.record", "record": {"uri": "at://did:plc:b/app.bsky.feed.generator/x", "cid": "b"}}
    assert post_of({"text": "a", "embed": plain}).quote_of == f"bluesky:{OTHER}"
    both = post_of({"text": "a", "embed": wrapped})
    assert (both.quote_of, both.text) == (f"bluesky:{OTHER}", "a\n[image: A cat]")
    assert post_of({"text": "a", "embed": feed}).quote_of is None


def test_a_reply_names_its_parent_and_its_conversation():
    root = "at://did:plc:cccc/app.bsky.feed.post/3root"
    post = post_of({"text": "a", "reply": {"root": {"uri": root}, "parent": {"uri": OTHER}}})
    assert (post.reply_to, post.conversation) == (f"bluesky:{OTHER}", f"bluesky:{root}")
    assert post_of({"text": "a"}).conversation is None


def test_a_repost_is_a_post_without_words():
    frame = read(commit({"subject": {"uri": OTHER, "cid": "b"}}, collection="app.bsky.feed.repost"))
    (repost,) = frame.records
    assert (repost.text, repost.repost_of, repost.url) == ("", f"bluesky:{OTHER}", "")
    assert repost.id == f"bluesky:at://{DID}/app.bsky.feed.repost/{RKEY}"
    feed = {"subject": {"uri": "at://did:plc:b/app.bsky.feed.generator/x"}}
    assert read(commit(feed, collection="app.bsky.feed.repost")).skipped == "repost_of_other"


def test_a_postgate_takes_quotes_of_its_own_post_only_out_of_others():
    gate = {"post": "at://did:plc:victim/app.bsky.feed.post/3x", "detachedEmbeddingUris": [OTHER]}
    frame = read(commit(gate, collection="app.bsky.feed.postgate"))
    assert (frame.detached.quoted, frame.detached.quoting) == (POST_ID, (f"bluesky:{OTHER}",))
    assert (frame.records, frame.skipped) == ((), "postgate")
    assert read(commit({"post": OTHER}, collection="app.bsky.feed.postgate")).detached is None


@pytest.mark.parametrize(
    "record",
    [
        {"text": "a", "reply": {"parent": {"uri": "http://x"}}},
        {"text": "a", "reply": {"root": {"uri": 7}}},
        {"text": "a", "embed": {"record": {"uri": "at://did:plc:b/app.bsky.feed.post/.."}}},
        {"text": "a", "embed": {"record": {"uri": "at://did:plc:b"}}},
    ],
)
def test_a_reference_that_is_none_makes_the_post_malformed(record):
    assert [record.reason for record in read(commit(record)).records] in (["reply"], ["quote"])


def test_names_by_the_protocols_vectors():
    """Valid ones are accepted in every place, invalid ones are refused as Malformed."""
    for place, kind, event in (
        ("did", "did", lambda text: commit({"text": "a"}, did=text)),
        ("rkey", "recordkey", lambda text: commit({"text": "a"}, rkey=text)),
        ("rev", "tid", lambda text: commit({"text": "a"}, rev=text)),
        ("collection", "nsid", lambda text: commit({"text": "a"}, collection=text)),
    ):
        valid, invalid = vectors(kind)
        for text in valid:
            records = read(event(text)).records
            assert not any(isinstance(record, Malformed) for record in records), (place, text)
        for text in invalid:
            (malformed,) = read(event(text)).records
            assert isinstance(malformed, Malformed) and malformed.reason == place, (place, text)
    valid, invalid = vectors("aturi")
    for text in invalid:
        (malformed,) = read(commit({"text": "a", "embed": {"record": {"uri": text}}})).records
        assert malformed.reason == "quote", text
    whole = [text for text in valid if text.count("/") == 4 and "app.bsky" not in text]
    assert whole and all(read(commit({"text": "a", "reply": {"parent": {"uri": text}}})).records for text in whole)


# Text


def test_links_are_cut_by_utf8_bytes():
    """T20: an emoji of four bytes before the link."""
    text = "Olá 🌍 see example.org/a/lo... now"
    start = text.encode().index(b"example")
    end = start + len("example.org/a/lo...")
    assert text_of(text, link(start, end, "https://example.org/a/long")) == "Olá 🌍 see https://example.org/a/long now"


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (5, 6),
        (6, 9),
        (0, 6),
        (4, 7),
        (-1, 4),
        (4, 4),
        (9, 5),
        (0, 10_000),
        (True, 8),
        (4.0, 8),
        ("4", 8),
        (None, None),
        (2**70, 2**71),
    ],
)
def test_ranges_that_split_a_code_point_or_leave_the_text_are_dropped_and_the_text_is_kept(start, end):
    """T20"""
    assert text_of("abcd🌍x.org...", link(start, end, "https://x.org/a")) == "abcd🌍x.org..."


def test_of_overlapping_ranges_the_first_counts():
    """T20"""
    text = "a.org/x b.org/y"
    first, second = link(0, 7, "https://a.org/xyz"), link(3, 15, "https://g/x b.org/y")
    assert text_of(text, second, first) == "https://a.org/xyz b.org/y"
    assert text_of(text, link(8, 15, "https://b.org/yes"), first) == "https://a.org/xyz https://b.org/yes"
    joined = "a.org/x.b.org/y"
    assert text_of(joined, first, link(6, 15, "https://x.b.org/yes")) == "https://a.org/xyz.b.org/y"


def test_an_offset_is_a_whole_number():
    for start in (True, 1.0, "1"):
        assert text_of("ab.org...", link(start, 9, "https://b.org/c")) == "ab.org..."
    assert text_of("ab.org...", link(1, 9, "https://b.org/c")) == "a https://b.org/c"


def test_words_that_carry_a_link_stay_words_and_foreign_addresses_are_not_believed():
    assert text_of("read this", link(0, 9, "https://example.org")) == "read this"
    assert text_of("example", link(0, 7, "https://example.org")) == "example"
    assert text_of("bank.com", link(0, 8, "https://evil.example/bank.com")) == "bank.com"
    for uri in ("javascript:x.y(1)", "javascript:x.y\n(1)", "javascript:x.y" + "z" * 3000, 7, None):
        assert text_of("javascript:x.y...", link(0, 17, uri)) == "javascript:x.y..."


def test_a_whole_link_does_not_stick_to_the_next_word():
    text = "見てa.org/…です"
    start = len("見て".encode())
    end = start + len("a.org/…".encode())
    assert text_of(text, link(start, end, "https://a.org/b")) == "見て https://a.org/b です"


def test_the_entities_of_old_posts_count_utf16():
    record = {
        "text": "🌍 a.org/lo...",
        "entities": [{"index": {"start": 3, "end": 14}, "type": "link", "value": "https://a.org/long"}],
    }
    assert post_of(record).text == "🌍 https://a.org/long"
    record["entities"][0]["index"] = {"start": 1, "end": 14}  # half of the emoji
    assert post_of(record).text == record["text"]


def test_alt_texts_and_outer_tags_follow_the_text():
    images = {"$type": "app.bsky.embed.images", "images": [{"alt": "A map\nof  floods"}, {"alt": ""}, {}, {"alt": "2"}]}
    assert (
        text_of("x", embed=images, tags=["flood", "#rain", 3, " "])
        == "x\n[image: A map of floods]\n[image: 2]\n#flood #rain"
    )
    assert text_of("", embed={"$type": "app.bsky.embed.video", "alt": "A storm"}) == "[video: A storm]"
    for name in ("items", "media"):
        assert text_of("x", embed={"$type": "app.bsky.embed.gallery", name: [{"alt": "g"}]}) == "x\n[image: g]"


def test_an_empty_text_is_a_post_that_takes_its_older_text_away():
    assert post_of({"text": ""}).text == ""


def test_lone_surrogates_and_nul_become_replacement_characters_and_emoji_stay():
    r"""T24: as `\ud800` in the JSON."""
    raw = frame_of(commit({"text": "MARK 🌍"})).replace(b"MARK", rb"a\ud800b\u0000c \ud83c\udf0d")
    (post,) = read_frame(raw, NOW_MS).records
    assert post.text == "a\ufffdb\ufffdc 🌍 🌍"


@pytest.mark.parametrize(
    ("langs", "lang"),
    [
        (["pt", "en-US"], "pt"),
        (["zh-Hant"], "zh-Hant"),
        (["x-fake", "en"], "en"),
        (["123", "", None, 7, "ja"], "ja"),
        (["en-GB-boont-r-extended-sequence-x-private"], "en"),
        ([], ""),
        ("en", ""),
        (None, ""),
    ],
)
def test_the_first_readable_language_counts(langs, lang):
    assert post_of({"text": "a", "langs": langs}).lang == lang


def test_the_language_filter_looks_at_all_that_a_post_states():
    assert read(commit({"text": "a", "langs": ["pt", "en-US"]}), {"en"}).records
    assert read(commit({"text": "a"}), {"en"}).records  # states none: the reader finds out
    skipped = read(commit({"text": "a", "langs": ["pt"]}), {"en"})
    assert (skipped.records, skipped.skipped) == ((), "language")
    edited = read(commit({"text": "a", "langs": ["pt"]}, operation="update"), {"en"})
    assert edited.records == (Removal(POST_ID, version_us(REV), "empty", if_newer=True),)


# Time


@pytest.mark.parametrize(
    ("created", "clock"),
    [
        ("2019-01-01T00:00:00.000Z", "backdated"),
        ("2014-06-01T12:00:00+02:00", "backdated"),
        ("2026-07-08T14:38:06Z", "future"),
        ("2026-07-04T14:38:02+00:00", ""),
        ("2026-07-04T14:38:02", ""),
    ],
)
def test_spoofed_times_are_flagged_and_never_newer_than_the_arrival(created, clock):
    """T21"""
    post = post_of({"text": "a", "createdAt": created})
    assert post.clock == clock
    assert post.sort_ms == min(post.created_ms, NOW_MS)


@pytest.mark.parametrize(
    "created",
    [
        None,
        7,
        "",
        "yesterday",
        "2026-07-04",
        "2026-13-04T00:00:00Z",
        "0001-01-01T00:00:00Z",
        "1969-12-31T23:59:59Z",
        "9999-12-31T23:59:59Z",
    ],
)
def test_a_post_without_a_readable_time_was_created_when_the_server_saw_it(created):
    assert post_of({"text": "a", "createdAt": created}).created_ms == TIME_US // 1000


# What is wrong


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (commit(), "record"),
        (commit({"text": None}), "text"),
        (commit({}, collection="app.bsky.feed.repost"), "subject"),
        (commit({"text": "a"}, operation="rename"), "operation"),
        (commit({"text": "a"}, did="did:plc:" + "a" * 1100), "id"),
        ({"did": DID, "time_us": TIME_US}, "kind"),
        ({"did": DID, "kind": "commit", "commit": 7}, "collection"),
        ({"$type": "message", "payload": 7}, "kind"),
    ],
)
def test_what_is_no_event_is_malformed_by_a_short_reason(event, reason):
    assert [record.reason for record in read(event).records] == [reason]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "null"),
        (b'{"did": "did', "json"),
        (b'{"a": NaN}', "json"),
        (b"[]", "json"),
        (b"\xff\xfe{}", "utf8"),
        ("\ud800", "utf8"),
        (b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1), "too_deep"),
        (b'{"a":"' + b"x" * 1_000_001 + b'"}', "too_large"),
    ],
)
def test_limits_come_before_decoding(raw, reason):
    """T32, T24"""
    frame = read_frame(raw, NOW_MS)
    assert frame == Frame("", key=frame.key, records=frame.records) and frame.key
    assert [record.reason for record in frame.records] == [reason]


def test_error_and_information_frames_carry_their_names_only():
    """T32"""
    error = read({"$type": "error", "error": "ConsumerTooSlow", "message": "reading below the floor"})
    assert (error.kind, error.notice, error.records) == ("error", "ConsumerTooSlow", ())
    assert read({"error": "some words that nobody chose"}) == Frame("error")
    payload = {"$type": "network.bsky.jetstream.subscribeEvents#info", "name": "OutdatedCursor", "message": "..."}
    assert read({"$type": "message", "payload": payload}) == Frame("info", notice="OutdatedCursor")


def test_events_of_other_kinds_are_skipped_and_counted():
    sync = {
        "$type": "network.bsky.jetstream.subscribeEvents#sync",
        "seq": 5,
        "did": DID,
        "time": "2026-07-04T14:38:08Z",
    }
    assert read({"$type": "message", "payload": {**sync, "sync": {"rev": REV}}}).skipped == "sync"
    assert read({"did": DID, "time_us": 1, "kind": "labels", "labels": {}}).skipped == "other_kind"
    assert read(commit({"a": 1}, collection="com.example.anything")).skipped == "other_collection"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
WHOLE = [
    commit(
        {
            "text": "a 🌍 b.org/c...",
            "langs": ["en"],
            "tags": ["t"],
            "facets": [link(7, 15, "https://b.org/cde")],
            "entities": [{"index": {"start": 1, "end": 3}, "type": "link", "value": "https://a.org"}],
            "reply": {"root": {"uri": OTHER, "cid": "b"}, "parent": {"uri": OTHER, "cid": "b"}},
            "labels": {"values": [{"val": "porn"}]},
            "embed": {"record": {"record": {"uri": OTHER}}, "media": {"images": [{"alt": "x"}]}},
        }
    ),
    commit({"subject": {"uri": OTHER}}, collection="app.bsky.feed.repost"),
    commit({"displayName": "A", "labels": {"values": [{"val": "x"}]}}, collection="app.bsky.actor.profile"),
    commit({"detachedEmbeddingUris": [OTHER]}, collection="app.bsky.feed.postgate"),
    account(False, "takendown"),
    identity("ana.example"),
]


def paths(value, path=()):
    yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in entries:
        yield from paths(inner, (*path, name))


def changed(value, path, new):
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


def is_whole(frame):
    assert isinstance(frame, Frame)
    for record in frame.records:
        if isinstance(record, Post):
            record.text.encode()
            assert record.id.startswith("bluesky:at://did:")
        if isinstance(record, Malformed):
            assert len(record.reason) <= 40
    return True


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_no_bytes_can_raise(raw):
    assert is_whole(read_frame(raw, NOW_MS))


@given(JSON)
def test_no_json_can_raise(value):
    assert is_whole(read_frame(json.dumps(value), NOW_MS))


@given(st.data())
def test_no_change_of_an_event_can_raise(data):
    """Any part of any event replaced by anything, in both wire forms."""
    event = data.draw(st.sampled_from(WHOLE))
    if data.draw(st.booleans()):
        event = in_v2(event, 7)
    path = data.draw(st.sampled_from(list(paths(event))))
    event = changed(event, path, data.draw(JSON))
    assert is_whole(read_frame(json.dumps(event), NOW_MS))
