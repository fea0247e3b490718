"""Posts grow old: from the hot tier to the warm one, and out, and never in both or in neither."""

import pytest
import qdrant_edge as edge

from ingest.index import Query
from ingest.index_edge import EdgeIndex
from ingest.index_edge_changes import entries
from ingest.post import AccountChange, Removal
from tests.ingest.index_parts import clear, count, everything, quick_folder, words
from tests.ingest.made import NOW_MS, passages, vector

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
OLD_MS = NOW_MS - 5 * DAY_MS
BACK = {"since_ms": OLD_MS}


@pytest.fixture(scope="module")
def shared():
    with quick_folder() as path:
        index = EdgeIndex(path, warm_days=30, max_posts=1000, clock=lambda: NOW_MS)
        yield index
        index.close()


@pytest.fixture
def index(shared):
    clear(shared)
    grow_old(shared)
    return shared


def grow_old(index, now_ms=NOW_MS):
    while index.age(now_ms):
        pass


def tiers_of(index, post_id):
    return [tier.kind for tier in index.tiers if post_id in entries(tier, [post_id])]


def old(index, *texts, post_id="old", **fields):
    index.apply(passages(post_id, *texts, ms=OLD_MS, **fields), [])
    grow_old(index)
    assert tiers_of(index, post_id) == ["warm"]


def test_old_posts_are_found_by_questions_that_reach_back_and_young_ones_by_all(index):
    old(index, "harbour bridge", "closed today")
    index.apply(passages("new", "harbour bridge"), [])
    assert words(index, "harbour") == ["new"]
    assert words(index, "harbour", since_ms=NOW_MS - 72 * HOUR_MS) == ["new"]
    assert set(words(index, "harbour", **BACK)) == {"new", "old"}
    assert words(index, "closed", **BACK) == ["old"]
    assert words(index, "harbour", since_ms=OLD_MS, until_ms=OLD_MS) == ["old"]
    assert words(index, "harbour", until_ms=NOW_MS - 1) == ["old"], "before: as far back as there is"
    assert (count(index), index.summary().warm_posts, index.summary().newest_ms) == (2, 1, NOW_MS)
    assert index.present(["old", "new"]) == set(index.fetch(["old", "new"])) == {"old", "new"}


def test_an_old_post_is_the_same_when_it_has_moved(index):
    index.apply(
        passages("old", "harbour bridge", ms=OLD_MS, labels=("a", "b"), likes=3, conversation="c", reply_to="c"), []
    )
    question = Query("harbour", vector("harbour bridge"), **BACK, now_ms=NOW_MS)
    (before,) = index.search(question)
    grow_old(index)
    assert tiers_of(index, "old") == ["warm"]
    (after,) = index.search(question)
    assert after.vector == pytest.approx(before.vector, abs=1e-6)
    for part in ("cosine", "words", "recency"):  # not bm25: each tier counts its own words
        assert after.why[part] == pytest.approx(before.why[part], abs=1e-5)
    for field in ("text", "labels", "likes", "conversation", "reply_to", "account", "saying", "version_us"):
        assert getattr(after, field) == getattr(before, field)


def test_a_warm_post_is_found_again_when_its_account_is_back(index):
    index.apply([], [], [AccountChange("test", "ana", "hidden", 1)])
    old(index, "harbour")
    assert words(index, "harbour", **BACK) == []
    index.apply([], [], [AccountChange("test", "ana", "active", 2)])
    assert words(index, "harbour", **BACK) == ["old"]


def test_both_tiers_are_scored_together(index):
    """Words count relative to the best match of both."""
    old(index, "harbour harbour bridge")
    index.apply(passages("new", "a harbour among many more words that make it a weak match by words alone"), [])
    matches = index.search(Query("harbour bridge", vector("harbour harbour bridge"), **BACK))
    assert [match.post_id for match in matches] == ["old", "new"]
    assert matches[1].why["relevance"] < 0.5 < matches[0].why["relevance"]


def test_a_thread_is_found_whole(index):
    old(index, "harbour root", "and its second piece", post_id="root")
    index.apply(passages("reply", "harbour reply", conversation="root"), [])
    index.apply(passages("else", "harbour else"), [])
    assert set(words(index, "harbour", conversation="root")) == {"root", "reply"}
    assert words(index, "second piece", conversation="root") == ["root"]


def test_a_late_old_edit_does_not_come_back_over_what_is_warm(index):
    old(index, "harbour second", version_us=2)
    assert index.apply(passages("old", "harbour first", ms=OLD_MS, version_us=1), []).stale == 1
    assert tiers_of(index, "old") == ["warm"]
    assert words(index, "first", **BACK) == []


def test_an_edit_of_an_old_post_replaces_it_and_moves_again(index):
    old(index, "harbour one", "piece two", "piece three")
    assert index.apply(passages("old", "edited one", "edited two", ms=OLD_MS, version_us=2), []).applied == 1
    assert tiers_of(index, "old") == ["hot"]
    assert (words(index, "harbour", **BACK), words(index, "three", **BACK)) == ([], [])
    grow_old(index)
    assert tiers_of(index, "old") == ["warm"]
    assert words(index, "edited", **BACK) == ["old", "old"]
    assert len(everything(index.warm)) == 2


def test_a_removal_reaches_an_old_post_and_its_old_reposts(index):
    old(index, "harbour", "piece two", version_us=3)
    old(index, "harbour said ana", post_id="repost", repost_of="old", author="ben")
    assert index.apply([], [Removal("old", 2, if_newer=True)]).stale == 1
    assert set(words(index, "harbour", **BACK)) == {"old", "repost"}
    assert index.apply([], [Removal("old", 4)]).removed == 1
    assert (words(index, "harbour", **BACK), count(index), everything(index.warm)) == ([], 0, [])
    assert index.apply(passages("old", "harbour", version_us=4), []).stale == 1
    assert index.receipt("old").purged_ms == NOW_MS


def test_a_move_that_was_cut_off_shows_each_post_once_and_is_ended_by_the_next(index):
    """Killed after an edit was written hot and before the old version was deleted warm: the post is in both tiers."""
    old(index, "harbour", "harbour piece two")
    records, _ = index.warm.page(None, 10)
    index.apply(passages("old", "harbour edited", ms=OLD_MS, version_us=2), [])
    index.warm.upsert([edge.Point(str(record.id), record.vector, record.payload) for record in records])
    assert tiers_of(index, "old") == ["hot", "warm"]
    assert [match.text for match in index.search(Query("harbour", **BACK))] == ["harbour edited"]
    assert index.fetch(["old"])["old"].text == "harbour edited"
    grow_old(index)
    assert tiers_of(index, "old") == ["warm"]
    assert [payload["text"] for payload in everything(index.warm)] == ["harbour edited"]


def test_too_many_posts_go_warm_the_oldest_first_and_are_still_found(index):
    index.apply([p for i in range(1200) for p in passages(f"p{i}", f"harbour n{i}", ms=NOW_MS - i * 1000)], [])
    grow_old(index)
    assert [tier.posts for tier in index.tiers] == [1000, 200]
    assert tiers_of(index, "p999") == ["hot"]
    assert tiers_of(index, "p1000") == ["warm"]
    since_ms = NOW_MS - 1199 * 1000
    assert words(index, "n1199", since_ms=since_ms) == ["p1199"], "younger than the window, so it has to be found"
    assert words(index, "n1000", since_ms=NOW_MS - 999 * 1000) == []


def test_at_no_step_of_a_move_is_a_post_in_neither_tier_or_found_twice(index):
    ids = [f"p{i}" for i in range(150)]
    index.apply([p for i in ids for p in passages(i, f"harbour {i}", "piece two", ms=OLD_MS)], [])
    steps = 0
    while index.age(NOW_MS):
        steps += 1
        found = [(match.post_id, match.number) for match in index.search(Query("harbour piece", **BACK, limit=1000))]
        assert len(found) == len(set(found)) >= 100
        assert index.present(ids) == set(ids)
        assert count(index) == 150
    assert steps > 2


def test_warm_posts_leave_when_they_are_too_old(index):
    old(index, "harbour")
    index.apply(passages("new", "harbour"), [])
    grow_old(index, OLD_MS + 30 * DAY_MS)
    assert index.present(["old", "new"]) == {"old", "new"}
    grow_old(index, OLD_MS + 30 * DAY_MS + 1)
    assert index.present(["old", "new"]) == {"new"}
    assert words(index, "harbour", since_ms=0) == ["new"]


def test_without_a_warm_tier_nothing_of_an_earlier_one_is_left(index_folder):
    index = EdgeIndex(index_folder, warm_days=30, clock=lambda: NOW_MS)
    old(index, "harbour")
    index.close()
    index = EdgeIndex(index_folder, warm_days=0, clock=lambda: NOW_MS)
    assert (index.present(["old"]), words(index, "harbour", since_ms=0)) == (set(), [])
    assert not (index_folder / "warm").exists()
    index.close()
