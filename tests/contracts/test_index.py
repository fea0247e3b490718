"""One contract for every index of posts: embedded, on a server, in shards. Rules: docs/feed.md, ingest/index.py.

The server index runs over qdrant-client's local mode, and on a real server where QDRANT_URL names one.
"""

import asyncio
import math
import os
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.index import ApplyReport, BadPassages, Query, Summary
from ingest.index_bm25 import question_terms
from ingest.index_embedded import EmbeddedIndex
from ingest.index_shards import ShardedIndex
from ingest.post import AccountChange, Passage, Receipt, Removal, account_of
from tests.contracts.index_kinds import (
    CLOCK,
    DAY_MS,
    HOUR_MS,
    WINDOW_H,
    embedded,
    emptied,
    local,
    meaning,
    real,
    sharded,
    words,
)
from tests.ingest.made import NOW_MS, passages, post, vector

pytestmark = [
    pytest.mark.filterwarnings("ignore:Payload indexes have no effect:UserWarning"),
    pytest.mark.filterwarnings("ignore:Local mode performs exact:UserWarning"),
]
WINDOW_MS = int(WINDOW_H * HOUR_MS)


@pytest.fixture(scope="session")
def embedded_index(tmp_path_factory):
    return embedded(tmp_path_factory.mktemp("contract") / "index")


KINDS = ["embedded", "local", "sharded", *(["real"] if "QDRANT_URL" in os.environ else [])]


@pytest.fixture(params=KINDS)
async def index(request, embedded_index):
    CLOCK.now_ms = NOW_MS
    if request.param == "embedded":
        yield await emptied(embedded_index)
        return
    made = await {"local": local, "sharded": sharded, "real": real}[request.param]()
    yield made
    await made.close()


def bare(post_id, of, *, author="ben", **fields):
    """A repost without a text of its own."""
    return [Passage(post(post_id, "", repost_of=of, author=author, **fields), 0, "", ())]


def change(state, version_us=1, author="ana", source="test"):
    return AccountChange(source, author, state, version_us)


async def visible(index, ids):
    """The same by every way: fetched, present, found by their words."""
    present = await index.present(ids)
    assert set(await index.fetch(ids)) == present
    return present


def test_the_contract_holds_on_a_real_server():
    if "QDRANT_URL" not in os.environ:
        pytest.skip("NO REAL QDRANT SERVER: set QDRANT_URL (and QDRANT_API_KEY) to run all of this on one")
    assert "real" in KINDS


# -- what is applied is found


async def test_an_applied_post_is_found_by_the_very_next_search_by_words_and_by_meaning(index):
    """T14."""
    text = "The harbour bridge is closed"
    for i in range(10):
        assert await index.apply(passages(f"p{i}", f"{text} number{i}"), []) == ApplyReport(applied=1)
        assert await words(index, f"number{i}") == [f"p{i}"]
        assert await meaning(index, f"{text} number{i}") == [f"p{i}"]
    assert (await index.summary()).posts == 10
    assert await index.present(["p0", "p9", "p10"]) == {"p0", "p9"}


async def test_a_match_holds_everything_that_a_citation_shows(index):
    fields = {"repost_of": "original", "reply_to": "x:1", "quote_of": "x:2", "conversation": "x:0"}
    counts = {"likes": 3, "reposts": 4, "replies": 5, "labels": ("news", "spam")}
    (passage,) = passages("p", "Bridge closed", lang="en-GB", author="ben", version_us=7, **fields, **counts)
    await index.apply([passage], [])
    (match,) = await index.search(Query("bridge closed", passage.vector, now_ms=NOW_MS, conversation="x:0"))
    whole = passage.post
    for name, value in {**fields, **counts}.items():
        assert getattr(match, name) == value
    assert (match.post_id, match.number, match.text, match.source) == ("p", 0, "Bridge closed", "test")
    assert (match.author_id, match.author_handle, match.author_name) == ("ben", "ben.example", "Ben")
    assert (match.url, match.lang, match.version_us, match.account) == (whole.url, "en-GB", 7, whole.account)
    assert (match.created_ms, match.sort_ms, match.clock) == (NOW_MS, NOW_MS, "")
    assert match.vector == pytest.approx(passage.vector, abs=1e-3)
    assert match.why["cosine"] == pytest.approx(1, abs=1e-3)
    assert (match.why["words"], match.why["bm25"] > 0) == (1.0, True)
    assert match.score == pytest.approx(match.why["relevance"] * match.why["recency"])
    fetched = (await index.fetch(["p"]))["p"]
    assert (fetched.score, fetched.text, fetched.saying) == (0.0, "Bridge closed", match.saying)


async def test_a_candidate_by_one_way_carries_the_score_of_the_other(index):
    await index.apply([p for i in range(230) for p in passages(f"filler{i}", f"bridge filler{i}")], [])
    text = "bridge and twenty more words that make this match by words the weakest of all"
    await index.apply(passages("target", text), [])
    found = await index.search(Query("bridge", vector(text), limit=300))
    (match,) = [match for match in found if match.post_id == "target"]
    assert match.why["bm25"] > 0
    assert match.why["cosine"] == pytest.approx(1, abs=1e-3)


async def test_a_question_may_bring_its_own_terms(index):
    await index.apply([*passages("a", "harbour bridge"), *passages("b", "storm warning")], [])
    terms = question_terms("storm").vector
    given_terms = tuple(zip(terms.indices, terms.values, strict=True))
    assert await words(index, "harbour", terms=given_terms) == ["b"]


async def test_an_empty_index_answers(index):
    assert await index.search(Query("bridge", vector("bridge"), now_ms=NOW_MS)) == []
    assert await index.summary() == Summary(0, None)
    assert (await index.present(["p"]), await index.present([]), await index.fetch([])) == (set(), set(), {})
    assert (await index.receipt("p"), await index.copies([])) == (None, {})
    assert await index.apply([], []) == ApplyReport()
    await index.maintain(NOW_MS)


async def test_texts_without_words_are_kept_and_found_by_meaning(index):
    await index.apply(passages("emoji", "\U0001f62d\U0001f62d"), [])
    (match,) = await index.search(Query("bridge", vector("\U0001f62d\U0001f62d")))
    assert (match.post_id, match.why["bm25"], match.why["words"]) == ("emoji", 0.0, 0.0)


async def test_ids_may_be_any_text(index):
    """T23, T24."""
    ids = ["日本語 🌍 \n id", "x" * 10_000, "", "\ud800 lone", "a#1", "a", "\x00", "1346889436626259968"]
    for i, post_id in enumerate(ids):
        await index.apply(passages(post_id, f"odd\ud83d id {i}", author="\udfff"), [])
    assert await visible(index, ids) == set(ids)
    matches = await index.search(Query("odd", limit=20))
    assert {match.text for match in matches} == {f"odd\ufffd id {i}" for i in range(len(ids))}
    assert "1346889436626259968" in {match.post_id for match in matches}
    await index.apply([], [Removal(post_id, 9) for post_id in ids])
    assert ((await index.summary()).posts, await index.present(ids)) == (0, set())


async def test_the_limit_is_kept_and_may_exceed_what_there_is(index):
    await index.apply([p for i in range(5) for p in passages(f"p{i}", f"bridge {i}")], [])
    assert len(await words(index, "bridge", limit=3)) == 3
    assert len(await words(index, "bridge", limit=1000)) == 5


# -- order


async def test_equal_scores_are_ordered_by_time_and_then_by_id(index):
    for post_id, ms in (("b", NOW_MS), ("a", NOW_MS), ("d", NOW_MS - 1), ("c", NOW_MS + 1)):
        await index.apply([replace(p, vector=vector("same")) for p in passages(post_id, "bridge closed", ms=ms)], [])
    for _ in range(2):
        found = await index.search(Query("bridge", vector("same")))
        assert [match.post_id for match in found] == ["c", "a", "b", "d"]


async def test_a_newer_post_wins_over_an_equal_older_one_unless_its_clock_is_wrong(index):
    """T21."""
    hours = {"old": -48, "new": 0}
    for post_id, age_h in hours.items():
        await index.apply(passages(post_id, "storm warning", ms=NOW_MS + age_h * HOUR_MS), [])
    (piece,) = passages("spoofed", "storm warning")
    spoofed = replace(piece, post=replace(piece.post, created_ms=NOW_MS + 9 * DAY_MS))
    await index.apply([spoofed], [])
    found = await index.search(Query("storm warning", now_ms=NOW_MS))
    recency = {match.post_id: match.why["recency"] for match in found}
    assert recency["spoofed"] == 1.0 < recency["old"] < recency["new"]
    assert found[0].post_id == "new"
    assert {match.post_id: match.clock for match in found} == {"old": "", "new": "", "spoofed": "future"}
    assert (await index.summary()).newest_ms == NOW_MS


async def test_weights_and_half_life_are_the_questions(index):
    await index.apply(passages("by words", "harbour bridge"), [])
    await index.apply([replace(p, vector=vector("asked")) for p in passages("by meaning", "something else")], [])
    for share, first in ((0.9, "by words"), (0.1, "by meaning")):
        found = await index.search(Query("harbour bridge", vector("asked"), bm25_share=share))
        assert found[0].post_id == first
    await index.apply(passages("hour", "storm", ms=NOW_MS - HOUR_MS), [])
    short, long = [
        (await index.search(Query("storm", now_ms=NOW_MS, half_life_ms=half_life)))[0].why["recency"]
        for half_life in (60_000, DAY_MS)
    ]
    assert short == pytest.approx(1.0, abs=1e-3) and long > 1.2


# -- filters

FILTERED = {
    "a": {"ms": NOW_MS - 1000, "lang": "en-US", "source": "one", "author": "ana", "labels": ("news", "a")},
    "b": {"ms": NOW_MS, "lang": "de", "source": "two", "author": "Ben", "likes": 5, "conversation": "a"},
    "c": {"ms": NOW_MS, "lang": "", "source": "two", "author": "cem", "labels": ("spam",), "reposts": 2, "likes": 1},
    "d": {"ms": NOW_MS - 2000, "lang": "pt", "source": "one", "author": "dee", "replies": 9, "conversation": "x"},
}


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, "abcd"),
        ({"since_ms": NOW_MS}, "bc"),
        ({"until_ms": NOW_MS - 1}, "ad"),
        ({"since_ms": NOW_MS - 1000, "until_ms": NOW_MS - 1000}, "a"),
        ({"languages": ("en",)}, "a"),
        ({"languages": ("EN-gb", "de")}, "ab"),
        ({"sources": ("two",)}, "bc"),
        ({"sources": ("one", "two")}, "abcd"),
        ({"sources": ("nowhere",)}, ""),
        ({"authors": ("ana",)}, "a"),
        ({"authors": ("@ANA.example", "ben")}, "ab"),
        ({"authors": ("nobody",)}, ""),
        ({"without_authors": ("@Ben.Example", "ana")}, "cd"),
        ({"labels": ("news", "spam")}, "ac"),
        ({"without_labels": ("spam",)}, "abd"),
        ({"min_likes": 1}, "bc"),
        ({"min_likes": 2}, "b"),
        ({"min_reposts": 2}, "c"),
        ({"min_replies": 9}, "d"),
        ({"min_replies": 10}, ""),
        ({"conversation": "a"}, "ab"),
        ({"conversation": "x"}, "d"),
        ({"conversation": "nothing"}, ""),
        ({"sources": ("two",), "min_likes": 1, "without_labels": ("spam",)}, "b"),
    ],
    ids=str,
)
async def test_filters(index, filters, expected):
    await index.apply([p for i, fields in FILTERED.items() for p in passages(i, "bridge", **fields)], [])
    assert set(await words(index, "bridge", **filters)) == set(expected)
    found = await index.search(Query("", vector("bridge"), **filters))
    assert {match.post_id for match in found} == set(expected)


async def test_a_thread_holds_the_post_that_it_began_with_all_of_it(index):
    await index.apply([*passages("a", "bridge one", "bridge two"), *passages("b", "bridge", conversation="a")], [])
    found = await index.search(Query("bridge", conversation="a"))
    assert {(match.post_id, match.number) for match in found} == {("a", 0), ("a", 1), ("b", 0)}


# -- versions


async def test_the_newest_version_wins_whatever_the_order(index):
    """T5."""
    await index.apply(passages("p", "second text", version_us=2), [])
    assert await index.apply(passages("p", "first text", version_us=1), []) == ApplyReport(stale=1)
    assert (await words(index, "second"), await words(index, "first")) == (["p"], [])
    assert (await index.apply(passages("p", "third text", version_us=3), [])).applied == 1
    assert (await words(index, "second"), await words(index, "third")) == ([], ["p"])


async def test_versions_are_told_apart_to_the_microsecond(index):
    """T23: 64 bits, no floats."""
    newest = 2**62 + 1
    await index.apply(passages("p", "newest", version_us=newest), [])
    assert (await index.apply(passages("p", "older", version_us=newest - 1), [])).stale == 1
    assert await words(index, "newest") == ["p"]
    assert (await index.fetch(["p"]))["p"].version_us == newest


async def test_the_same_version_again_is_applied_again(index):
    await index.apply(passages("p", "text", version_us=2), [])
    assert (await index.apply(passages("p", "text", version_us=2), [])).applied == 1
    assert (await index.summary()).posts == 1


async def test_several_versions_of_a_post_in_one_batch(index):
    batch = [p for n in (1, 3, 2) for p in passages("p", f"text{n}", f"more{n}", version_us=n)]
    report = await index.apply(batch, [])
    assert (report.applied, report.stale) == (2, 1)
    assert (await words(index, "text3"), await words(index, "text2")) == (["p"], [])
    assert (await index.summary()).posts == 1


async def test_a_post_that_shrinks_loses_its_later_pieces_and_a_stale_one_touches_none(index):
    await index.apply(passages("p", "alpha", "beta", "gamma", version_us=2), [])
    assert await words(index, "gamma") == ["p"]
    assert (await index.summary()).posts == 1
    await index.apply(passages("p", "old", "older", version_us=1), [])
    assert [await words(index, text) for text in ("beta", "gamma", "older")] == [["p"], ["p"], []]
    await index.apply(passages("p", "delta", version_us=3), [])
    assert [await words(index, text) for text in ("delta", "beta", "gamma")] == [["p"], [], []]
    await index.apply(passages("p", "alpha", "beta", version_us=2), [])
    assert [await words(index, text) for text in ("alpha", "beta")] == [[], []]


# -- removals


async def test_a_removed_post_is_gone_by_every_way(index):
    """T18."""
    await index.apply(passages("p", "harbour bridge", "closed today", version_us=5), [])
    (match, *_) = await index.search(Query("bridge"))
    assert (await index.apply([], [Removal("p", 6)])).removed == 1
    assert (await words(index, "bridge"), await meaning(index, "harbour bridge")) == ([], [])
    assert await words(index, "closed today") == []
    assert await index.copies([match]) == {"p": []}
    assert await index.summary() == Summary(0, None, removals=1)
    assert await visible(index, ["p"]) == set()


async def test_a_removal_of_an_unknown_post_keeps_it_from_coming(index):
    """T2, T6."""
    await index.apply([], [Removal("p", 5)])
    assert (await index.apply(passages("p", "text", version_us=5), [])).stale == 1
    assert (await words(index, "text"), (await index.summary()).posts) == ([], 0)
    assert (await index.apply(passages("p", "text", version_us=6), [])).applied == 1
    assert await words(index, "text") == ["p"]


async def test_a_removal_without_a_version_removes_what_is_newer_too(index):
    await index.apply(passages("p", "text", version_us=9), [])
    await index.apply([], [Removal("p", 1)])
    assert await words(index, "text") == []
    assert (await index.apply(passages("p", "text", version_us=9), [])).stale == 1
    assert (await index.apply(passages("p", "text", version_us=10), [])).applied == 1


async def test_a_removal_with_a_version_removes_only_what_is_not_newer(index):
    await index.apply(passages("p", "text", version_us=9), [])
    assert (await index.apply([], [Removal("p", 8, "screened", if_newer=True)])).stale == 1
    assert await words(index, "text") == ["p"]
    assert (await index.apply([], [Removal("p", 9, "screened", if_newer=True)])).removed == 1
    assert await words(index, "text") == []


async def test_a_post_and_its_removal_in_one_batch_leave_nothing(index):
    report = await index.apply(passages("p", "text", version_us=3), [Removal("p", 3)])
    assert (report.applied, report.removed) == (1, 1)
    assert await visible(index, ["p"]) == set()


async def test_a_receipt_says_when_a_post_was_removed_and_when_it_was_gone(index):
    await index.apply(passages("p", "text", version_us=5), [])
    assert await index.receipt("p") is None
    CLOCK.now_ms += 70
    await index.apply([], [Removal("p", (NOW_MS + 50) * 1000, "consent", if_newer=True)])
    receipt = Receipt("p", "consent", NOW_MS + 50, NOW_MS + 70)
    assert await index.receipt("p") == receipt
    CLOCK.now_ms += 1000
    await index.apply([], [Removal("p", (NOW_MS + 50) * 1000, "consent", if_newer=True)])
    assert await index.receipt("p") == receipt, "the first time counts"
    await index.apply(passages("p", "back", version_us=(NOW_MS + 60) * 1000), [])
    assert await index.receipt("p") is None


# -- reposts


async def test_a_bare_repost_is_counted_and_never_found(index):
    await index.apply([*passages("x", "harbour bridge"), *bare("r", "x")], [])
    assert (await words(index, "bridge"), await visible(index, ["x", "r"])) == (["x"], {"x"})
    assert (await index.summary()).posts == 1
    (match,) = await index.search(Query("bridge"))
    copies = (await index.copies([match]))["x"]
    assert [(copy.post_id, copy.is_repost) for copy in copies] == [("r", True), ("x", False)]


async def test_a_removal_takes_the_reposts_of_the_post_with_it(index):
    text = {"author": "ben"}
    reposts = [p for i in ("r1", "r2") for p in passages(i, "RT harbour bridge", repost_of="x", **text)]
    await index.apply([*passages("x", "harbour bridge"), *reposts, *bare("r3", "x")], [])
    await index.apply([*passages("other", "bridge"), *passages("r4", "RT bridge", repost_of="y")], [])
    await index.apply([], [Removal("x", 2, "screened", if_newer=True)])
    assert set(await words(index, "bridge")) == {"other", "r4"}
    assert await visible(index, ["x", "r1", "r2", "r3", "r4", "other"]) == {"r4", "other"}
    assert (await index.receipt("r1")).reason == "repost"


async def test_a_removal_that_is_not_obeyed_leaves_the_reposts(index):
    await index.apply([*passages("x", "bridge", version_us=5), *passages("r", "RT bridge", repost_of="x")], [])
    assert (await index.apply([], [Removal("x", 4, "screened", if_newer=True)])).stale == 1
    assert await visible(index, ["x", "r"]) == {"x", "r"}


async def test_a_repost_of_a_removed_post_is_refused_until_the_post_is_back(index):
    await index.apply([], [Removal("x", 2)])
    await index.apply(passages("r", "RT bridge", repost_of="x"), [])
    assert await visible(index, ["r"]) == set()
    await index.apply([*passages("x", "bridge", version_us=3), *passages("s", "RT bridge", repost_of="x")], [])
    assert await visible(index, ["x", "r", "s"]) == {"x", "s"}


async def test_reposts_of_reposts_go_with_the_first(index):
    await index.apply([*passages("x", "bridge"), *passages("r", "RT bridge", repost_of="x")], [])
    await index.apply(passages("s", "RT RT bridge", repost_of="r"), [])
    await index.apply([], [Removal("x", 9)])
    assert set(await words(index, "bridge")) <= {"s"}, "in shards, s may be in another than r"
    assert await visible(index, ["x", "r"]) == set()


# -- accounts


async def test_a_hidden_account_is_nowhere_until_it_is_active(index):
    """T19."""
    await index.apply([*passages("a", "bridge ana", "closed"), *passages("b", "bridge ben", author="ben")], [])
    matches = await index.search(Query("bridge"))
    await index.apply([], [], [change("hidden", 5)])
    assert (await words(index, "bridge"), await meaning(index, "bridge ana")) == (["b"], [])
    assert await words(index, "closed") == []
    assert await visible(index, ["a", "b"]) == {"b"}
    assert await index.summary() == Summary(1, NOW_MS, hidden_accounts=1)
    copies = await index.copies(matches)
    assert [copy.post_id for copy in copies["a"]] == []
    await index.apply([], [], [change("active", 6)])
    assert set(await words(index, "bridge")) == {"a", "b"}
    assert await words(index, "closed") == ["a"]
    assert await index.summary() == Summary(2, NOW_MS)


async def test_new_posts_and_edits_of_a_hidden_account_stay_hidden(index):
    """T19."""
    await index.apply([], [], [change("hidden", 5)])
    await index.apply(passages("a", "bridge"), [])
    await index.apply(passages("a", "bridge reopened", version_us=2), [])
    assert (await words(index, "bridge"), await visible(index, ["a"])) == ([], set())
    await index.apply([], [], [change("active", 6)])
    assert await words(index, "reopened") == ["a"]


async def test_an_older_change_of_an_account_is_ignored(index):
    await index.apply(passages("a", "bridge"), [], [change("active", 6)])
    await index.apply([], [], [change("hidden", 5)])
    assert await words(index, "bridge") == ["a"]
    await index.apply([], [], [change("hidden", 8)])
    await index.apply([], [], [change("active", 7)])
    assert await words(index, "bridge") == []


async def test_a_deleted_account_is_erased_for_good(index):
    """T19."""
    await index.apply([*passages("a", "bridge", "closed"), *passages("b", "bridge", author="ben")], [])
    CLOCK.now_ms += 9
    await index.apply([], [], [change("deleted", 5000)])
    assert (await words(index, "bridge"), await visible(index, ["a", "b"])) == (["b"], {"b"})
    assert await index.receipt("a") == Receipt("a", "account", 5, NOW_MS + 9)
    await index.apply(passages("a", "bridge", version_us=9999), [], [change("active", 9000)])
    await index.apply(passages("new", "bridge", version_us=9999), [])
    assert (await words(index, "bridge"), await visible(index, ["a", "new"])) == (["b"], set())


async def test_the_change_of_an_account_counts_before_the_posts_of_its_batch(index):
    await index.apply(passages("a", "bridge"), [], [change("deleted", 5)])
    assert await visible(index, ["a"]) == set()


async def test_an_account_of_another_source_is_another_account(index):
    await index.apply(passages("a", "bridge"), [], [change("deleted", 5, source="elsewhere")])
    assert await visible(index, ["a"]) == {"a"}


async def test_reposts_of_a_hidden_post_hide_with_it(index):
    await index.apply([*passages("x", "bridge"), *passages("r", "RT bridge", repost_of="x", author="ben")], [])
    await index.apply([], [], [change("hidden", 5)])
    await index.apply(passages("s", "RT bridge", repost_of="x", author="cem"), [])
    assert (await words(index, "bridge"), await visible(index, ["x", "r", "s"])) == ([], set())
    await index.apply([], [], [change("active", 6)])
    assert set(await words(index, "bridge")) == {"x", "r", "s"}


async def test_reposts_of_a_deleted_accounts_posts_go_with_them(index):
    await index.apply([*passages("x", "bridge"), *passages("r", "RT bridge", repost_of="x", author="ben")], [])
    await index.apply([], [], [change("deleted", 5)])
    await index.apply(passages("s", "RT bridge", repost_of="x", author="cem"), [])
    assert (await words(index, "bridge"), await visible(index, ["x", "r", "s"])) == ([], set())


# -- copies


async def test_copies_tell_who_says_the_same_earliest_first(index):
    say = "Vote early, vote often! https://ex.am/1"
    await index.apply(passages("earlier", "my cat", author="ana", ms=NOW_MS - 99), [])
    for i, author in enumerate(("cem", "ana", "ben")):
        await index.apply(passages(f"p{i}", say, author=author, ms=NOW_MS - i), [])
    await index.apply(passages("later", "my dog", author="cem", ms=NOW_MS + 99), [])
    await index.apply(bare("r", "p1", author="dee", ms=NOW_MS + 5), [])
    match = (await index.fetch(["p1"]))["p1"]
    copies = (await index.copies([match]))["p1"]
    is_known = not isinstance(index, ShardedIndex)  # there, what else the author said may be in another shard
    expected = [("p2", "ben", False, False), ("p1", "ana", False, is_known), ("p0", "cem", False, False)]
    expected.append(("r", "dee", True, False))
    assert [(c.post_id, c.account, c.is_repost, c.is_known_author) for c in copies] == [
        (post_id, account_of("test", author), is_repost, known) for post_id, author, is_repost, known in expected
    ]
    assert [c.sort_ms for c in copies] == [NOW_MS - 2, NOW_MS - 1, NOW_MS, NOW_MS + 5]
    assert [c.post_id for c in (await index.copies([match], limit=2))["p1"]] == ["p2", "p1"]


async def test_copies_of_several_matches_are_told_apart(index):
    for i in range(12):
        await index.apply(passages(f"p{i}", f"saying number{i % 3}", author=f"author{i}"), [])
    found = await index.fetch(["p0", "p1", "p2"])
    copies = await index.copies(list(found.values()))
    assert {i: {copy.post_id for copy in some} for i, some in copies.items()} == {
        f"p{n}": {f"p{i}" for i in range(12) if i % 3 == n} for n in range(3)
    }


# -- age


async def test_old_posts_are_found_when_the_time_reaches_back_and_go_for_good_in_the_end(index):
    old_ms = NOW_MS - WINDOW_MS - HOUR_MS
    await index.apply(passages("old", "bridge", "second piece", ms=old_ms), [])
    await index.apply(passages("gone", "bridge", "second piece", ms=NOW_MS - 31 * DAY_MS), [])
    await index.apply(passages("young", "bridge"), [])
    await index.maintain(NOW_MS)
    assert await words(index, "bridge") == ["young"]
    assert set(await words(index, "bridge", since_ms=old_ms)) == {"old", "young"}
    assert await words(index, "second piece", until_ms=NOW_MS - 1) == ["old"]
    assert await visible(index, ["old", "gone", "young"]) == {"old", "young"}
    assert await index.summary() == Summary(2, NOW_MS, warm_posts=1)
    await index.apply(passages("old", "bridge edited", version_us=2, ms=old_ms), [])
    assert await words(index, "second piece", since_ms=0) == []
    assert await words(index, "edited", since_ms=0) == ["old"]
    await index.apply([], [Removal("old", 9)])
    assert await words(index, "bridge", since_ms=0) == ["young"]


async def test_removals_are_remembered_for_eight_days_and_the_window(index):
    """T6. Counted from the removal: what it takes away is often old, and may come late."""
    await index.apply([], [Removal("p", 1)])
    CLOCK.now_ms = NOW_MS + WINDOW_MS + 8 * DAY_MS
    await aged(index)
    assert (await index.apply(passages("p", "text"), [])).stale == 1
    CLOCK.now_ms += 1
    await aged(index)
    assert (await index.apply(passages("p", "text"), [])).applied == 1


async def test_hidden_and_deleted_accounts_are_remembered_for_ever(index):
    await index.apply([], [], [change("hidden", 5), change("deleted", 5, author="ben")])
    CLOCK.now_ms += 1000 * DAY_MS
    await aged(index)
    await index.apply([*passages("a", "bridge"), *passages("b", "bridge", author="ben")], [])
    assert await visible(index, ["a", "b"]) == set()


# -- bad input


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda p: replace(p, vector=(math.nan, *p.vector[1:])), "not finite"),
        (lambda p: replace(p, vector=(math.inf, *p.vector[1:])), "not finite"),
        (lambda p: replace(p, vector=p.vector[:-1]), "383 dimensions, the index 384"),
        (lambda p: replace(p, vector=()), "0 dimensions"),
        (lambda p: replace(p, number=1), "not 0, 1, 2"),
        (lambda p: replace(p, post=replace(p.post, version_us=2**64)), "64 bits"),
        (lambda p: replace(p, post=replace(p.post, created_ms=-(2**70))), "64 bits"),
        (lambda p: replace(p, post=replace(p.post, likes=2**63)), "64 bits"),
    ],
    ids=["nan", "inf", "short", "none", "number", "version", "time", "likes"],
)
async def test_a_bad_passage_is_named_and_the_rest_can_be_applied_without_it(index, spoil, reason):
    good, bad, also_good = (passages(post_id, f"text {post_id}")[0] for post_id in ("good", "bad", "fine"))
    with pytest.raises(BadPassages, match=reason) as caught:
        await index.apply([good, spoil(bad), also_good], [Removal("gone", 1)])
    assert set(caught.value.reasons) == {"bad"}
    assert (await index.summary()) == Summary(0, None)
    batch = [p for p in (good, bad, also_good) if p.post.id not in caught.value.reasons]
    assert (await index.apply(batch, [])).applied == 2


async def test_large_batches_and_long_posts_are_taken_whole(index):
    whole = [p for i in range(300) for p in passages(f"p{i}", f"text{i}", f"more{i}")]
    report = await index.apply(whole, [Removal(f"r{i}", 1) for i in range(300)])
    assert (report.applied, report.removed, (await index.summary()).posts) == (300, 300, 300)
    assert await words(index, "more299") == ["p299"]
    await index.apply(passages("long", *(f"piece{i} {' ' * 5000}" for i in range(40))), [])
    assert await words(index, "piece39") == ["long"]


# -- again and again


def state_of(version):
    """A batch with something of everything."""
    return (
        [
            *passages("a", "bridge a", "more", version_us=version),
            *passages("x", "bridge x", author="xi"),
            *passages("r", "RT bridge x", repost_of="x", author="ben"),
            *passages("h", "bridge h", author="hidden"),
            *passages("d", "bridge d", author="deleted"),
            *bare("b", "a"),
        ],
        [Removal("x", 5), Removal("y", 6, "screened", if_newer=True)],
        [change("hidden", 5, author="hidden"), change("deleted", 5, author="deleted")],
    )


async def everything_of(index, ids):
    found = await index.search(Query("bridge", limit=100, since_ms=0))
    receipts = [await index.receipt(post_id) for post_id in ids]
    return sorted((m.post_id, m.number, m.text) for m in found), await visible(index, ids), receipts


async def test_a_batch_delivered_again_changes_nothing(index):
    """T13."""
    ids = ["a", "x", "r", "h", "d", "b", "y"]
    await index.apply(*state_of(1))
    once, summary = await everything_of(index, ids), await index.summary()
    CLOCK.now_ms += 5000
    await index.apply(*state_of(1))
    await index.apply((), *state_of(1)[1:])
    assert (await everything_of(index, ids), await index.summary()) == (once, summary)
    assert once[1] == {"a"}


# -- all of it: what is visible is the same

IDS = st.sampled_from(["a", "b", "c"])
AUTHORS = st.sampled_from(["ana", "ben"])
VERSIONS = st.integers(1, 4)
OPERATIONS = st.one_of(
    st.tuples(st.just("post"), IDS, VERSIONS, AUTHORS, st.integers(1, 3), st.sampled_from([None, None, "a", "b"])),
    st.tuples(st.just("removal"), IDS, VERSIONS, st.booleans()),
    st.tuples(st.just("account"), AUTHORS, VERSIONS, st.sampled_from(["active", "hidden", "hidden", "deleted"])),
    st.tuples(st.just("age"), st.integers(0, 20)),
)


async def perform(index, operation, number):
    kind, *rest = operation
    if kind == "post":
        post_id, version, author, pieces, original = rest
        texts = [f"word{number} piece{n}" for n in range(pieces)]
        original = original if original != post_id else None
        batch = passages(post_id, *texts, version_us=version, author=author, repost_of=original)
        return await index.apply(batch, [])
    if kind == "removal":
        post_id, version, if_newer = rest
        return await index.apply([], [Removal(post_id, version, if_newer=if_newer)])
    if kind == "account":
        author, version, state = rest
        return await index.apply([], [], [change(state, version, author)])
    return await aged(index)


async def aged(index):
    """As `maintain`, without the embedded index's vacuum, which takes a process and its time."""
    if isinstance(index, EmbeddedIndex):
        while await index._run(index._index.age, CLOCK.now_ms):
            pass
    else:
        await index.maintain(CLOCK.now_ms)


async def seen(index):
    await aged(index)
    ids = ["a", "b", "c"]
    found = await index.search(Query("", vector("any"), limit=50, since_ms=0))
    fetched = await index.fetch(ids)
    copies = await index.copies([replace(match, vector=()) for match in fetched.values()])
    return {
        "found": {(m.post_id, m.number, m.text, m.version_us, m.why["cosine"] > 0) for m in found},
        "order": [(m.post_id, m.number) for m in found if m.why["cosine"] > 0],
        "present": await index.present(ids),
        "fetched": {i: (m.text, m.version_us, m.account) for i, m in fetched.items()},
        "receipts": [await index.receipt(i) for i in ids],
        "copies": copies,
        "summary": await index.summary(),
    }


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(OPERATIONS, max_size=10))
def test_the_same_operations_leave_the_same_to_be_seen(embedded_index, operations):
    async def compare():
        CLOCK.now_ms = NOW_MS
        one, other = await emptied(embedded_index), await local()
        for number, operation in enumerate(operations):
            CLOCK.now_ms += operation[1] * DAY_MS if operation[0] == "age" else 1
            assert await perform(one, operation, number) == await perform(other, operation, number)
        assert await seen(one) == await seen(other)
        await other.close()

    asyncio.run(compare())
