"""Objects of X's API v2 -> records: the real ones, and every trap of feeds.md 2.3."""

import json
from collections import Counter
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.payload import parse
from ingest.post import AccountChange, Malformed, Post, Removal, account_of
from ingest.record import decode, encode
from ingest.sources.x import Reading
from ingest.sources.x_ids import version_us
from ingest.sources.x_published import Version
from tests.ingest.sources.x_events import NOW_MS, event, id_at, only, post, reading, real

FIRST, SECOND, THIRD = id_at(NOW_MS - 90_000), id_at(NOW_MS - 60_000), id_at(NOW_MS - 60_000, number=7)


def test_every_real_object_becomes_a_post():
    skipped = Counter()
    for tweet in real():
        record = only({"data": tweet}, skipped=skipped)
        assert isinstance(record, Post)
        assert record.id == f"x:{tweet['id']}" and record.author.id == tweet["author_id"]
        assert record.account == account_of("x", tweet["author_id"])
        created_ms = datetime.fromisoformat(tweet["created_at"]).timestamp() * 1000
        assert 0 <= record.created_ms - created_ms < 1000, "the id knows the millisecond, created_at the second"
        assert record.version_us == record.created_ms * 1000
    assert not skipped


def test_a_real_retweet_has_no_text_and_none_of_the_counts_of_its_original():
    retweets = [one for one in real() if any(ref["type"] == "retweeted" for ref in one.get("referenced_tweets", []))]
    assert len(retweets) == 590 and any(one["public_metrics"]["retweet_count"] for one in retweets)
    for tweet in retweets:
        record = only({"data": tweet})
        assert record.text == "" and record.repost_of == f"x:{tweet['referenced_tweets'][0]['id']}"
        assert (record.likes, record.reposts, record.replies) == (0, 0, 0)
        assert record.reply_to is None and record.quote_of is None


def test_no_short_link_of_a_real_post_is_left_and_no_other_text_is_lost():
    for tweet in real():
        urls = tweet.get("entities", {}).get("urls", [])
        record = only({"data": tweet})
        if record.repost_of is None:
            assert not any(one["url"] in record.text for one in urls if one["expanded_url"] not in record.text)
            for one in urls:
                is_own_media = one["expanded_url"].rsplit("/", 2)[-2] in ("photo", "video")
                assert is_own_media or one["expanded_url"] in record.text
            plain = tweet["text"]
            for one in urls:
                plain = plain.replace(one["url"], "\0")
            at = 0
            for piece in plain.split("\0"):
                at = record.text.find(piece.strip(), at)
                assert at >= 0


def test_real_posts_survive_the_topic():
    quotes = 0
    for tweet in real():
        record = only({"data": tweet})
        assert decode(*encode(record), timestamp_ms=NOW_MS, received_ms=NOW_MS) == record
        quotes += record.quote_of is not None
    assert quotes == 78


@pytest.mark.parametrize("name", ["edit_history_tweet_ids", "edit_history_post_ids"])
def test_an_edit_chain_is_one_post_known_by_its_first_id(name):
    chain = [FIRST, SECOND]
    old = only(event(post(FIRST, "befor", **{name: chain})))
    new = only(event(post(SECOND, "before", **{name: chain})))
    assert old.id == new.id == f"x:{FIRST}"
    assert new.text == "before" and new.version_us > old.version_us
    assert new.created_ms == old.created_ms == NOW_MS - 90_000
    assert old.edited_ms is None and new.edited_ms == NOW_MS - 60_000
    assert new.url.endswith(f"/status/{SECOND}")


def test_an_edit_chain_leaves_aliases_and_says_what_was_not_read():
    read = reading(event(post(SECOND, edit_history_tweet_ids=[FIRST, SECOND, THIRD])))
    assert set(read.aliases) == {(f"x:{SECOND}", f"x:{FIRST}"), (f"x:{THIRD}", f"x:{FIRST}")}
    assert read.versions == (Version(f"x:{FIRST}", THIRD, is_read=False),)
    assert read.newest == SECOND


@given(st.lists(st.integers(NOW_MS - 5, NOW_MS + 5), min_size=1, max_size=6), st.data())
def test_each_edit_is_strictly_newer_than_the_one_before(made_ms, data):
    chain = sorted({id_at(ms, data.draw(st.integers(0, 3))) for ms in made_ms}, key=int)
    versions = [version_us(chain, one, None) for one in chain]
    assert all(a < b for a, b in zip(versions, versions[1:], strict=False))


def test_an_id_that_its_own_history_lacks_is_still_the_newest_of_it():
    assert only(event(post(SECOND, edit_history_tweet_ids=[FIRST]))).id == f"x:{FIRST}"


def test_an_id_older_than_snowflakes_takes_the_time_that_is_stated():
    record = only(event(post("20", created_at="2006-03-21T20:50:14.000Z")))
    assert record.version_us == 1_142_974_214_000_000 and record.created_ms == 1_142_974_214_000
    assert only(event(post("20"))).reason == "created_at"


@pytest.mark.parametrize(
    "wrong", [1346889436626259968, 1.34688943662626e18, "1.34688943662626e+18", "1346889436626259968.0", "-5", "0",
              "", " 20", "0x14", "\u0661\u0662", str(2**64), ["20"], {"id": "20"}, True]
)  # fmt: skip
def test_t23_ids_are_strings_of_digits_end_to_end(wrong):
    assert only(event(post(wrong))) == Malformed("id", "id: not a string of digits")
    for fields in (
        {"edit_history_tweet_ids": [wrong]},
        {"author_id": wrong},
        {"conversation_id": wrong},
        {"referenced_tweets": [{"type": "quoted", "id": wrong}]},
        {"referenced_tweets": [{"type": "retweeted", "id": wrong}]},
    ):
        assert only(event(post(FIRST, **fields))).reason == "id"
    assert only({"data": {"delete": {"tweet": {"id": wrong}}}}).reason == "id"
    assert only({"data": {"user_protect": {"user": {"id": wrong}}}}).reason == "id"


def test_t23_the_greatest_id_is_kept_to_the_last_digit():
    assert only(parse(json.dumps(event(post(str(2**64 - 1)))).encode())).id == "x:18446744073709551615"


@pytest.mark.parametrize("name", ["note_tweet", "note_post"])
def test_the_whole_of_a_long_text_replaces_the_cut_one(name):
    urls = [{"start": 5, "end": 21, "url": "https://t.co/abc", "expanded_url": "https://example.org/all"}]
    note = {"text": "Long https://t.co/abc &amp; whole", "entities": {"urls": urls}}
    assert (
        only(event(post(text="Long... https://t.co/x", **{name: note}))).text == "Long https://example.org/all & whole"
    )
    assert only(event(post(text="short", **{name: {"text": ""}}))).text == "short"


def test_a_retweet_comes_with_its_original_which_has_the_text_and_its_own_author():
    original = post(FIRST, "the whole original", author_id="7", note_tweet={"text": "the whole original, long"})
    retweet = post(SECOND, "RT @bo: the whole orig\u2026", referenced_tweets=[{"type": "retweeted", "id": FIRST}])
    read = reading(event(retweet, users=[{"id": "7", "username": "bo", "name": "Bo"}], posts=[original]))
    first, second = read.records
    assert (first.id, first.text, first.author.handle) == (f"x:{FIRST}", "the whole original, long", "bo")
    assert (second.text, second.repost_of, second.author.handle) == ("", f"x:{FIRST}", "ana")
    assert first.url == f"https://x.com/bo/status/{FIRST}"
    assert read.reads == 2 and read.newest == SECOND
    assert read.versions == (Version(f"x:{FIRST}", FIRST),), "a retweet shows nothing that could be removed"


@pytest.mark.parametrize("name", ["tweets", "posts"])
def test_what_a_post_quotes_and_answers_comes_before_it(name):
    references = [{"type": "quoted", "id": SECOND}, {"type": "replied_to", "id": "30000000000"}]
    quoting = post(id_at(NOW_MS), "so true", referenced_tweets=references, conversation_id="29900000000")
    quoted = post(SECOND, "it", edit_history_tweet_ids=[FIRST, SECOND])
    given = event(quoting) | {"includes": {name: [quoted, post("30000000000", "q?")]}}
    quoted, answered, last = reading(given).records
    assert last.quote_of == quoted.id == f"x:{FIRST}", "an edited post is known by its first id"
    assert last.reply_to == answered.id == "x:30000000000"
    assert last.conversation == "x:29900000000"


def test_references_to_edited_posts_are_known_from_before():
    chains = {f"x:{SECOND}": f"x:{FIRST}"}
    record = only(event(post(referenced_tweets=[{"type": "replied_to", "id": SECOND}])), chains=chains)
    assert record.reply_to == f"x:{FIRST}"


def test_the_post_that_begins_a_conversation_is_part_of_none():
    assert only(event(post(SECOND, conversation_id=SECOND))).conversation is None
    assert only(event(post(SECOND, conversation_id=FIRST, edit_history_tweet_ids=[FIRST, SECOND]))).conversation is None
    assert only(event(post(SECOND, conversation_id=FIRST))).conversation == f"x:{FIRST}"


def test_the_counts_and_marks_of_a_post():
    metrics = {"like_count": 3, "retweet_count": 2, "reply_count": 1, "quote_count": 9, "impression_count": 50}
    record = only(
        event(post(public_metrics=metrics, possibly_sensitive=True, withheld={"country_codes": ["TR", "DE"]}))
    )
    assert (record.likes, record.reposts, record.replies, record.views) == (3, 2, 1, 50)
    assert record.labels == ("sensitive", "withheld:DE", "withheld:TR")
    broken = {"like_count": -1, "retweet_count": 1.5, "reply_count": True, "impression_count": 2**60}
    record = only(event(post(public_metrics=broken)))
    assert (record.likes, record.reposts, record.replies, record.views) == (0, 0, 0, None)


@pytest.mark.parametrize("withheld", [{"copyright": True}, {"country_codes": ["XX"]}, {"country_codes": ["DE", "XY"]}])
def test_what_is_withheld_everywhere_is_removed(withheld):
    removal = only(event(post(FIRST, withheld=withheld)))
    assert removal == Removal(f"x:{FIRST}", NOW_MS * 1000, "withheld", if_newer=True)


def test_what_is_withheld_of_an_author_is_withheld_of_the_post():
    users = [{"id": "9", "username": "z", "withheld": {"country_codes": ["IN"]}}]
    assert only(event(post(author_id="9"), users=users)).labels == ("withheld:IN",)


@pytest.mark.parametrize("protected", [True, "yes", 1])
def test_a_protected_author_has_no_posts_whatever_else_is_wrong(protected):
    users = [{"id": "9", "username": "z", "protected": protected}]
    removal = only(event(post(FIRST, text=None, author_id="9", created_at="never"), users=users))
    assert removal == Removal(f"x:{FIRST}", NOW_MS * 1000, "consent", if_newer=True)
    ahead = only(event(post(id_at(NOW_MS + 5000), author_id="9"), users=users))
    assert ahead.version_us > (NOW_MS + 5000) * 1000, "our clock may be behind X's"


@pytest.mark.parametrize(
    ("given", "lang"),
    [("en", "en"), ("und", ""), ("zxx", ""), ("qme", ""), ("qam", ""), ("qst", ""), ("art", ""), ("in", "id"),
     ("iw", "he"), ("qu", "qu"), ("zh-TW", "zh-TW"), (None, ""), (5, "")],
)  # fmt: skip
def test_languages_that_are_none_and_old_codes(given, lang):
    assert only(event(post(lang=given))).lang == lang


def test_a_link_needs_no_author():
    assert only({"data": post(FIRST)}).url == f"https://x.com/i/status/{FIRST}"
    users = [{"id": "9", "username": "evil/../x", "name": 5}]
    record = only(event(post(FIRST, author_id="9"), users=users))
    assert record.url == f"https://x.com/i/status/{FIRST}" and record.author.name == ""
    assert only({"data": post(FIRST, author_id=None)}).account == ""


def test_a_search_answers_with_a_list():
    read = reading({"data": [post(SECOND), post(FIRST), {"id": 5}], "meta": {"result_count": 3}})
    assert [type(record) for record in read.records] == [Post, Post, Malformed]
    assert read.newest == SECOND and read.reads == 3
    assert reading({"meta": {"result_count": 0}}) == Reading()


def test_a_post_that_is_asked_for_and_included_is_one():
    assert len(reading({"data": [post(FIRST)], "includes": {"tweets": [post(FIRST), post(SECOND)]}}).records) == 2


def test_other_apis_are_refused_by_name():
    v1 = {"id": 1346889436626259968, "id_str": "1346889436626259968", "full_text": "x", "user": {"screen_name": "a"}}
    assert only(v1).reason == only({"data": v1}).reason == "v1"
    assert only({"delete": {"status": {"id": 5, "id_str": "5"}}}).reason == "v1"
    gnip = {"id": "tag:search.twitter.com,2005:1", "objectType": "activity", "verb": "post", "actor": {}}
    assert only(gnip).reason == only({"data": gnip}).reason == "gnip"


def test_errors_in_band_and_objects_that_nobody_knows_are_counted():
    skipped = Counter()
    error = {"type": "https://api.twitter.com/2/problems/resource-not-found", "value": "5", "resource_type": "tweet"}
    assert len(reading(event(post(), errors=[error, 5, {"title": "?"}]), skipped=skipped).records) == 1
    assert reading({"weather": {"sunny": True}}, skipped=skipped) == Reading()
    assert reading({"data": {"poll_closed": {}}}, skipped=skipped) == Reading()
    assert skipped == {"error:resource-not-found": 1, "error:unknown": 1, "weather": 1, "unknown": 1}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            {"errors": [{"title": "operational-disconnect", "disconnect_type": "UpstreamOperationalDisconnect",
                         "type": "https://api.x.com/2/problems/operational-disconnect"}]},
            "UpstreamOperationalDisconnect",
        ),
        ({"errors": [{"type": "https://api.twitter.com/2/problems/operational-disconnect"}]}, "operational-disconnect"),
        ({"title": "ConnectionException", "connection_issue": "TooManyConnections"}, "TooManyConnections"),
    ],
)  # fmt: skip
def test_x_says_why_it_closes_the_stream(said, why):
    skipped = Counter()
    assert reading(said, skipped=skipped) == Reading(disconnect=why) and not skipped


KEYS = st.sampled_from(
    ["data", "includes", "tweets", "users", "errors", "id", "text", "edit_history_tweet_ids", "note_tweet", "delete",
     "tweet", "event_at", "entities", "urls", "url", "expanded_url", "start", "referenced_tweets", "type", "withheld",
     "author_id", "created_at", "public_metrics", "conversation_id", "user_delete", "user", "tweet_edit", "lang"]
)  # fmt: skip
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from([FIRST, "20", "retweeted"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=6),
    max_leaves=30,
)


@given(ANY)
def test_nothing_that_json_can_hold_raises(given):
    reading(given)


@given(st.data())
def test_a_real_object_with_anything_in_any_place_raises_nothing(data):
    given = event(data.draw(st.sampled_from(real()[:200])), posts=[post(FIRST)])
    given = json.loads(json.dumps(given))
    for _ in range(data.draw(st.integers(1, 3))):
        place = given
        while True:
            name = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
            inner = place[name]
            if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
                break
            place = inner
        place[name] = data.draw(ANY)
    for record in reading(given).records:
        assert isinstance(record, Post | Removal | Malformed | AccountChange)
