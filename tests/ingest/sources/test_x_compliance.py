"""X's compliance events and look-ups -> removals and changes of accounts."""

from collections import Counter

import pytest

from ingest.post import AccountChange, Post, Removal
from ingest.sources.x import Reading
from ingest.sources.x_compliance import gone
from ingest.versions import Newest
from tests.ingest.sources.x_events import NOW_MS, event, id_at, only, post, reading

AT, AT_US = "2026-07-06T18:40:40.000Z", 1_783_363_240_000_000
FIRST, SECOND = id_at(NOW_MS - 90_000), id_at(NOW_MS - 60_000)


def happened(name, about="tweet", native_id=FIRST, **more):
    return {"data": {name: {about: {"id": native_id, "author_id": "5"}, "event_at": AT, **more}}}


@pytest.mark.parametrize("about", ["tweet", "post"])
@pytest.mark.parametrize(("name", "reason"), [("delete", "deleted"), ("drop", "deleted"), ("withheld", "withheld")])
def test_a_post_that_goes(name, reason, about):
    assert only(happened(name, about)) == Removal(f"x:{FIRST}", AT_US, reason, if_newer=True)


def test_deleting_any_version_deletes_the_chain_and_only_what_is_older():
    chains = {f"x:{SECOND}": f"x:{FIRST}"}
    removal = only(happened("delete", native_id=SECOND), chains=chains)
    assert removal.post_id == f"x:{FIRST}"
    edited = only(event(post(SECOND, edit_history_tweet_ids=[FIRST, SECOND])))
    for order in ([edited, removal], [removal, edited]):  # T6: the delete may come first
        newest = Newest(order)
        assert newest.posts == [] and newest.removals == [removal]


def test_a_deletion_is_not_refused_for_its_time():
    given = happened("delete")
    given["data"]["delete"]["event_at"] = "yesterday"
    assert only(given) == Removal(f"x:{FIRST}", NOW_MS * 1000)


@pytest.mark.parametrize("names", [("tweet_edit", "tweet", "tweet"), ("post_edit", "post", "post")])
def test_an_edit_takes_the_old_text_away_and_lets_the_new_one_in(names):
    name, about, kind = names
    chain = [FIRST, SECOND]
    given = happened(name, about, SECOND, **{f"initial_{kind}_id": FIRST, f"edit_{kind}_ids": chain})
    read = reading(given)
    assert read.aliases == ((f"x:{SECOND}", f"x:{FIRST}"),)
    old = only(event(post(FIRST)))
    new = only(event(post(SECOND, "new", edit_history_tweet_ids=chain)))
    assert Newest([old, *read.records]).posts == []
    assert Newest([*read.records, old]).posts == []
    assert Newest([old, *read.records, new]).posts == Newest([old, new, *read.records]).posts == [new]


@pytest.mark.parametrize(
    ("name", "state"),
    [("user_delete", "hidden"), ("user_undelete", "active"), ("user_protect", "hidden"), ("user_unprotect", "active"),
     ("user_suspend", "hidden"), ("user_unsuspend", "active")],
)  # fmt: skip
def test_t19_accounts_are_hidden_and_come_back(name, state):
    """user_delete as well: it can be taken back for 30 days, then X deletes the posts one by one."""
    change = only({"data": {name: {"user": {"id": "5"}, "event_at": AT}}})
    assert change == AccountChange("x", "5", state, AT_US, name)
    assert change.account == only(event(post(author_id="5"))).account


def test_an_account_withheld_in_a_country_is_hidden_until_it_is_in_none():
    given = {"data": {"user_withheld": {"user": {"id": "5"}, "withheld_in_countries": ["DE"], "event_at": AT}}}
    assert only(given).state == "hidden"
    given["data"]["user_withheld"]["withheld_in_countries"] = []
    assert only(given).state == "active"


@pytest.mark.parametrize("name", ["scrub_geo", "user_profile_modification", "undrop"])
def test_what_says_nothing_about_what_we_keep_is_counted(name):
    skipped = Counter()
    given = {"data": {name: {"user": {"id": "5"}, "tweet": {"id": FIRST}, "event_at": AT}}}
    assert reading(given, skipped=skipped) == Reading() and skipped == {name: 1}


PROBLEM = "https://api.twitter.com/2/problems/"


def missing(native_id, problem, **more):
    return {"value": native_id, "resource_id": native_id, "parameter": "ids", "type": PROBLEM + problem, **more}


def test_a_look_up_tells_what_is_gone():
    asked = {FIRST: f"x:{FIRST}", SECOND: "x:first", "7": "x:7", "8": "x:8", "9": "x:9"}
    answer = {
        "data": [post("8")],
        "errors": [
            missing(FIRST, "resource-not-found"),
            missing(SECOND, "not-authorized-for-resource", resource_type="tweet"),
            missing("7", "field-unauthorized"),
            missing("6", "resource-not-found"),
            missing("9", "resource-not-found", parameter="referenced_tweets.id"),
            5,
        ],
    }
    assert list(gone(answer, asked=asked, received_ms=NOW_MS)) == [
        Removal(f"x:{FIRST}", NOW_MS * 1000 + 999, "deleted", if_newer=True),
        Removal("x:first", NOW_MS * 1000 + 999, "consent", if_newer=True),
    ]


@pytest.mark.parametrize("answer", [None, [], {}, {"errors": 5}, {"errors": [{"type": 5, "value": FIRST}]}])
def test_an_answer_that_says_nothing_removes_nothing(answer):
    assert list(gone(answer, asked={FIRST: "x:1"}, received_ms=NOW_MS)) == []


def test_what_is_gone_is_gone_even_with_our_clock_behind_that_of_x():
    ahead = id_at(NOW_MS + 60_000)
    (removal,) = gone({"errors": [missing(ahead, "resource-not-found")]}, asked={ahead: "x:1"}, received_ms=NOW_MS)
    stored = only(event(post(ahead)))
    assert isinstance(stored, Post) and removal.version_us > stored.version_us
