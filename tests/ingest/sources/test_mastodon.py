"""Every kind of Mastodon event, and every kind of rubbish, read by itself (feeds.md 2.2)."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.post import Author, Malformed, Post, Removal, account_of
from ingest.record import decode, encode
from ingest.sources.mastodon import ERROR, Instance, id_order, read_event, read_frame, read_message
from ingest.sources.mastodon_fields import local_id_of
from ingest.versions import time_us
from tests.ingest.sources.mastodon_made import (
    CREATED_US,
    EDITED,
    EDITED_US,
    HOST,
    NOW_MS,
    TEXT,
    account,
    instance,
    local_id,
    post_id,
    read,
    status,
)


def only_post(happening):
    (post,) = happening.records
    assert isinstance(post, Post), post
    return post


def refused(happening):
    (malformed,) = happening.records
    assert isinstance(malformed, Malformed)
    return malformed.reason


def test_a_status_is_a_post() -> None:
    happening = read("update", status(favourites_count=3, reblogs_count=2, replies_count=1))
    assert happening.aliases == ((local_id(), post_id()),)
    assert happening.local_id == local_id()
    assert happening.age_ms == 1000
    assert only_post(happening) == Post(
        id=post_id(),
        source="mastodon",
        version_us=CREATED_US,
        text=TEXT,
        created_ms=CREATED_US // 1000,
        received_ms=NOW_MS,
        author=Author("https://ex.social/users/a", "a@ex.social", "A"),
        lang="en",
        url="https://ex.social/@a/1",
        labels=("#x",),
        likes=3,
        reposts=2,
        replies=1,
        account=account_of("mastodon", "https://ex.social/users/a"),
    )


def test_an_edit_is_a_newer_version_and_comes_to_the_same_twice() -> None:
    edited = status(edited_at=EDITED, content="<p>edited</p>")
    first, second = read("status.update", edited), read("status.update", edited)
    post = only_post(first)
    assert (post.version_us, post.edited_ms, post.text) == (EDITED_US, EDITED_US // 1000, "edited")
    assert first == second


def test_an_update_that_is_no_edit_keeps_the_version() -> None:
    first, liked = only_post(read("update", status())), only_post(read("status.update", status(favourites_count=9)))
    assert liked == replace(first, likes=9)


def test_t18_a_delete_has_only_a_local_id_and_the_alias_finds_the_post() -> None:
    happening = read("delete", local_id(), known=[1])
    assert happening.records == (Removal(post_id(), NOW_MS * 1000),)
    assert happening.local_id == local_id()


def test_t18_a_delete_of_what_never_came_is_counted_and_no_error() -> None:
    happening = read("delete", local_id())
    assert happening.records == ()
    assert happening.skipped == ("delete_of_unknown",)
    assert happening.local_id == local_id()


@pytest.mark.parametrize("payload", [b" 108914354907984601\n", "108914354907984601"])
def test_a_delete_is_text_whatever_surrounds_it(payload: bytes | str) -> None:
    assert read_event("delete", payload, NOW_MS, instance([1])).records == (Removal(post_id(), NOW_MS * 1000),)


@pytest.mark.parametrize(
    "given", [1.34688943662626e18, 108914354907984601, None, "1.34688943662626e+18", "", "a b", "x" * 65]
)
def test_t23_an_id_that_is_no_string_of_an_id_is_refused(given: object) -> None:
    assert refused(read("update", status(id=given))) == "id"
    assert refused(read_event("delete", given, NOW_MS, instance([1]))) == "id"


def test_t23_ids_are_never_numbers_and_still_in_order() -> None:
    beyond = "99999999999999999999999999"
    assert read("update", status(id=beyond)).aliases == ((beyond, post_id()),)
    assert sorted(["10", "9", "108914354907984653", "108914354907984654"], key=id_order) == [
        "9", "10", "108914354907984653", "108914354907984654",
    ]  # fmt: skip
    assert local_id_of("01FBVD42CQ3ZEEVMW180SBX03B") == "01FBVD42CQ3ZEEVMW180SBX03B"  # GoToSocial
    assert local_id_of("AQLlv04kLNyDDtc0lU") == "AQLlv04kLNyDDtc0lU"  # Akkoma


class TestBoosts:
    boost = status(
        2, reblog=status(1), account=account("bo"), content="ignored", created_at="2026-07-04T10:00:00.500Z"
    )  # fmt: skip

    def test_the_original_is_a_post_of_its_own_and_the_boost_has_no_text(self) -> None:
        original, boost = read("update", self.boost).records
        assert isinstance(original, Post) and isinstance(boost, Post)
        assert original == only_post(read("update", status(1)))
        assert (boost.id, boost.text, boost.repost_of) == (post_id(2), "", post_id(1))
        assert boost.author.handle == "bo@ex.social"
        assert boost.version_us == CREATED_US + 500_000

    def test_both_can_be_deleted(self) -> None:
        assert read("update", self.boost).aliases == ((local_id(1), post_id(1)), (local_id(2), post_id(2)))

    def test_a_boost_of_what_may_not_be_found_is_not_taken_in(self) -> None:
        happening = read("update", self.boost | {"reblog": status(1, account=account(indexable=False))})
        assert happening.records == ()
        assert happening.skipped == ("indexable", "boost_of_refused")

    def test_what_somebody_boosts_who_may_not_be_found_is_still_a_post(self) -> None:
        post = only_post(read("update", self.boost | {"account": account("bo", noindex=True)}))
        assert post.id == post_id(1)

    def test_a_boost_of_rubbish_is_refused(self) -> None:
        assert refused(read("update", self.boost | {"reblog": 7})) == "reblog"


class TestQuotes:
    def quoting(self, **quote):
        return status(2, content="<p>look</p>", quote=quote)

    def test_an_accepted_quote_is_two_posts_and_no_text_of_the_other(self) -> None:
        quoted, post = read("update", self.quoting(state="accepted", quoted_status=status(1))).records
        assert isinstance(quoted, Post) and isinstance(post, Post)
        assert quoted.id == post_id(1)
        assert (post.text, post.quote_of) == ("look", post_id(1))

    @pytest.mark.parametrize(
        "state",
        [
            "pending",
            "rejected",
            "revoked",
            "deleted",
            "unauthorized",
            "blocked_account",
            "blocked_domain",
            "muted_account",
        ]
        + ["new_in_5", None, 7],
    )
    def test_any_other_state_quotes_nothing(self, state: object) -> None:
        post = only_post(read("update", self.quoting(state=state, quoted_status=status(1)), known=[1]))
        assert post.id == post_id(2)
        assert post.quote_of is None

    def test_a_revoked_quote_comes_as_the_same_version_without_it(self) -> None:
        before = read("update", self.quoting(state="accepted", quoted_status=status(1))).records[-1]
        after = only_post(read("status.update", self.quoting(state="revoked", quoted_status=None)))
        assert after == replace(before, quote_of=None)

    def test_a_shallow_quote_names_a_local_id(self) -> None:
        shallow = self.quoting(state="accepted", quoted_status_id=local_id(1))
        assert only_post(read("update", shallow, known=[1])).quote_of == post_id(1)
        assert only_post(read("update", shallow)).quote_of is None

    def test_a_quoted_post_that_may_not_be_found_is_not_quoted(self) -> None:
        happening = read("update", self.quoting(state="accepted", quoted_status=status(1, visibility="unlisted")))
        assert only_post(happening).quote_of is None

    def test_a_quoted_post_that_cannot_be_read_leaves_the_quoting_one(self) -> None:
        broken, post = read("update", self.quoting(state="accepted", quoted_status=status(1, created_at="?"))).records
        assert broken == Malformed("created_at", "quote")
        assert isinstance(post, Post) and post.quote_of is None


class TestConsent:
    REFUSED = [
        ("visibility", {"visibility": "unlisted"}),
        ("visibility", {"visibility": "private"}),
        ("visibility", {"visibility": "direct"}),
        ("visibility", {"visibility": None}),
        ("local_only", {"local_only": True}),
        ("indexable", {"account": account(indexable=False)}),
        ("indexable", {"account": account(indexable=None)}),
        ("noindex", {"account": account(noindex=True)}),
        ("limited", {"account": account(limited=True)}),
        ("suspended", {"account": account(suspended=True)}),
    ]

    @pytest.mark.parametrize(("reason", "fields"), REFUSED)
    def test_what_is_new_is_not_taken_in(self, reason: str, fields: dict[str, object]) -> None:
        happening = read("update", status(**fields))
        assert (happening.records, happening.aliases, happening.skipped) == ((), (), (reason,))

    @pytest.mark.parametrize(("reason", "fields"), REFUSED)
    def test_what_is_known_is_taken_away(self, reason: str, fields: dict[str, object]) -> None:
        gone = Removal(post_id(), EDITED_US, "consent", if_newer=True)
        assert read("status.update", status(edited_at=EDITED, **fields)).records == (gone,)
        assert read("update", status(edited_at=EDITED, **fields), known=[1]).records == (gone,)

    def test_no_other_fault_keeps_it_findable(self) -> None:
        broken = status(visibility="private", created_at="yesterday", content=7)
        assert read("status.update", broken).records == (Removal(post_id(), NOW_MS * 1000, "consent"),)

    def test_the_opt_in_can_be_waived_but_not_the_other_wishes(self) -> None:
        silent = account(indexable=False)
        assert only_post(read("update", status(account=silent), indexable_only=False)).id == post_id()
        for flag in ("noindex", "limited", "suspended"):
            happening = read("update", status(account=silent | {flag: True}), indexable_only=False)
            assert happening.skipped == (flag,)

    def test_the_account_and_its_wish_are_told(self) -> None:
        (seen,) = read("update", status(account=account(indexable=False))).accounts
        assert (seen.author_id, seen.refusal) == ("https://ex.social/users/a", "indexable")
        assert read("update", status(visibility="private")).accounts[0].refusal == ""


class TestText:
    @pytest.mark.parametrize(
        ("fields", "text"),
        [
            ({"spoiler_text": "news"}, "CW: news\n\nbody"),
            ({"spoiler_text": "CW: news"}, "CW: news\n\nbody"),
            ({"spoiler_text": "a\nb &amp; :blob:"}, "CW: a b &amp; :blob:\n\nbody"),
            ({"spoiler_text": "news", "content": ""}, "CW: news"),
            ({"content": None}, ""),
            ({"content": "<p>a :blobcat: b</p>"}, "a :blobcat: b"),
            (
                {
                    "media_attachments": [
                        {"type": "image", "description": "a cat\non a mat"},
                        {"type": "gifv", "description": "it jumps"},
                        {"type": "audio", "description": "purring"},
                        {"type": "hologram", "description": "?"},
                        {"type": "image", "description": None},
                        7,
                    ]
                },
                "body\n[image: a cat on a mat]\n[video: it jumps]\n[audio: purring]\n[media: ?]",
            ),
            ({"content": "", "media_attachments": [{"type": "image", "description": "a cat"}]}, "[image: a cat]"),
            ({"poll": {"options": [{"title": "yes"}, {"title": "no"}, {}, None]}}, "body\n[poll: yes | no]"),
            ({"card": {"title": "the site's words"}}, "body"),
        ],
    )
    def test_the_form_of_the_text(self, fields: dict[str, object], text: str) -> None:
        assert only_post(read("update", status(**({"content": "<p>body</p>"} | fields)))).text == text

    def test_t26_text_and_name_keep_their_directions(self) -> None:
        text = "\u202egnp.exe \u2067\u0633\u0644\u0627\u0645\u2069 \u200f."
        made = status(content=f"<p>{text}</p>", account=account(display_name=text))
        post = only_post(read("update", made))
        assert (post.text, post.author.name) == (text, text)

    def test_t24_lone_surrogates_become_replacement_characters_and_emoji_stay(self) -> None:
        payload = json.dumps(status(content="<p>a\ud83d \U0001f600</p>", account=account(display_name="\udc00x")))
        for content in (payload, payload.encode()):
            post = only_post(read("update", content))
            assert (post.text, post.author.name) == ("a\ufffd \U0001f600", "\ufffdx")

    def test_t24_bytes_that_are_no_utf8_are_refused(self) -> None:
        assert refused(read("update", json.dumps(status()).encode().replace(b"Line", b"\xff"))) == "utf8"
        assert refused(read("update", '{"id": "\ud800"}')) == "utf8"

    def test_t29_words_are_not_glued_and_addresses_are_whole(self) -> None:
        assert only_post(read("update", status())).text == TEXT


class TestFields:
    @pytest.mark.parametrize(
        ("acct", "handle"), [("ana", "ana@here.example"), ("ana@ex.social", "ana@ex.social"), ("", ""), (None, "")]
    )
    def test_a_local_account_gets_its_host(self, acct: object, handle: str) -> None:
        assert only_post(read("update", status(account=account(acct=acct)))).author.handle == handle

    def test_an_author_is_known_by_address_page_or_name(self) -> None:
        no_uri = account()
        del no_uri["uri"]
        assert only_post(read("update", status(account=no_uri))).author.id == "https://ex.social/@a"
        assert only_post(read("update", status(account=no_uri | {"url": None}))).author.id == "a@ex.social"
        assert refused(read("update", status(account={"indexable": True}))) == "account"
        assert refused(read("update", status(account=None))) == "account"

    def test_labels(self) -> None:
        made = status(sensitive=True, account=account(bot=True), tags=[{"name": "News"}, {"name": "news"}, {}, 7])
        assert only_post(read("update", made)).labels == ("sensitive", "bot", "#news")

    def test_a_language_may_be_unknown(self) -> None:
        assert only_post(read("update", status(language=None))).lang == ""

    def test_a_reply_is_to_a_local_id(self) -> None:
        reply = status(2, in_reply_to_id=local_id(1))
        assert only_post(read("update", reply, known=[1])).reply_to == post_id(1)
        assert only_post(read("update", reply)).reply_to is None

    @pytest.mark.parametrize(
        ("url", "uri", "shown"),
        [
            ("https://ex.social/@a/1", "https://ex.social/1", "https://ex.social/@a/1"),
            (None, "https://ex.social/1", "https://ex.social/1"),
            ("javascript:alert(1)", "tag:ex.social,2026:1", ""),
            ("http://[broken", "https://ex.social/1", "https://ex.social/1"),
        ],
    )
    def test_the_address_is_one_of_the_web(self, url: object, uri: str, shown: str) -> None:
        post = only_post(read("update", status(url=url, uri=uri)))
        assert (post.url, post.id) == (shown, f"mastodon:{uri}")

    @pytest.mark.parametrize("given", [-1, 2**60, 1.5, True, "7", None, []])
    def test_a_count_that_is_none_is_nought(self, given: object) -> None:
        assert only_post(read("update", status(favourites_count=given))).likes == 0

    @pytest.mark.parametrize("created", ["2019-01-01T00:00:00Z", "2099-01-01T00:00:00Z"])
    def test_an_old_or_future_time_is_kept_and_tells_no_lag(self, created: str) -> None:
        happening = read("update", status(created_at=created))
        assert only_post(happening).created_ms == time_us(created) // 1000
        assert happening.age_ms is None

    def test_an_edit_tells_no_lag(self) -> None:
        assert read("status.update", status()).age_ms is None

    @pytest.mark.parametrize(
        ("name", "given"),
        [("uri", None), ("uri", 7), ("uri", ""), ("uri", "x" * 1024), ("uri", "a\nb"), ("created_at", None)]
        + [("created_at", "2026-02-30T00:00:00Z"), ("created_at", 1783159200), ("edited_at", "soon"), ("content", 7)],
    )
    def test_what_cannot_be_read_is_named(self, name: str, given: object) -> None:
        assert refused(read("update", status(**{name: given}))) == name


class TestEvents:
    @pytest.mark.parametrize("event", ["filters_changed", "announcement", "notification", "announcement.delete", "new"])
    @pytest.mark.parametrize("payload", [b"undefined", b"", None, b"{}", "1"])
    def test_t27_other_events_are_skipped_by_name(self, event: str, payload: object) -> None:
        happening = read_event(event, payload, NOW_MS, instance())
        assert (happening.records, happening.skipped) == ((), (event,))

    def test_a_name_that_is_no_word_is_not_counted_by_it(self) -> None:
        for event in ("secret@mail.example", "X" * 10, "a" * 41, None, 7, ["update"]):
            assert read_event(event, b"{}", NOW_MS, instance()).skipped == ("other_event",)

    @pytest.mark.parametrize(
        ("payload", "reason"),
        [
            (b"undefined", "json"),
            (b"", "null"),
            (b"null", "null"),
            (b"[]", "json"),
            (b'{"id": NaN}', "json"),
            (b'{"id": "1"', "json"),
            (b"[" * 100_000, "too_deep"),
            (b'{"a":' * 100_000, "too_deep"),
            (b'{"a": "' + b"x" * 1_000_001, "too_large"),
            (None, "payload"),
            (7, "payload"),
            (b"{}", "uri"),
        ],
    )
    def test_a_payload_that_is_no_status_is_refused(self, payload: object, reason: str) -> None:
        assert refused(read_event("update", payload, NOW_MS, instance())) == reason


def framed(frame, known=()):
    return read_message(read_frame(frame, NOW_MS), instance(known))


class TestFrames:
    def test_the_payload_is_a_string_of_json(self) -> None:
        frame = json.dumps({"stream": ["public"], "event": "update", "payload": json.dumps(status())})
        assert framed(frame) == read("update", status())
        assert framed(frame.encode()) == read("update", status())

    def test_an_object_is_taken_too(self) -> None:
        assert framed(json.dumps({"event": "update", "payload": status()})) == read("update", status())

    def test_a_delete_is_a_bare_id(self) -> None:
        frame = '{"stream":["public"],"event":"delete","payload":"108914354907984601"}'
        assert framed(frame, known=[1]).records == (Removal(post_id(), NOW_MS * 1000),)

    def test_filters_changed_has_no_payload(self) -> None:
        assert framed('{"stream":["user"],"event":"filters_changed"}').skipped == ("filters_changed",)

    def test_an_error_is_told(self) -> None:
        error = read_frame('{"error":"Unknown stream type","status":400}', NOW_MS)
        assert (error.event, error.payload) == (ERROR, 400)
        assert read_frame('{"error":"?","status":"secret"}', NOW_MS).payload == 0

    def test_an_instance_cannot_send_what_is_ours(self) -> None:
        for name in (ERROR, "CONNECTED", "FILLED", "WHOLE"):
            assert framed(json.dumps({"event": name, "payload": "1"})).skipped == ("other_event",)

    @pytest.mark.parametrize("frame", ["", "{", "[]", "7", b"\xff", "\ud800", '{"event":"update"}', "[" * 10_000])
    def test_rubbish_is_refused(self, frame: bytes | str) -> None:
        refused(framed(frame))


def test_what_is_made_here_passes_the_topic_unchanged() -> None:
    full = status(
        spoiler_text="news",
        edited_at=EDITED,
        favourites_count=3,
        sensitive=True,
        media_attachments=[{"type": "image", "description": "a cat"}],
    )
    private = status(visibility="private")
    made = [read("update", full), read("update", TestBoosts.boost), read("status.update", private)]
    for record in (record for happening in made for record in happening.records):
        key, content, headers = encode(record)
        assert decode(key, content, headers, timestamp_ms=NOW_MS, received_ms=NOW_MS) == record


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


@given(
    st.dictionaries(st.sampled_from(sorted(status())), JSON, max_size=4), st.sampled_from(["update", "status.update"])
)
def test_a_status_with_anything_in_it_never_raises(fields: dict[str, object], event: str) -> None:
    for made in (status(**fields), status(2, reblog=status(**fields)), status(account=account() | fields)):
        happening = read_event(event, json.dumps(made), NOW_MS, instance([1]))
        assert all(isinstance(record, Post | Removal | Malformed) for record in happening.records)


@given(JSON, st.sampled_from(["update", "delete", "other"]))
def test_any_payload_never_raises(payload: object, event: str) -> None:
    read_event(event, payload, NOW_MS, instance())
    read_event(event, json.dumps(payload), NOW_MS, instance())
    framed(json.dumps({"event": event, "payload": payload}))


@given(st.binary(max_size=100) | st.text(max_size=100))
def test_any_frame_never_raises(frame: bytes | str) -> None:
    read_message(read_frame(frame, NOW_MS), Instance(HOST))
