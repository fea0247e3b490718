"""Handles, names and opt-outs that the stream said of its authors."""

from ingest.post import AccountChange, Author, Malformed, Post, Removal
from ingest.sources.bluesky import read_frame
from ingest.sources.bluesky_frame import AuthorNews
from ingest.sources.bluesky_people import People
from tests.ingest.sources.bluesky_events import DID, TIME_US, account, commit, frame_of


def records(event):
    return read_frame(frame_of(event), 1).records


def test_a_post_carries_what_was_said_of_its_author_before():
    people = People()
    (post,) = records(commit({"text": "a"}))
    assert people.signed(DID, post).author == Author(DID)
    people.hear(DID, AuthorNews(handle="ana.example"), 1)
    people.hear(DID, AuthorNews(name="Ana", opted_out=False), 2)
    assert people.signed(DID, post).author == Author(DID, "ana.example", "Ana")
    people.hear(DID, AuthorNews(handle=""), 3)
    assert people.signed(DID, post).author == Author(DID, "", "Ana")


def test_who_opted_out_stays_hidden_until_taking_it_back():
    people = People()
    (post,) = records(commit({"text": "a"}))
    (active,) = records(account(True))
    assert people.hear(DID, AuthorNews(name="Ana", opted_out=True), 5) is None
    assert people.signed(DID, post) == Removal(post.id, post.version_us, "consent", if_newer=True)
    assert people.signed(DID, active).state == "hidden"
    people.hear(DID, AuthorNews(handle="ana.example"), 6)
    assert isinstance(people.signed(DID, post), Removal)
    assert people.hear(DID, AuthorNews(name="Ana", opted_out=False), TIME_US) == AccountChange(
        "bluesky", DID, "active", TIME_US
    )
    assert isinstance(people.signed(DID, post), Post)
    assert people.signed(DID, active) == active


def test_a_deleted_account_stays_deleted_and_what_is_no_post_is_left_alone():
    people = People()
    people.hear(DID, AuthorNews(opted_out=True), 1)
    (deleted,) = records(account(False, "deleted"))
    assert people.signed(DID, deleted) == deleted
    assert people.signed(DID, Malformed("x")) == Malformed("x")


def test_only_the_latest_are_remembered():
    people = People(limit=2)
    for number in range(3):
        people.hear(f"did:plc:{number}", AuthorNews(handle=f"h{number}.example"), 1)
    (post,) = records(commit({"text": "a"}))
    handles = [people.signed(f"did:plc:{number}", post).author.handle for number in range(3)]
    assert handles == ["", "h1.example", "h2.example"]
