"""Removals and account changes may overtake the posts before them: what is found in the end is the same."""

from collections import deque
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from ingest_parts import FakeIndex

from ingest.post import AccountChange, Author, Passage, Post, Removal, account_of
from ingest.versions import Newest

Change = Post | Removal | AccountChange
IDS = st.sampled_from(["p", "q", "r", "s"])
# A post is always of the same author; "r" and "s" repost "p", "r" without a text of its own.
AUTHOR = {"p": "ana", "q": "ben", "r": "ben", "s": "cleo"}


def post(post_id: str, version_us: int) -> Post:
    author, repost_of = AUTHOR[post_id], "p" if post_id in "rs" else None
    text = "" if post_id == "r" else f"{post_id} {version_us}"
    return Post(
        post_id, "t", version_us, text, 0, 0, Author(author), repost_of=repost_of, account=account_of("t", author)
    )


VERSIONS = st.integers(0, 5)
POSTS = st.builds(post, IDS, VERSIONS)
REMOVALS = st.builds(Removal, IDS, VERSIONS, st.just("deleted"), st.booleans())
ACCOUNTS = st.builds(
    AccountChange,
    st.just("t"),
    st.sampled_from(["ana", "ben", "cleo"]),
    st.sampled_from(["active", "hidden", "deleted"]),
    VERSIONS,
)
BATCHES = st.lists(st.lists(st.one_of(POSTS, POSTS, REMOVALS, ACCOUNTS), min_size=1, max_size=4), max_size=7)


def in_place(index: FakeIndex, newest: Newest) -> None:
    """As the loop does it."""
    index.change((), newest.removals, newest.accounts)
    index.change([Passage(post, 0, post.text, ()) for post in newest.posts], ())


def found(index: FakeIndex) -> tuple[dict[str, str], dict[str, str], dict[str, Any]]:
    states = {account: (change.state, change.version_us) for account, change in index.accounts.items()}
    return index.texts, index.reposts, states


@settings(max_examples=500)
@given(BATCHES, st.lists(st.booleans(), max_size=20))
def test_overtaking_leaves_what_the_order_of_the_feed_leaves(batches: list[list[Change]], reads: list[bool]) -> None:
    """`reads` says when another batch is read (and overtakes), and when one that was read is applied in its place."""
    expected, overtaken = FakeIndex(), FakeIndex()
    for batch in batches:
        in_place(expected, Newest(batch))
    unread, underway = deque(Newest(batch) for batch in batches), deque[Newest]()
    turns = iter(reads)
    while unread or underway:
        if unread and (next(turns, False) or not underway):
            newest = unread.popleft()
            overtaken.change((), newest.overtaking(list(underway)), newest.accounts)
            underway.append(newest)
        else:
            in_place(overtaken, underway.popleft())
    assert found(overtaken) == found(expected)


@settings(max_examples=300)
@given(BATCHES)
def test_joined_batches_leave_what_they_leave_one_by_one(batches: list[list[Change]]) -> None:
    expected, joined, whole = FakeIndex(), FakeIndex(), Newest()
    for batch in batches:
        in_place(expected, Newest(batch))
        whole.join(Newest(batch))
    in_place(joined, whole)
    # Whether a repost that was seen on both sides of its post's removal is found again is open: docs/feed.md.
    assert {found for found in joined.texts.items() if found[0] in "pq"} == {
        found for found in expected.texts.items() if found[0] in "pq"
    }


def test_a_removal_that_is_out_of_date_in_its_place_does_not_overtake() -> None:
    ahead, late = Newest([post("p", 4)]), Removal("p", 2, if_newer=True)
    assert Newest([late]).overtaking([ahead]) == []
    assert Newest([late]).overtaking([]) == [late]
    whenever = Removal("p", 2)
    assert Newest([whenever]).overtaking([ahead]) == [whenever]
