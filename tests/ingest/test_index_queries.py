"""What can be asked of the embedded index: filters, times that cannot be believed, copies, receipts."""

from dataclasses import replace

import pytest

from ingest.index import Query
from ingest.index_bm25 import question_terms
from ingest.index_edge import EdgeIndex
from ingest.post import AccountChange, Passage, Receipt, Removal
from tests.ingest.index_parts import clear, quick_folder, words
from tests.ingest.made import NOW_MS, passages, post, vector

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def clock():
    return [NOW_MS]


@pytest.fixture(scope="module")
def shared(clock):
    with quick_folder() as path:
        index = EdgeIndex(path, clock=lambda: clock[0])
        yield index
        index.close()


@pytest.fixture
def index(shared, clock):
    clear(shared)
    clock[0] = NOW_MS
    return shared


# -- filters

FILTERS = [
    ({"since_ms": NOW_MS}, "b"),
    ({"until_ms": NOW_MS - 1}, "ac"),
    ({"languages": ("EN",)}, "a"),
    ({"languages": ("en-US", "de")}, "ab"),
    ({"sources": ("two",)}, "b"),
    ({"authors": ("ANA",)}, "a"),
    ({"authors": ("@Ana.Example", "ben")}, "ab"),
    ({"authors": ("nobody",)}, ""),
    ({"without_authors": ("ben.example", "@CLEO")}, "a"),
    ({"without_authors": ("nobody",)}, "abc"),
    ({"authors": ("ana", "ben"), "without_authors": ("ana",)}, "b"),
    ({"labels": ("spam", "news")}, "ab"),
    ({"without_labels": ("spam",)}, "ac"),
    ({"labels": ("news",), "without_labels": ("spam",)}, "a"),
    ({"min_likes": 1}, "ab"),
    ({"min_likes": 5}, "b"),
    ({"min_likes": 6}, ""),
    ({"min_reposts": 2}, "b"),
    ({"min_replies": 3}, "c"),
    ({"conversation": "a"}, "ac"),
    ({"conversation": "c"}, "c"),
    ({"conversation": "elsewhere"}, ""),
    ({"sources": ("two",), "languages": ("en",)}, ""),
    ({"sources": ("one", "two"), "min_likes": 1, "labels": ("spam",), "since_ms": 0}, "b"),
]


@pytest.fixture(scope="module")
def three(shared):
    clear(shared)
    early = NOW_MS - 1000
    shared.apply(passages("a", "bridge", ms=early, lang="en_GB", source="one", labels=("news",), likes=1), [])
    labels = ("news", "spam")
    b = passages(
        "b", "bridge", lang="de", source="two", author="ben", labels=labels, likes=5, reposts=2, replies=2
    )  # fmt: skip
    shared.apply(b, [])
    shared.apply(passages("c", "bridge", ms=early, lang="", author="cleo", conversation="a", replies=3), [])
    return shared


@pytest.mark.parametrize(("fields", "expected"), FILTERS)
def test_a_filter_keeps_what_it_says_by_words_and_by_meaning(three, fields, expected):
    assert sorted(words(three, "bridge", **fields)) == sorted(expected)
    by_meaning = three.search(Query("", vector("any"), **fields))
    assert sorted(match.post_id for match in by_meaning) == sorted(expected)


def test_filters_find_what_scores_lowest_of_all(index):
    """They are not applied to the best candidates only."""
    index.apply([p for i in range(300) for p in passages(f"p{i}", "bridge bridge")], [])
    index.apply(passages("weak", "bridge and many more words, so that it is the weakest", author="ben"), [])
    assert words(index, "bridge", authors=("ben",)) == ["weak"]


def test_a_hidden_account_s_posts_take_no_place_of_others(index):
    index.apply([p for i in range(300) for p in passages(f"p{i}", "bridge bridge", author="spammer")], [])
    index.apply(passages("weak", "bridge and many more words, so that it is the weakest"), [])
    index.apply([], [], [AccountChange("test", "spammer", "hidden", 1)])
    assert words(index, "bridge") == ["weak"]


def test_a_match_tells_all_that_was_stored(index):
    links = {"reply_to": "up", "quote_of": "quoted", "conversation": "top"}
    fields = {**links, "labels": ("a", "b"), "likes": 1, "reposts": 2, "replies": 3}
    index.apply(passages("p", "Bridge closed!", **fields), [])
    index.apply(passages("q", "BRIDGE  closed! https://x.example"), [])
    by_id = {match.post_id: match for match in index.search(Query("bridge"))}
    match = by_id["p"]
    assert {name: getattr(match, name) for name in fields} == fields
    assert (match.account, match.clock, match.first_ms) == (passages("p", "x")[0].post.account, "", None)
    assert match.saying and match.saying == by_id["q"].saying
    plain = by_id["q"]
    assert (plain.labels, plain.likes, plain.conversation, plain.quote_of) == ((), 0, None, None)
    assert index.fetch(["p", "none"])["p"].text == "Bridge closed!"
    assert set(index.fetch(["p", "none"])) == {"p"}


# -- time


def clocked(post_id, text, created_ms, received_ms=NOW_MS):
    return [Passage(replace(post(post_id, text, ms=received_ms), created_ms=created_ms), 0, text, vector(text))]


def test_t21_a_post_whose_time_cannot_be_believed_is_never_fresh(index):
    """From 2019, imported, dated ahead: no boost; and a time ahead is no later than its arrival."""
    index.apply(clocked("fresh", "harbour one", NOW_MS - 5 * 60_000), [])
    index.apply(clocked("ahead", "harbour two", NOW_MS + 4 * 24 * HOUR_MS), [])
    index.apply(clocked("import", "harbour six", NOW_MS - 2 * HOUR_MS - 24 * HOUR_MS, NOW_MS - HOUR_MS), [])
    by_id = {match.post_id: match for match in index.search(Query("harbour", now_ms=NOW_MS))}
    assert by_id["fresh"].why["recency"] > 1.2
    assert (by_id["ahead"].why["recency"], by_id["import"].why["recency"]) == (1.0, 1.0)
    assert (by_id["ahead"].clock, by_id["import"].clock, by_id["fresh"].clock) == ("future", "backdated", "")
    assert by_id["ahead"].sort_ms == NOW_MS
    assert words(index, "harbour", now_ms=NOW_MS)[0] == "fresh"
    assert words(index, "harbour", since_ms=NOW_MS + 1) == []
    assert index.summary().newest_ms == NOW_MS - 5 * 60_000


def test_t21_equal_times_and_scores_are_ordered_by_id(index):
    names = [f"p{i}" for i in range(9, 0, -1)]
    index.apply([p for name in names for p in passages(name, "harbour")], [])
    assert words(index, "harbour", now_ms=NOW_MS) == sorted(names)
    assert words(index, "harbour", now_ms=NOW_MS, limit=3) == sorted(names)[:3]


def test_recency_follows_the_half_life_and_the_share_of_words_the_question(index):
    index.apply(passages("old", "storm warning", ms=NOW_MS - HOUR_MS), [])
    short, long = (
        index.search(Query("storm", now_ms=NOW_MS, half_life_ms=half_life))[0].why["recency"]
        for half_life in (HOUR_MS // 4, 100 * HOUR_MS)
    )
    assert 1 < short < 1.05 < long
    question = Query("storm warning", vector("else"), bm25_share=1.0)
    assert index.search(question)[0].why["relevance"] == pytest.approx(1.0)


def test_terms_replace_those_of_the_text(index):
    index.apply([*passages("a", "harbour"), *passages("b", "bridge")], [])
    terms = question_terms("harbour").vector
    weighed = tuple(zip(terms.indices, terms.values, strict=True))
    (match,) = index.search(Query("bridge", terms=weighed))
    assert (match.post_id, match.why["words"]) == ("a", 0.0)


# -- copies and receipts


def test_copies_are_the_same_words_and_the_reposts_the_earliest_first(index):
    index.apply(passages("third", "Bridge closed! https://t.example/1", ms=NOW_MS - 1, author="cleo"), [])
    index.apply(passages("first", "bridge CLOSED!", ms=NOW_MS - 3, author="ana"), [])
    index.apply([Passage(post("repost", "", ms=NOW_MS - 2, repost_of="first", author="dan"), 0, "", ())], [])
    index.apply(passages("other", "bridge open", ms=NOW_MS - 9, author="cleo"), [])
    index.apply(passages("later", "something else", ms=NOW_MS, author="ana"), [])
    first = index.fetch(["first"])["first"]
    copies = index.copies(first)
    assert [(c.post_id, c.sort_ms, c.is_repost) for c in copies] == [
        ("first", NOW_MS - 3, False),
        ("repost", NOW_MS - 2, True),
        ("third", NOW_MS - 1, False),
    ]
    assert [c.is_known_author for c in copies] == [False, False, True]  # what ana says later proves nothing
    assert copies[0].account == first.account
    assert [c.post_id for c in index.copies(first, limit=2)] == ["first", "repost"]
    third = index.fetch(["third"])["third"]
    assert [c.post_id for c in index.copies(third)] == ["first", "third"]


def test_texts_without_a_word_of_their_own_are_no_copies_of_each_other(index):
    index.apply([Passage(post(name, "", repost_of="gone"), 0, "", ()) for name in ("r", "s")], [])
    index.apply(passages("a", "https://t.example/1"), [])
    index.apply(passages("b", "https://t.example/2"), [])
    assert [c.post_id for c in index.copies(index.fetch(["a"])["a"])] == ["a"]


def test_a_receipt_says_when_a_post_went_and_keeps_the_first_time_of_a_removal_that_comes_twice(index, clock):
    index.apply(passages("a", "bridge", version_us=1), [])
    assert index.receipt("a") is None
    index.apply([], [Removal("a", 5_000_000, "consent")])
    clock[0] += 60_000
    index.apply([], [Removal("a", 5_000_000, "consent"), Removal("a", 4_000_000, "deleted")])
    assert index.receipt("a") == Receipt("a", "consent", 5_000, NOW_MS)
    assert index.receipt("never heard of") is None
    index.apply([], [Removal("a", 7_000_000, "screened")])
    assert index.receipt("a") == Receipt("a", "screened", 7_000, NOW_MS + 60_000)
    index.apply(passages("a", "bridge again", version_us=8_000_000), [])
    assert index.receipt("a") is None


# -- the cases


def test_t6_a_removal_before_its_post_or_before_a_repeat_of_it_stands(index):
    index.apply([], [Removal("p", 5)])
    index.apply(passages("p", "bridge", version_us=5), [])
    index.apply(passages("q", "bridge", version_us=1), [Removal("q", 5)])
    index.apply(passages("q", "bridge", version_us=1), [])
    assert (words(index, "bridge"), index.present(["p", "q"])) == ([], set())


def test_t13_forced_repeats_change_no_number_of_points(index):
    batch = [p for i in range(100) for p in passages(f"p{i}", f"bridge {i}", "second piece")]
    removals = [Removal(f"p{i}", 2) for i in range(10)]
    for _ in range(3):
        index.apply(batch, removals)
        index.apply(batch[: len(batch) // 2], [])
        assert index.hot.points == 90 * 2 + 10
        assert index.summary().posts == 90


def test_t14_and_t18_what_is_acknowledged_is_there_or_gone_for_the_very_next_question(index):
    for i in range(20):
        index.apply(passages(f"p{i}", f"word{i}"), [])
        assert words(index, f"word{i}") == [f"p{i}"]
        index.apply([], [Removal(f"p{i}", 2)])  # the removal holds no text and no version that the network gave
        assert (words(index, f"word{i}"), index.present([f"p{i}"]), index.fetch([f"p{i}"])) == ([], set(), {})
