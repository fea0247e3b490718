"""The archive on a local folder and on memory://, with the real Parquet files. Cases T2, T5, T6, T13, T18, T19, T23."""

import itertools
import pickle
from dataclasses import fields, replace

import fsspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.archive import Archive
from ingest.archive_rows import DamagedFile, newest, posts_of, read, table_of, to_bytes
from ingest.archive_store import HOUR_MS, ArchiveUnusable
from ingest.index import storable
from ingest.post import AccountChange, Author, Post, Removal, account_of
from ingest.versions import Newest

DAY_MS = 24 * HOUR_MS
TEN_MS = 1_783_159_200_000  # 2026-07-04T10:00Z
NUMBERS = itertools.count()


class Clock:
    def __init__(self, now_ms=TEN_MS + 60_000):
        self.now_ms = now_ms

    def __call__(self):
        return self.now_ms


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["folder", "memory"])
def url(request, tmp_path):
    if request.param == "folder":
        return str(tmp_path / "archive")
    return f"memory://archive-{next(NUMBERS)}"


@pytest.fixture
def archive(url, clock):
    return Archive(url, clock)


def made(post_id, text="text", *, ms=TEN_MS, version_us=1, author="ana", source="test", **rest):
    return Post(
        id=post_id,
        source=source,
        version_us=version_us,
        text=text,
        created_ms=ms,
        received_ms=rest.pop("received_ms", ms + 500),
        author=Author(author, f"{author}.example", author.title()),
        account=account_of(source, author),
        **rest,
    )


def held(archive, since_ms=0, until_ms=10 * TEN_MS):
    """What can be restored: id -> text."""
    posts = list(archive.restore(since_ms, until_ms))
    assert len({post.id for post in posts}) == len(posts)
    return {post.id: post.text for post in posts}


def files(url, under="posts"):
    fs, root = fsspec.core.url_to_fs(url)
    fs.invalidate_cache()
    return sorted(fs.find(f"{root}/{under}"))


def everything(url):
    """Every text that lies anywhere in the archive's files."""
    fs, _ = fsspec.core.url_to_fs(url)
    return sorted(text for path in files(url) for text in read(fs.cat_file(path), path)["text"].to_pylist())


# -- rows

TEXTS = st.text(st.characters(), max_size=40)  # surrogates, NUL, emoji, right-to-left marks: all of it
IDS = TEXTS.filter(bool)
INT64 = st.integers(-(2**63), 2**63 - 1)
COUNTS = st.integers(0, 2**53)
POSTS = st.builds(
    Post,
    id=IDS,
    source=TEXTS,
    version_us=INT64,
    text=TEXTS,
    created_ms=INT64,
    received_ms=INT64,
    author=st.builds(Author, TEXTS, TEXTS, TEXTS),
    lang=TEXTS,
    url=TEXTS,
    edited_ms=st.none() | INT64,
    reply_to=st.none() | IDS,
    quote_of=st.none() | IDS,
    repost_of=st.none() | IDS,
    labels=st.lists(TEXTS, max_size=3).map(tuple),
    indexable=st.booleans(),
    likes=COUNTS,
    reposts=COUNTS,
    replies=COUNTS,
    views=st.none() | COUNTS,
    conversation=st.none() | IDS,
    account=TEXTS,
)


def well_formed(post):
    """The post with its lone surrogates replaced, as every store has it."""
    author = Author(*(storable(getattr(post.author, field.name)) for field in fields(Author)))
    texts = {f.name: storable(v) for f in fields(Post) if isinstance(v := getattr(post, f.name), str)}
    return replace(post, author=author, labels=tuple(map(storable, post.labels)), **texts)


@settings(max_examples=60, deadline=None)
@given(st.lists(POSTS, max_size=4))
def test_a_post_comes_out_of_parquet_as_it_went_in(posts):
    restored = list(posts_of(read(to_bytes(table_of(posts)), "somewhere")))
    assert restored == [well_formed(post) for post in posts]


def test_every_field_of_a_post_has_a_column():
    """Whoever adds a field to Post is told here."""
    names = {field.name for field in fields(Post)} - {"author"} | {"author_id", "author_handle", "author_name"}
    assert set(table_of([]).column_names) == names


def test_ids_above_2_53_stay_what_they_are(archive):
    """T23."""
    post = made("x:1346889436626259968", author="2244994945123456789", reply_to="x:9007199254740993", likes=2**53)
    archive.write([replace(post, version_us=2**62 + 1)])
    assert list(archive.restore(0, 10 * TEN_MS)) == [replace(post, version_us=2**62 + 1)]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=12))
def test_newest_keeps_one_version_of_each_post(versions):
    table = newest(table_of([made(post_id, str(version), version_us=version) for post_id, version in versions]))
    expected = {}
    for post_id, version in versions:
        expected[post_id] = max(version, expected.get(post_id, version))
    assert {row["id"]: row["version_us"] for row in table.to_pylist()} == expected
    assert len(table) == len(expected)


@pytest.mark.parametrize("cut", [0, 3, 100, -1, -9])
def test_a_cut_file_is_damaged(cut):
    content = to_bytes(table_of([made("a")]))
    with pytest.raises(DamagedFile, match="somewhere"):
        read(content[:cut], "somewhere")


def test_a_flipped_bit_in_a_text_is_damage_and_not_another_text():
    content = bytearray(to_bytes(table_of([made("a", "harbour bridge " * 20)])))
    content[200] ^= 1
    with pytest.raises(DamagedFile):
        read(bytes(content), "somewhere")


# -- hours


def test_posts_lie_in_the_files_of_their_hour(archive, url):
    late = made("late", ms=TEN_MS - 30 * DAY_MS, received_ms=TEN_MS)
    archive.write([made("a"), made("b", ms=TEN_MS + HOUR_MS), made("c", ms=TEN_MS + 1), late])
    folders = [path.rsplit("/", 3)[1:3] for path in files(url)]
    assert folders == [
        ["day=2026-06-04", "hour=10"], ["day=2026-07-04", "hour=10"], ["day=2026-07-04", "hour=11"]
    ]  # fmt: skip
    assert set(held(archive)) == {"a", "b", "c", "late"}
    assert set(held(archive, TEN_MS, TEN_MS + 1)) == {"a", "c"}
    assert set(held(archive, TEN_MS + 1, TEN_MS + HOUR_MS)) == {"c", "b"}
    assert held(archive, TEN_MS + 2, TEN_MS + HOUR_MS - 1) == {}
    assert held(archive, TEN_MS + 5 * HOUR_MS, TEN_MS + 9 * HOUR_MS) == {}, "empty hours"


def test_a_future_post_lies_in_the_hour_of_its_arrival(archive):
    """T21."""
    archive.write([made("a", ms=TEN_MS + 400 * DAY_MS, received_ms=TEN_MS)])
    assert set(held(archive, TEN_MS, TEN_MS)) == {"a"}


def test_other_programs_can_read_the_files(archive, url):
    archive.write([made("a", "ägypten", labels=("news",))])
    (path,) = files(url)
    fs, _ = fsspec.core.url_to_fs(url)
    with fs.open(path) as file:
        (row,) = pq.read_table(file).to_pylist()
    assert (row["id"], row["text"], row["labels"], row["version_us"]) == ("a", "ägypten", ["news"], 1)


@pytest.mark.parametrize("ms", [-(2**62), 2**62])
def test_a_post_of_no_hour_is_refused_before_anything_is_written(archive, url, ms):
    with pytest.raises(ValueError, match="'odd': its time"):
        archive.write([made("fine"), made("odd", ms=ms)], [Removal("x", 1)])
    assert files(url) == files(url, "removed") == []


def test_a_number_beyond_64_bits_is_refused_before_anything_is_written(archive, url):
    with pytest.raises(OverflowError):
        archive.write([made("fine"), made("odd", version_us=2**64)], [Removal("x", 1)])
    assert files(url) == files(url, "removed") == []


# -- versions


def test_the_newest_version_wins_whatever_the_order(archive):
    """T5."""
    archive.write([made("a", "second", version_us=2)])
    assert archive.write([made("a", "first", version_us=1)]).stale == 1
    assert held(archive) == {"a": "second"}
    archive.write([made("a", "third", version_us=3)])
    assert held(archive) == {"a": "third"}


def test_the_same_again_changes_nothing(archive, url):
    """T13: what is written again after a crash."""
    posts, removals = [made("a"), made("b", ms=TEN_MS - DAY_MS)], [Removal("c", 5)]
    archive.write(posts, removals)
    before = files(url), files(url, "removed")
    report = archive.write(posts, removals)
    assert (report.posts, report.stale, report.erased) == (0, 2, 0)
    assert (files(url), files(url, "removed")) == before


def test_an_edit_takes_what_it_replaces_out_of_the_files(archive, url):
    """The old text is what its author wanted gone."""
    archive.write([made("a", "my address is ...", version_us=1), made("b", "other")])
    archive.write([made("a", "(edited)", version_us=2, edited_ms=TEN_MS)])
    assert everything(url) == ["(edited)", "other"]


def test_an_edit_that_moves_to_another_hour_leaves_no_older_one_behind(archive, url):
    archive.write([made("a", "old", version_us=1)])
    archive.write([made("a", "new", version_us=2, ms=TEN_MS - 3 * HOUR_MS, edited_ms=TEN_MS)])
    assert everything(url) == ["new"]
    assert archive.write([made("a", "older", version_us=1, edited_ms=TEN_MS)]).posts == 0
    assert held(archive) == {"a": "new"}


# -- removals


@pytest.mark.parametrize("if_newer", [True, False])
def test_a_removal_erases_the_post(archive, url, if_newer):
    """T18."""
    archive.write([made("a", version_us=5), made("b", "kept")])
    assert archive.write([], [Removal("a", 6, if_newer=if_newer)]).erased == 1
    assert everything(url) == ["kept"]
    assert held(archive) == {"b": "kept"}


def test_a_removal_of_a_post_of_any_hour_erases_it(archive, url):
    for day in range(20):
        archive.write([made(f"p{day}", f"day {day}", ms=TEN_MS - day * DAY_MS)])
    untouched = set(files(url))
    archive.write([], [Removal("p13", 9)])
    assert everything(url) == sorted(f"day {day}" for day in range(20) if day != 13)
    assert len(untouched - set(files(url))) == 1, "no other file is written anew"


def test_a_removal_before_the_post_keeps_it_out(archive, url):
    """T6."""
    archive.write([], [Removal("a", 5, if_newer=True)])
    assert archive.write([made("a", version_us=5)]).stale == 1
    assert archive.write([made("a", "back", version_us=6)]).posts == 1
    assert held(archive) == {"a": "back"}


def test_a_removal_is_remembered_by_the_next_archiver(archive, url, clock):
    archive.write([], [Removal("a", 5)])
    again = Archive(url, clock)
    assert again.write([made("a", version_us=5)]).stale == 1
    assert held(again) == {}


def test_a_removal_without_a_version_removes_what_is_newer_and_lets_only_newer_come_back(archive):
    archive.write([made("a", version_us=9)])
    archive.write([], [Removal("a", 1)])
    assert archive.write([made("a", version_us=9)]).stale == 1
    assert held(archive) == {}
    archive.write([made("a", "back", version_us=10)])
    assert held(archive) == {"a": "back"}


def test_a_removal_that_states_an_older_version_leaves_the_newer(archive):
    archive.write([made("a", version_us=9)])
    assert archive.write([], [Removal("a", 8, "screened", if_newer=True)]).erased == 0
    assert held(archive) == {"a": "text"}


def test_a_post_that_is_removed_and_back_in_one_batch_stays(archive, url):
    archive.write([made("a", "first", version_us=1)])
    left = Newest([Removal("a", 5), made("a", "back", version_us=6)])
    archive.write(left.posts, left.removals)
    assert everything(url) == ["back"]
    archive.write([made("r", "RT back", repost_of="a")])
    assert set(held(archive)) == {"a", "r"}


def test_an_absent_post_can_be_removed(archive):
    """T2."""
    assert archive.write([], [Removal("nobody", 1)]).erased == 0


def test_a_removal_takes_the_reposts_with_it_and_keeps_new_ones_out(archive, url):
    archive.write([made("x", "secret"), made("r", "RT secret", repost_of="x", author="ben", ms=TEN_MS + DAY_MS)])
    assert archive.write([], [Removal("x", 9)]).erased == 2
    assert everything(url) == []
    assert files(url) == [], "a file without a row is deleted"
    archive.write([made("s", "RT secret", repost_of="x", author="cem")])
    assert everything(url) == []
    archive.write([made("x", "again", version_us=10), made("t", "RT again", repost_of="x", version_us=10)])
    assert held(archive) == {"x": "again", "t": "RT again"}


def test_a_repost_that_went_with_its_post_does_not_come_again_with_it(archive, url):
    """Whatever comes first, as in the index."""
    repost = made("r", "RT secret", repost_of="x", author="ben")
    archive.write([made("x", "secret"), repost, made("s", "RT RT secret", repost_of="r", author="cem")])
    archive.write([], [Removal("x", 9)])
    assert everything(url) == []
    archive.write([made("x", "again", version_us=10), repost])
    assert held(archive) == {"x": "again"}


def test_a_post_that_becomes_a_repost_of_a_removed_one_goes_with_what_reposts_it(archive, url):
    archive.write([made("r"), made("s", "RT text", repost_of="r", author="cem")], [Removal("x", 9)])
    archive.write([made("r", "RT secret", version_us=2, repost_of="x")])
    assert everything(url) == []
    archive.write([made("r", "back", version_us=3), made("s", "RT text", repost_of="r", author="cem")])
    assert everything(url) == ["back"]


def test_a_post_is_found_in_a_file_with_many(url, clock):
    """Whose footer is longer than what is read of it at first."""
    Archive(url, clock).write([made(f"p{i}", ms=TEN_MS + i % 1000, author=f"a{i}") for i in range(4000)])
    assert Archive(url, clock).write([], [Removal("p1234", 9)]).erased == 1
    assert Archive(url, clock).write([], [], [change("deleted", 5, author="a77")]).erased == 1
    assert len(held(Archive(url, clock))) == 3998


def test_removals_are_forgotten_after_eight_days(url, clock):
    Archive(url, clock).write([], [Removal("a", 5)])
    clock.now_ms += 8 * DAY_MS
    assert Archive(url, clock).write([made("a", version_us=5)]).stale == 1
    clock.now_ms += 1
    assert Archive(url, clock).write([made("a", version_us=5)]).posts == 1


# -- accounts


def change(state, version_us, author="ana"):
    return AccountChange("test", author, state, version_us)


def test_a_deleted_account_is_erased_with_what_others_repost_of_it(archive, url, clock):
    """T19."""
    archive.write([made("a"), made("b", ms=TEN_MS - DAY_MS), made("c", "ben's", author="ben")])
    archive.write([made("r", "RT text", repost_of="b", author="ben")])
    archive.write([], [], [change("deleted", 5)])
    assert everything(url) == ["ben's"]
    again = Archive(url, clock)
    again.write([made("d", version_us=99)], [], [change("active", 100)])
    again.write([made("s", "RT text", repost_of="b", author="ben")])
    assert everything(url) == ["ben's"]


def test_a_hidden_account_is_kept_and_not_restored_until_it_is_active(archive, clock, url):
    """T19."""
    archive.write([made("a"), made("c", "ben's", author="ben"), made("r", "RT text", repost_of="a", author="ben")])
    archive.write([], [], [change("hidden", 5)])
    archive.write([made("new", ms=TEN_MS + 1)])
    assert held(archive) == {"c": "ben's"}
    archive.write([], [], [change("active", 4)])
    assert held(Archive(url, clock)) == {"c": "ben's"}, "an older change"
    archive.write([], [], [change("active", 6)])
    assert set(held(archive)) == {"a", "c", "r", "new"}


def test_a_deletion_is_not_undone_by_another_archiver_that_did_not_know_of_it(url, clock):
    one, other = Archive(url, clock), Archive(url, clock)
    one.write([], [], [change("deleted", 5)])
    clock.now_ms += 1
    other.write([], [], [change("active", 9)])
    again = Archive(url, clock)
    again.write([made("a", version_us=99)])
    assert held(again) == {}


def test_an_account_is_known_by_its_hash_when_its_id_is_not_shown(archive, url):
    """What ingest.byline shows of an author who is named like an e-mail address."""
    archive.write([replace(made("a"), author=Author("author-xyz"))])
    archive.write([], [], [change("deleted", 5)])
    assert everything(url) == []


# -- many small files


def test_small_files_of_an_hour_become_one_when_it_is_quiet(archive, url, clock):
    for i in range(5):
        archive.write([made(f"p{i}", ms=TEN_MS + i)])
    assert len(files(url)) == 5
    clock.now_ms += HOUR_MS
    archive.write([made("other", ms=TEN_MS + HOUR_MS)])
    assert len(files(url)) == 2
    assert set(held(archive)) == {*(f"p{i}" for i in range(5)), "other"}


def test_an_hour_never_has_many_files(archive, url, clock):
    for i in range(40):
        clock.now_ms += 1000
        archive.write([made(f"p{i}", ms=TEN_MS + i)])
        assert len(files(url)) <= 9
    assert set(held(archive)) == {f"p{i}" for i in range(40)}


def test_merging_keeps_the_newest_version_and_forgets_what_was_removed(archive, url, clock):
    for version in range(1, 10):
        archive.write([made("a", f"text {version}", version_us=version)])
    clock.now_ms += HOUR_MS
    archive.write([], [])
    assert everything(url) == ["text 9"]


def test_a_file_that_slipped_past_a_removal_is_not_restored_and_cleaned_when_it_is_merged(archive, url, clock):
    """Two writers at once: one merged what the other erased from."""
    archive.write([made("a", "gone"), made("b", "kept")])
    (path,) = files(url)
    fs, _ = fsspec.core.url_to_fs(url)
    before = fs.cat_file(path)
    archive.write([], [Removal("a", 9)])
    fs.pipe_file(path, before)
    assert everything(url) == ["gone", "kept", "kept"]
    assert held(archive) == {"b": "kept"}
    clock.now_ms += HOUR_MS
    archive.write([])
    assert everything(url) == ["kept"]


def test_a_repost_by_an_archiver_that_did_not_know_of_the_removal_is_not_restored(url, clock):
    one, other = Archive(url, clock), Archive(url, clock)
    one.write([], [Removal("x", 9)])
    other.write([made("r", "RT gone", repost_of="x")])
    assert everything(url) == ["RT gone"]
    assert held(Archive(url, clock)) == {}


def test_the_ledger_is_merged(archive, url, clock):
    for i in range(70):
        clock.now_ms += 1
        archive.write([], [Removal(f"p{i}", 5)])
    assert len(files(url, "removed")) <= 65
    again = Archive(url, clock)
    assert again.write([made(f"p{i}", version_us=5) for i in range(70)]).stale == 70


# -- crashes and damage


class Torn(OSError):
    """The store stops answering."""


def archive_that_stops(url, clock, *, after, before_write=False):
    """An archive whose store fails at the write or deletion of that number."""
    archive = Archive(url, clock)
    store = archive._store
    calls = itertools.count(1)

    def stopping(real):
        def call(*given):
            number = next(calls)
            if number == after and before_write:
                raise Torn
            real(*given)
            if number == after:
                raise Torn

        return call

    store.write, store.delete = stopping(store.write), stopping(store.delete)
    return archive


@pytest.mark.parametrize("before_write", [True, False])
@pytest.mark.parametrize("after", range(1, 8))
def test_a_crash_at_any_step_is_healed_by_the_same_call_again(url, clock, after, before_write):
    """Between the new file and the deletion of the old one, too: no removed post is ever restored."""
    first = Archive(url, clock)
    repost = made("r", "RT gone", repost_of="a", ms=TEN_MS - 2 * DAY_MS, author="ben")
    first.write([made("a", "gone"), repost, made("b", "kept"), made("c", "old", version_us=1)])
    posts = [made("c", "new", version_us=2, edited_ms=TEN_MS), made("d", "late", ms=TEN_MS - DAY_MS)]
    stopping = archive_that_stops(url, clock, after=after, before_write=before_write)
    try:
        stopping.write(posts, [Removal("a", 9)])
    except Torn:
        if files(url, "removed"):
            assert not {"a", "r"} & held(Archive(url, clock)).keys()
        assert {"b", "c"} <= set(held(Archive(url, clock)))
    again = Archive(url, clock)
    again.write(posts, [Removal("a", 9)])
    assert held(again) == {"b": "kept", "c": "new", "d": "late"}
    assert set(everything(url)) == {"kept", "new", "late"}


def test_a_crash_while_merging_loses_and_doubles_nothing(url, clock):
    archive = Archive(url, clock)
    for i in range(3):
        archive.write([made(f"p{i}", f"text {i}")])
    clock.now_ms += HOUR_MS
    stopping = archive_that_stops(url, clock, after=1)
    with pytest.raises(Torn):
        stopping.write([])
    assert len(files(url)) == 4
    assert len(held(Archive(url, clock))) == 3
    clock.now_ms += HOUR_MS
    Archive(url, clock).write([], [Removal("p1", 9)])
    assert set(everything(url)) == {"text 0", "text 2"}
    clock.now_ms += HOUR_MS
    Archive(url, clock).write([])
    assert everything(url) == ["text 0", "text 2"]


def test_what_a_killed_writer_left_half_written_is_no_file_and_is_swept(tmp_path, clock):
    url = str(tmp_path)
    archive = Archive(url, clock)
    archive.write([made("a")])
    (path,) = files(url)
    unfinished = tmp_path / "posts/day=2026-07-04/hour=10" / f"{clock.now_ms:013d}-0123456789ab.parquet.unfinished"
    unfinished.write_bytes(b"PAR1 half")
    again = Archive(url, clock)
    again.write([])
    assert (held(again), unfinished.exists()) == ({"a": "text"}, True), "somebody may be writing it"
    clock.now_ms += 2 * HOUR_MS
    Archive(url, clock).write([])
    assert not unfinished.exists()
    assert files(url) == [path]
    assert dict(again.damaged) == {}


def test_a_damaged_file_is_told_and_the_others_are_restored(archive, url, clock):
    archive.write([made("a"), made("b", ms=TEN_MS - DAY_MS), made("c", ms=TEN_MS - 2 * DAY_MS)])
    fs, _ = fsspec.core.url_to_fs(url)
    cut, flipped, _ = files(url)
    fs.pipe_file(cut, fs.cat_file(cut)[:-20])
    content = bytearray(fs.cat_file(flipped))
    content[100] ^= 1
    fs.pipe_file(flipped, bytes(content))
    again = Archive(url, clock)
    assert held(again) == {"a": "text"}
    assert set(again.damaged) == {cut, flipped}
    assert again.write([made("d")], [Removal("a", 9), Removal("b", 9)]).erased == 1
    assert held(again) == {"d": "text"}
    stats = again.stats()
    assert (stats.posts, set(stats.damaged)) == (1, {cut, flipped})


def test_a_foreign_file_is_left_alone(archive, url):
    archive.write([made("a")])
    (path,) = files(url)
    fs, _ = fsspec.core.url_to_fs(url)
    fs.pipe_file(path.rsplit("/", 1)[0] + "/notes.txt", b"mine")
    assert held(archive) == {"a": "text"}
    assert archive.stats().files == 1


def test_a_store_that_fails_is_no_damage(url, clock):
    """A network fault must not let a removal pass a file by."""
    Archive(url, clock).write([made("a")])
    archive = Archive(url, clock)

    def unreachable(*_):
        raise Torn

    real, archive._store.read = archive._store.read, unreachable
    with pytest.raises(Torn):
        archive.write([], [Removal("a", 9)])
    assert not archive.damaged
    archive._store.read = real
    archive.write([], [Removal("a", 9)])
    assert everything(url) == []


def test_a_damaged_ledger_refuses_to_open(archive, url, clock):
    archive.write([], [Removal("a", 5)])
    (path,) = files(url, "removed")
    fs, _ = fsspec.core.url_to_fs(url)
    fs.pipe_file(path, b"PAR1 nothing")
    with pytest.raises(DamagedFile, match="removed"):
        Archive(url, clock)


@pytest.mark.parametrize("url", ["nosuch://x/y", "s3://bucket/x", "/proc/none/x"])
def test_a_url_that_cannot_be_used_is_told_at_once(url):
    with pytest.raises(ArchiveUnusable, match=f"archive {url}") as caught:
        Archive(url)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_file_instead_of_a_folder_is_refused(tmp_path):
    (tmp_path / "thesis").write_text("mine")
    with pytest.raises(ArchiveUnusable):
        Archive(str(tmp_path / "thesis"))
    assert (tmp_path / "thesis").read_text() == "mine"


# -- numbers


def test_stats_and_count(archive, url):
    archive.write([made("a"), made("b", ms=TEN_MS + 1), made("c", ms=TEN_MS + HOUR_MS)], [Removal("x", 1)])
    stats = archive.stats()
    assert (stats.files, stats.posts, stats.hours, stats.remembered) == (2, 3, 2, 1)
    assert (stats.first_ms, stats.last_ms) == (TEN_MS, TEN_MS + HOUR_MS)
    assert stats.bytes > 1000
    assert archive.count(TEN_MS, TEN_MS) == 2
    assert archive.count(0, TEN_MS - 1) == 0


# -- all of it

MODEL_IDS = st.sampled_from(["a", "b", "c"])
HOURS = {"a": 0, "b": 1, "c": 2}
POST_OPS = st.tuples(st.just("post"), MODEL_IDS, st.integers(1, 5), st.booleans(), st.sampled_from(["", "a", "b"]))
REMOVAL_OPS = st.tuples(st.just("removal"), MODEL_IDS, st.integers(1, 5), st.booleans(), st.just(""))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(POST_OPS | REMOVAL_OPS, max_size=4), max_size=6))
def test_any_history_leaves_what_the_rule_says(history):
    clock = Clock()
    url = f"memory://model-{next(NUMBERS)}"
    archive = Archive(url, clock)
    state = {}
    for number, batch in enumerate(history):
        clock.now_ms += 1000
        left = Newest()
        for kind, post_id, version, flag, repost_of in batch:
            if kind == "post":
                edited_ms = TEN_MS if flag else None
                original = repost_of if repost_of and repost_of != post_id else None
                ms = TEN_MS - HOURS[post_id] * HOUR_MS
                text = f"{post_id}{version} {number}"
                left.add(made(post_id, text, version_us=version, ms=ms, edited_ms=edited_ms, repost_of=original))
            else:
                left.add(Removal(post_id, version, if_newer=flag))
        archive.write(left.posts, left.removals)
        archive.write(left.posts, left.removals)
        apply_rule(state, left)
        apply_rule(state, left)
    live = {post_id: post.text for post_id, (_, post) in state.items() if post}
    assert held(archive) == live
    assert held(Archive(url, clock)) == live


def apply_rule(state, left):
    """The rule as plainly as it can be said: post id -> (version, the post or None when removed)."""
    for removal in left.removals:
        version_us, post = state.get(removal.post_id, (removal.version_us, None))
        if not (removal.if_newer and post is not None and version_us > removal.version_us):
            state[removal.post_id] = (max(version_us, removal.version_us), None)
    remove_reposts(state)
    for post in left.posts:
        if state.get(post.id, (0, None))[0] < post.version_us:
            state[post.id] = (post.version_us, post)
    remove_reposts(state)


def remove_reposts(state):
    """Of removed posts, and of what goes by this."""
    while reposts := [i for i, (_, p) in state.items() if p and state.get(p.repost_of, (0, p))[1] is None]:
        for post_id in reposts:
            state[post_id] = (state[post_id][0], None)
