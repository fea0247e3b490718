"""What happens to an account happens to its posts, those there and those to come (T19), and to reposts of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.index import Query
from ingest.index_edge import EdgeIndex
from ingest.post import AccountChange, Passage, Removal
from tests.ingest.index_parts import clear, count, quick_folder, words
from tests.ingest.made import NOW_MS, passages, post, vector

DAY_MS = 24 * 3_600_000
OLD_MS = NOW_MS - 5 * DAY_MS


@pytest.fixture(scope="module")
def shared():
    with quick_folder() as path:
        index = EdgeIndex(path, warm_days=30, clock=lambda: NOW_MS)
        yield index
        index.close()


@pytest.fixture
def index(shared):
    clear(shared)
    return shared


def state(author, to, version_us, source="test"):
    return AccountChange(source, author, to, version_us, f"said {to}")


def bare(post_id, of, author="ben", **fields):
    return [Passage(post(post_id, "", repost_of=of, author=author, **fields), 0, "", ())]


def everywhere(index, *post_ids):
    """Those that are found by every way there is; it is the same for each of them."""
    found = set(words(index, "harbour", limit=100, since_ms=0))
    by_meaning = {m.post_id for m in index.search(Query("", vector("any"), limit=100, since_ms=0))}
    assert found == by_meaning
    assert found == index.present(post_ids) == set(index.fetch(post_ids))
    assert count(index) == len(found)
    return found


def test_t19_all_posts_of_a_hidden_account_are_hidden_at_once_and_come_back_with_it(index):
    index.apply([*passages("a", "harbour one", "more harbour"), *passages("b", "harbour", ms=OLD_MS)], [])
    index.apply(passages("c", "harbour three", author="ben"), [])
    while index.age(NOW_MS):
        pass
    assert everywhere(index, "a", "b", "c") == {"a", "b", "c"}
    index.apply([], [], [state("ana", "hidden", 5)])
    assert everywhere(index, "a", "b", "c") == {"c"}
    assert index.summary().hidden_accounts == 1
    index.apply([], [], [state("ana", "active", 6)])
    assert everywhere(index, "a", "b", "c") == {"a", "b", "c"}
    assert index.summary().hidden_accounts == 0


def test_t19_posts_that_a_hidden_account_writes_are_hidden_until_it_is_back(index):
    index.apply(passages("a", "harbour one"), [], [state("ana", "hidden", 5)])
    index.apply(passages("b", "harbour two"), [])
    index.apply(passages("a", "harbour edited", version_us=2), [])
    assert everywhere(index, "a", "b") == set()
    index.apply([], [], [state("ana", "active", 6)])
    assert everywhere(index, "a", "b") == {"a", "b"}
    assert words(index, "edited") == ["a"]


def test_t19_a_deleted_account_is_gone_for_ever(index):
    index.apply([*passages("a", "harbour one", "more"), *passages("b", "harbour", ms=OLD_MS)], [])
    while index.age(NOW_MS):
        pass
    assert index.apply([], [], [state("ana", "deleted", 5_000)]).removed == 2
    assert everywhere(index, "a", "b") == set()
    index.apply([], [], [state("ana", "active", 9_000)])
    assert index.apply([*passages("a", "harbour", version_us=9), *passages("new", "harbour")], []).stale == 2
    assert everywhere(index, "a", "b", "new") == set()
    assert [tier.posts for tier in index.tiers] == [0, 0], "erased, not hidden"
    receipt = index.receipt("b")
    assert (receipt.reason, receipt.event_ms, receipt.purged_ms) == ("account", 5, NOW_MS)


def test_a_change_that_is_older_than_what_is_known_changes_nothing_except_a_deletion(index):
    index.apply(passages("a", "harbour"), [], [state("ana", "active", 9)])
    index.apply([], [], [state("ana", "hidden", 8)])
    assert everywhere(index, "a") == {"a"}
    index.apply([], [], [state("ana", "deleted", 7)])
    assert everywhere(index, "a") == set()


def test_changes_that_take_turns_end_with_the_newest(index):
    index.apply(passages("a", "harbour"), [])
    changes = [state("ana", "hidden" if i % 2 else "active", i) for i in range(1, 8)]
    index.apply([], [], changes)
    assert everywhere(index, "a") == set()
    index.apply([], [], [state("ana", "active", 8), state("ana", "hidden", 7)])
    assert everywhere(index, "a") == {"a"}


def test_accounts_of_the_same_id_on_two_networks_are_two(index):
    index.apply([*passages("a", "harbour", source="one"), *passages("b", "harbour", source="two")], [])
    index.apply([], [], [state("ana", "hidden", 1, source="one")])
    assert everywhere(index, "a", "b") == {"b"}


def test_a_post_without_an_account_is_nobody_s(index):
    index.apply(passages("a", "harbour", author="", account=""), [], [state("", "hidden", 1)])
    assert everywhere(index, "a") == {"a"}


def test_reposts_of_a_hidden_account_s_posts_are_hidden_with_them_whatever_comes_first(index):
    index.apply(passages("before", "harbour said ana", repost_of="a", author="ben"), [])
    index.apply(passages("a", "harbour"), [], [state("ana", "hidden", 1)])
    index.apply(passages("after", "harbour said ana", repost_of="a", author="cleo"), [])
    assert everywhere(index, "a", "before", "after") == set()
    index.apply([], [], [state("ana", "active", 2)])
    assert everywhere(index, "a", "before", "after") == {"a", "before", "after"}
    index.apply([], [], [state("ben", "hidden", 3)])
    assert everywhere(index, "a", "before", "after") == {"a", "after"}
    index.apply([], [], [state("ana", "hidden", 4), state("ben", "active", 5)])
    assert everywhere(index, "a", "before", "after") == set()


def test_reposts_of_a_deleted_account_s_posts_go_and_stay_out(index):
    index.apply([*passages("a", "harbour"), *passages("r", "harbour said ana", repost_of="a", author="ben")], [])
    index.apply([], [], [state("ana", "deleted", 1)])
    index.apply(passages("late", "harbour said ana", repost_of="a", author="cleo"), [])
    index.apply(passages("unseen", "harbour"), [])
    index.apply(passages("later", "harbour said ana", repost_of="unseen", author="cleo"), [])
    assert everywhere(index, "a", "r", "late", "unseen", "later") == set()


def test_a_bare_repost_is_counted_and_never_found(index):
    index.apply([*passages("a", "harbour"), *bare("r", "a"), *bare("s", "a", author="cleo")], [])
    assert everywhere(index, "a", "r", "s") == {"a"}
    (match,) = index.search(Query("harbour"))
    copies = index.copies(match)
    assert [(copy.post_id, copy.is_repost) for copy in copies] == [("a", False), ("r", True), ("s", True)]
    index.apply([], [], [state("cleo", "hidden", 1)])
    assert [copy.post_id for copy in index.copies(match)] == ["a", "r"]
    index.apply([], [Removal("a", 2)])
    assert index.copies(match) == []


def test_a_large_account_is_hidden_and_deleted_as_a_whole(index):
    """More than one page, one condition and one slice hold."""
    index.apply([p for i in range(1100) for p in passages(f"a{i}", "harbour", ms=NOW_MS - i)], [])
    index.apply([p for i in range(0, 1100, 10) for p in bare(f"r{i}", f"a{i}")], [])
    ids = [f"a{i}" for i in range(1100)]
    index.apply([], [], [state("ana", "hidden", 1)])
    assert (index.present(ids), count(index)) == (set(), 0)
    index.apply([], [], [state("ana", "active", 2)])
    assert len(index.present(ids)) == count(index) == 1100
    index.apply([], [], [state("ana", "deleted", 3)])
    assert (index.present(ids), count(index), index.hot.posts) == (set(), 0, 0)
    assert index.summary().removals == 1100 + 110


@settings(max_examples=40, deadline=None)
@given(st.permutations(range(4)), st.lists(st.booleans(), min_size=5, max_size=5))
def test_the_order_in_which_an_account_s_changes_come_does_not_matter(shared, order, posted):
    clear(shared)
    changes = [state("ana", to, n) for n, to in enumerate(("hidden", "active", "hidden", "active"))]
    for i, n in enumerate(order):
        shared.apply(passages(f"p{i}", "harbour") if posted[i] else [], [], [changes[n]])
    expected = {f"p{i}" for i in range(4) if posted[i]}
    assert everywhere(shared, *(f"p{i}" for i in range(4))) == expected
