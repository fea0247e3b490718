import math
import os
import pickle
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.index import BadPassages, Query
from ingest.index_edge import EdgeIndex
from ingest.index_edge_changes import entries
from ingest.index_rules import slices
from ingest.index_tier import IndexUnusable
from ingest.post import Removal
from tests.ingest.index_parts import clear, count, meaning, quick_folder, words
from tests.ingest.made import DIM, NOW_MS, passages, vector


@pytest.fixture(scope="module")
def folder():
    with quick_folder() as path:
        yield path / "index"


@pytest.fixture(scope="module")
def shared(folder):
    index = EdgeIndex(folder, clock=lambda: NOW_MS)
    yield index
    index.close()


@pytest.fixture
def index(shared):
    """Empty for each test, but opened once: making and loading one takes longer than most tests."""
    clear(shared)
    return shared


# -- what is applied is found


def test_an_applied_post_is_found_by_the_very_next_search_by_words_and_by_meaning(index):
    text = "The harbour bridge is closed"
    for i in range(20):
        report = index.apply(passages(f"p{i}", f"{text} number{i}"), [])
        assert (report.applied, report.stale, report.removed) == (1, 0, 0)
        assert words(index, f"number{i}") == [f"p{i}"]
        assert meaning(index, f"{text} number{i}") == [f"p{i}"]
    assert count(index) == 20
    assert index.present(["p0", "p19", "p20"]) == {"p0", "p19"}


def test_a_match_holds_everything_that_a_citation_shows(index):
    (passage,) = passages("p", "Bridge closed", lang="en-GB", author="ben", version_us=7, repost_of="original")
    index.apply([passage], [])
    (match,) = index.search(Query("bridge closed", passage.vector, now_ms=NOW_MS))
    whole = passage.post
    assert (match.post_id, match.number, match.text, match.source) == ("p", 0, "Bridge closed", "test")
    assert (match.author_id, match.author_handle, match.author_name) == ("ben", "ben.example", "Ben")
    assert (match.url, match.lang, match.version_us) == (whole.url, "en-GB", 7)
    assert (match.created_ms, match.sort_ms, match.repost_of) == (NOW_MS, NOW_MS, "original")
    assert match.vector == pytest.approx(passage.vector, abs=1e-3)  # in half precision
    assert match.why["cosine"] == pytest.approx(1, abs=1e-3)
    assert match.why["words"] == 1.0
    assert match.why["bm25"] > 0
    assert match.score == pytest.approx(match.why["relevance"] * match.why["recency"])


def test_a_candidate_by_one_way_carries_the_score_of_the_other(index):
    for i in range(150):
        index.apply(passages(f"filler{i}", f"bridge filler{i}"), [])
    index.apply(passages("target", "bridge and twenty more words that make this match by words the weakest of all"), [])
    text = "bridge and twenty more words that make this match by words the weakest of all"
    (match,) = [m for m in index.search(Query("bridge", vector(text), limit=300)) if m.post_id == "target"]
    assert match.why["bm25"] > 0
    assert match.why["cosine"] == pytest.approx(1, abs=1e-3)


def test_a_newer_post_wins_over_an_equal_older_one(index):
    index.apply(passages("old", "storm warning", ms=NOW_MS - 48 * 3_600_000), [])
    index.apply(passages("new", "storm warning", ms=NOW_MS), [])
    assert words(index, "storm warning", now_ms=NOW_MS) == ["new", "old"]
    old, new = sorted(index.search(Query("storm", now_ms=NOW_MS)), key=lambda match: match.sort_ms)
    assert 1 < old.why["recency"] < new.why["recency"]


def test_filters_by_time_language_source_and_author(index):
    index.apply(passages("a", "bridge", ms=NOW_MS - 1000, lang="en-US", source="one", author="ana"), [])
    index.apply(passages("b", "bridge", ms=NOW_MS, lang="de", source="two", author="ben"), [])
    assert words(index, "bridge", since_ms=NOW_MS) == ["b"]
    assert words(index, "bridge", until_ms=NOW_MS - 1) == ["a"]
    assert set(words(index, "bridge", since_ms=NOW_MS - 1000, until_ms=NOW_MS)) == {"a", "b"}
    assert words(index, "bridge", languages=("en",)) == ["a"]
    assert words(index, "bridge", sources=("two",)) == ["b"]
    assert words(index, "bridge", authors=("ana",)) == ["a"]
    assert words(index, "bridge", authors=("nobody",)) == []


def test_the_limit_is_kept_and_may_exceed_what_there_is(index):
    index.apply([p for i in range(5) for p in passages(f"p{i}", f"bridge {i}")], [])
    assert len(words(index, "bridge", limit=3)) == 3
    assert len(words(index, "bridge", limit=1000)) == 5


def test_an_empty_index_answers(index):
    assert index.search(Query("bridge", vector("bridge"), now_ms=NOW_MS)) == []
    assert (count(index), index.summary().newest_ms, index.present(["p"])) == (0, None, set())
    assert index.present([]) == set()
    report = index.apply([], [])
    assert (report.applied, report.stale, report.removed) == (0, 0, 0)


@pytest.mark.parametrize(
    ("text", "lang", "question"),
    [
        ("Die Hafenbrücken sind gesperrt", "de", "Warum ist die Hafenbrücke gesperrt?"),
        ("Los puentes del puerto están cerrados", "es", "¿Está cerrado el puente?"),
        ("La policía cierra el puente", "es", "policia"),
        ("港口大桥因暴风雨关闭了", "zh", "大桥发生了什么？"),
        ("東京で大きな地震がありました", "ja", "地震は大丈夫ですか"),
        ("الجسر مغلق بسبب العاصفة", "ar", "ماذا حدث للجسر؟"),
        ("Мосты закрыты из-за шторма", "ru", "Что с мостами?"),
        ("Bridges closed on route 66 until 9:30", "en", "Which bridge is closing?"),
        ("World Cup 2034 draw", "en", "2034"),
        ("#HarbourBridge is shut", "en", "harbour"),
        ("สะพานปิดเพราะพายุ", "th", "สะพาน"),
    ],
)
def test_a_post_is_found_by_a_word_of_its_own_language(index, text, lang, question):
    index.apply(passages("other", "something else entirely, 别的东西, 別のこと, شيء آخر"), [])
    for i, tagged in enumerate((lang, "")):  # with and without the source telling the language
        index.apply(passages(f"p{i}", text, lang=tagged), [])
    assert set(words(index, question)) == {"p0", "p1"}


def test_a_question_of_stop_words_finds_nothing_by_words(index):
    index.apply(passages("p", "what is happening with the bridge", lang="und"), [])
    assert words(index, "What is it?") == []
    assert words(index, "") == []
    assert words(index, "\U0001f62d\U0001f62d") == []


def test_texts_without_words_are_kept_and_found_by_meaning(index):
    index.apply(passages("emoji", "\U0001f62d\U0001f62d"), [])
    (match,) = index.search(Query("bridge", vector("\U0001f62d\U0001f62d")))
    assert (match.post_id, match.why["bm25"], match.why["words"]) == ("emoji", 0.0, 0.0)


def test_odd_ids_and_lone_surrogates(index):
    ids = ["日本語 🌍 \n id", "x" * 10_000, "", "\ud800 lone", "a#1", "a", "\x00"]
    for i, post_id in enumerate(ids):
        index.apply(passages(post_id, f"odd\ud83d id {i}", author="\udfff"), [])
    assert count(index) == len(ids)
    assert index.present(ids) == set(ids)
    matches = index.search(Query("odd", limit=20))
    assert {match.text for match in matches} == {f"odd\ufffd id {i}" for i in range(len(ids))}
    index.apply([], [Removal(post_id, 9) for post_id in ids])
    assert (count(index), index.present(ids)) == (0, set())


# -- versions and removals


def test_the_newest_version_wins_whatever_the_order(index):
    index.apply(passages("p", "second text", version_us=2), [])
    report = index.apply(passages("p", "first text", version_us=1), [])
    assert (report.applied, report.stale) == (0, 1)
    assert words(index, "second") == ["p"]
    assert words(index, "first") == []
    assert index.apply(passages("p", "third text", version_us=3), []).applied == 1
    assert (words(index, "second"), words(index, "third")) == ([], ["p"])


def test_the_same_version_again_is_applied_again(index):
    index.apply(passages("p", "text", version_us=2), [])
    assert index.apply(passages("p", "text", version_us=2), []).applied == 1
    assert count(index) == 1


def test_several_versions_of_a_post_in_one_batch(index):
    batch = [p for n in (1, 3, 2) for p in passages("p", f"text{n}", f"more{n}", version_us=n)]
    report = index.apply(batch, [])
    assert (report.applied, report.stale) == (2, 1)
    assert (words(index, "text3"), words(index, "text2"), count(index)) == (["p"], [], 1)


def test_a_removed_post_is_gone_with_its_text_its_vectors_and_its_pieces(index):
    index.apply(passages("p", "harbour bridge", "closed today", version_us=5), [])
    assert index.apply([], [Removal("p", 6)]).removed == 1
    assert (words(index, "bridge"), meaning(index, "harbour bridge")) == ([], [])
    assert (count(index), index.present(["p"]), index.summary().newest_ms) == (0, set(), None)
    ((point,), _) = index.hot.page(None, 1000)
    assert point.payload == {
        "version_us": 6, "pieces": 0, "removed_ms": NOW_MS, "event_ms": 0, "reason": "deleted",
    }  # fmt: skip
    assert point.vector == {}


def test_a_removal_of_an_unknown_post_keeps_it_from_coming(index):
    index.apply([], [Removal("p", 5)])
    assert index.apply(passages("p", "text", version_us=5), []).stale == 1
    assert (words(index, "text"), count(index)) == ([], 0)
    assert index.apply(passages("p", "text", version_us=6), []).applied == 1
    assert words(index, "text") == ["p"]


def test_a_removal_older_than_the_post_removes_it_all_the_same(index):
    index.apply(passages("p", "text", version_us=9), [])
    index.apply([], [Removal("p", 1)])
    assert words(index, "text") == []
    assert index.apply(passages("p", "text", version_us=9), []).stale == 1
    assert index.apply(passages("p", "text", version_us=10), []).applied == 1


def test_a_version_with_nothing_to_show_removes_only_what_is_not_newer(index):
    index.apply(passages("p", "text", version_us=9), [])
    assert index.apply([], [Removal("p", 8, "screened", if_newer=True)]).stale == 1
    assert words(index, "text") == ["p"]
    assert index.apply([], [Removal("p", 9, "screened", if_newer=True)]).removed == 1
    assert words(index, "text") == []


def test_a_post_and_its_removal_in_one_batch_leave_nothing(index):
    report = index.apply(passages("p", "text", version_us=3), [Removal("p", 3)])
    assert (report.applied, report.removed, count(index)) == (1, 1, 0)


def test_a_post_that_shrinks_loses_its_later_pieces_and_a_stale_one_touches_none(index):
    index.apply(passages("p", "alpha", "beta", "gamma", version_us=2), [])
    assert words(index, "gamma") == ["p"]
    assert count(index) == 1
    index.apply(passages("p", "old", "older", version_us=1), [])
    assert [words(index, text) for text in ("beta", "gamma", "older")] == [["p"], ["p"], []]
    index.apply(passages("p", "delta", version_us=3), [])
    assert [words(index, text) for text in ("delta", "beta", "gamma")] == [["p"], [], []]
    index.apply(passages("p", "alpha", "beta", version_us=2), [])
    assert [words(index, text) for text in ("alpha", "beta")] == [[], []]


MODEL_IDS = st.sampled_from(["a", "b"])
UPSERT = st.tuples(st.just("post"), MODEL_IDS, st.integers(1, 4), st.integers(1, 3))
REMOVAL = st.tuples(st.just("removal"), MODEL_IDS, st.integers(1, 4), st.booleans())


def rule(events):
    """The version rule, as plainly as it can be said: post id -> (version, pieces' texts), no pieces if removed."""
    state = {}
    for i, (kind, post_id, version, more) in enumerate(events):
        held, texts = state.get(post_id, (0, ()))
        if kind == "post" and (held <= version if texts else held < version):
            state[post_id] = (version, texts_of(i, more))
        elif kind == "removal" and not (more and texts and held > version):
            state[post_id] = (max(held, version), ())
    return state


def texts_of(i, pieces):
    return tuple(f"word{i}x{n}" for n in range(pieces))


def batch_of(events):
    """As many of the first events as have their posts before their removals."""
    kinds = [kind for kind, *_ in events]
    ends = [i for i in range(1, len(kinds)) if kinds[i - 1 : i + 1] == ["removal", "post"]]
    return events[: ends[0]] if ends else events


@settings(max_examples=60, deadline=None)
@given(st.lists(UPSERT | REMOVAL, max_size=12), st.data())
def test_any_interleaving_ends_as_the_rule_says(shared, events, data):
    index = shared
    clear(index)
    position = 0
    while position < len(events):  # in batches of any size: posts first, then removals, as `apply` takes them
        batch = batch_of(events[position : position + data.draw(st.integers(1, 4))])
        posts, removals = [], []
        for i, (kind, post_id, version, more) in enumerate(batch, position):
            if kind == "post":
                posts += passages(post_id, *texts_of(i, more), version_us=version)
            else:
                removals.append(Removal(post_id, version, if_newer=more))
        index.apply(posts, removals)
        position += len(batch)
    expected = rule(events)
    live = {post_id: texts for post_id, (_, texts) in expected.items() if texts}
    held = index.search(Query("", vector("any"), limit=100))
    assert {(match.post_id, match.number, match.text) for match in held} == {
        (post_id, number, text) for post_id, texts in live.items() for number, text in enumerate(texts)
    }
    assert index.present(["a", "b"]) == set(live)
    held_entries = entries(index.hot, {"a", "b"})
    assert {post_id: entry.version_us for post_id, entry in held_entries.items()} == {
        post_id: version for post_id, (version, _) in expected.items()
    }


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
    ],
)
def test_a_bad_passage_is_named_and_the_rest_can_be_applied_without_it(index, spoil, reason):
    good, bad, also_good = (passages(post_id, f"text {post_id}")[0] for post_id in ("good", "bad", "fine"))
    with pytest.raises(BadPassages, match=reason) as caught:
        index.apply([good, spoil(bad), also_good], [Removal("gone", 1)])
    assert set(caught.value.reasons) == {"bad"}
    assert "text" not in str(caught.value)
    assert count(index) == 0
    batch = [p for p in (good, bad, also_good) if p.post.id not in caught.value.reasons]
    assert index.apply(batch, []).applied == 2
    assert set(words(index, "text")) == {"good", "fine"}


def test_a_removal_with_an_impossible_version_is_named(index):
    with pytest.raises(BadPassages, match="64 bits"):
        index.apply([], [Removal("p", 2**63)])


def test_the_error_survives_pickling():
    error = pickle.loads(pickle.dumps(BadPassages({"p": "vector is not finite"})))
    assert (error.reasons, str(error)) == ({"p": "vector is not finite"}, "'p': vector is not finite")
    assert str(pickle.loads(pickle.dumps(IndexUnusable("/x", "broken")))) == "index /x: broken"


def test_slices_keep_order_and_never_cut_a_version():
    posts = [p for i in range(10) for p in passages(f"p{i}", *(["t"] * (1 + i % 3)))]
    removals = [Removal(f"r{i}", 1) for i in range(5)]
    cut = list(slices(posts, removals, max_points=4))
    assert [p for some, _ in cut for p in some] == posts
    assert [r for _, some in cut for r in some] == removals
    assert all(len(some) + len(gone) <= 4 for some, gone in cut)
    assert all(some[0].number == 0 for some, _ in cut if some)
    assert [len(some) for some, _ in slices(passages("p", *(["t"] * 9)), [], max_points=4)] == [9]


# -- the folder


def test_everything_is_there_after_a_clean_restart(index_folder):
    index = EdgeIndex(index_folder)
    index.apply(passages("p", "harbour bridge"), [Removal("gone", 5)])
    index.close()
    again = EdgeIndex(index_folder)
    assert words(again, "bridge") == ["p"]
    assert again.apply(passages("gone", "text", version_us=5), []).stale == 1
    again.close()


OWNER = """
import sys
from pathlib import Path
from ingest.index_edge import EdgeIndex
from ingest.post import Removal
from tests.ingest.made import passages

index = EdgeIndex(Path(sys.argv[1]))
for i in range(300):
    index.apply(passages(f"p{i}", f"text number{i}", f"more{i}", version_us=1), [])
    if i == 150:
        index.flush()
    if i % 3 == 0:
        index.apply([], [Removal(f"p{i}", 2)])
    if i % 5 == 1:
        index.apply(passages(f"p{i}", f"edited{i}", version_us=3), [])
    print(i, flush=True)
sys.stdin.read()
"""


def test_a_killed_owner_loses_nothing_it_had_applied(index_folder):
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(index_folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout and owner.stdin
    done = next(int(line) for line in owner.stdout if int(line) >= 290)
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    owner.stdin.close()
    owner.stdout.close()
    index = EdgeIndex(index_folder)
    removed = [i for i in range(done + 1) if i % 3 == 0 and i % 5 != 1]
    assert index.present([f"p{i}" for i in range(done + 1)]) == {f"p{i}" for i in range(done + 1) if i not in removed}
    for i in (0, 1, 2, 149, 150, 151, done):
        is_edited, is_removed = i % 5 == 1, i in removed
        assert words(index, f"number{i}") == ([] if is_edited or is_removed else [f"p{i}"])
        assert words(index, f"more{i}") == ([] if is_edited or is_removed else [f"p{i}"])
        assert words(index, f"edited{i}") == ([f"p{i}"] if is_edited else [])
    assert index.apply(passages("p0", "back", version_us=2), []).stale == 1
    index.close()


def test_a_second_owner_is_refused(index, folder):
    with pytest.raises(IndexUnusable, match="WAL"):
        EdgeIndex(folder)


def test_another_dimension_is_refused(folder, shared):
    with pytest.raises(IndexUnusable, match="holds vectors of 384 dimensions, not 768"):
        EdgeIndex(folder, dim=DIM * 2)


def test_a_foreign_folder_and_a_file_are_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    for path in (tmp_path, tmp_path / "thesis.txt"):
        with pytest.raises(IndexUnusable, match="neither an index nor an empty folder"):
            EdgeIndex(path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("damage", ["config", "segment", "missing", "layout", "current"])
def test_a_damaged_index_is_refused(index_folder, damage):
    folder = index_folder
    EdgeIndex(folder).close()
    if damage == "config":
        (folder / "hot" / "1" / "edge_config.json").write_text("{")
    elif damage == "layout":
        (folder / "layout.json").write_text("[]")
    elif damage == "current":
        (folder / "hot" / "CURRENT").write_text("7")
    else:
        for path in (folder / "hot").rglob("segment.json"):
            path.write_text("not json") if damage == "segment" else path.unlink()
    with pytest.raises(IndexUnusable, match=str(folder)):
        EdgeIndex(folder)


# -- reposts


def repost(post_id, of, **fields):
    return passages(post_id, "harbour bridge", "closed today", repost_of=of, **fields)


def test_a_removal_takes_the_reposts_of_the_post_with_it(index):
    index.apply([*passages("x", "harbour bridge"), *repost("r1", "x"), *repost("r2", "y")], [])
    index.apply([*repost("r3", "x"), *passages("z", "bridge")], [])
    assert index.apply([], [Removal("x", 2, "screened", if_newer=True)]).removed == 1
    assert set(words(index, "bridge closed today")) == {"r2", "z"}
    assert (index.present(["x", "r1", "r2", "r3", "z"]), count(index)) == ({"r2", "z"}, 2)


def test_a_removal_that_is_not_obeyed_leaves_the_reposts(index):
    index.apply([*passages("x", "harbour bridge", version_us=5), *repost("r", "x")], [])
    assert index.apply([], [Removal("x", 4, "screened", if_newer=True)]).stale == 1
    assert index.present(["x", "r"]) == {"x", "r"}


def test_a_repost_of_a_removed_post_is_refused_until_the_post_is_back(index):
    index.apply([], [Removal("x", 2)])
    index.apply(repost("r", "x"), [])
    assert index.present(["r"]) == set()
    assert index.apply(passages("r", "words of its own"), []).stale == 1
    index.apply(passages("r", "words of its own", version_us=2), [])
    index.apply(repost("r", "x", version_us=3), [])
    assert index.present(["r"]) == set() and count(index) == 0
    index.apply([*repost("s", "x"), *passages("x", "harbour bridge", version_us=3), *repost("t", "x")], [])
    assert index.present(["x", "s", "t"]) == {"x", "s", "t"}


def test_a_repost_in_the_batch_of_the_removal_does_not_outlive_it(index):
    index.apply(repost("r", "x"), [Removal("x", 2)])
    assert index.present(["r"]) == set()


# -- age


HOUR_MS = 3_600_000
WINDOW_MS = 72 * HOUR_MS


def grow_old(index, now_ms):
    while index.age(now_ms):
        pass


def test_expiry_takes_old_posts_and_keeps_young_ones_and_their_removals(index):
    index.apply(passages("old", "bridge", "second piece", ms=NOW_MS - 10), [])
    index.apply(passages("young", "bridge", ms=NOW_MS), [Removal("gone", NOW_MS * 1000)])
    assert index.summary().newest_ms == NOW_MS
    grow_old(index, NOW_MS + WINDOW_MS)
    assert (words(index, "bridge"), words(index, "second piece")) == (["young"], [])
    assert (count(index), index.present(["old", "young"])) == (1, {"young"})
    assert index.apply(passages("gone", "text", version_us=NOW_MS * 1000), []).stale == 1


def test_more_posts_than_there_may_be_lose_the_oldest(index_folder):
    index = EdgeIndex(index_folder, max_posts=3, clock=lambda: NOW_MS)
    for i in (4, 1, 3, 0, 2):
        index.apply(passages(f"p{i}", "bridge", "and more", ms=NOW_MS - i), [Removal(f"gone{i}", 1)])
    grow_old(index, NOW_MS)
    assert set(words(index, "bridge")) == {"p0", "p1", "p2"}
    assert index.present(["p3", "p4"]) == set()
    assert index.summary().removals == 5
    index.close()


def test_removals_are_forgotten_long_after_their_posts(index):
    """Counted from the removal: what it takes away is often old, and may come late."""
    index.apply([], [Removal("gone", 1)])
    week_ms = 7 * 24 * HOUR_MS
    grow_old(index, NOW_MS + week_ms)
    assert index.apply(passages("gone", "text", version_us=1), []).stale == 1
    grow_old(index, NOW_MS + 2 * week_ms)
    assert index.apply(passages("gone", "text", version_us=1), []).applied == 1
