"""Several indexes as one. That they hold what the rules say is in test_index_model.py."""

import asyncio
from dataclasses import replace

import pytest

from ingest.index import BadPassages, Query
from ingest.index_embedded import EmbeddedIndex
from ingest.index_shards import ShardedIndex
from ingest.post import AccountChange, Passage, Receipt, Removal
from tests.ingest.index_parts import clear, quick_folder
from tests.ingest.made import NOW_MS, passages, post, vector


@pytest.fixture(scope="module")
def both():
    with quick_folder() as path:
        made = [
            EmbeddedIndex(path / f"shard-{n}", warm_days=0, clock=lambda: NOW_MS, shard=n, shards=2) for n in range(2)
        ]
        yield made
        asyncio.run(ShardedIndex(made).close())


@pytest.fixture
def index(both):
    for shard in both:
        clear(shard)
    return ShardedIndex(both)


def ids_of(index, shard, number, prefix="p"):
    ids = (f"{prefix}{i}" for i in range(1000))
    return [post_id for post_id in ids if index.shard_of(post_id) == shard][:number]


async def test_posts_are_spread_and_found_as_one(index, both):
    ids = [f"p{i}" for i in range(100)]
    report = await index.apply([p for i in ids for p in passages(i, f"harbour {i}", ms=NOW_MS - int(i[1:]))], [])
    assert (report.applied, report.removed) == (100, 0)
    parts = [(await shard.summary()).posts for shard in both]
    assert sum(parts) == 100 and min(parts) > 30
    assert await index.present([*ids, "none"]) == set(await index.fetch(ids)) == set(ids)
    assert (await index.summary()).posts == 100
    assert (await index.summary()).newest_ms == NOW_MS
    assert len(await index.search(Query("harbour", limit=7))) == 7
    assert len(await index.search(Query("harbour", limit=500))) == 100


async def test_the_best_of_all_shards_come_first_scored_together(index):
    """Each shard has divided by the best of its own: a weak post alone in its shard must not look strong."""
    (strong, second), (weak,) = ids_of(index, 0, 2), ids_of(index, 1, 1)
    await index.apply(passages(strong, "harbour bridge"), [])
    await index.apply(passages(second, "harbour and many other words"), [])
    await index.apply(passages(weak, "harbour among even more other words than that, so that it is the weakest"), [])
    matches = await index.search(Query("harbour bridge", vector("harbour bridge"), now_ms=NOW_MS))
    assert matches[0].post_id == strong
    by_id = {match.post_id: match for match in matches}
    assert by_id[weak].why["relevance"] < by_id[strong].why["relevance"] / 2
    assert matches[0].score == pytest.approx(matches[0].why["relevance"] * matches[0].why["recency"])


async def test_a_removal_is_counted_once_and_takes_reposts_wherever_they_would_be(index):
    (original,), (repost,) = ids_of(index, 0, 1), ids_of(index, 1, 1)
    await index.apply([*passages(original, "harbour"), *passages(repost, "harbour said", repost_of=original)], [])
    assert await index.present([original, repost]) == {original, repost}
    report = await index.apply([], [Removal(original, 5_000_000, "consent"), Removal("unknown", 5)])
    assert (report.removed, report.stale) == (2, 0)
    assert await index.present([original, repost]) == set()
    assert await index.receipt(original) == Receipt(original, "consent", 5_000, NOW_MS)
    assert (await index.apply(passages(repost, "harbour said", repost_of=original, version_us=9), [])).applied == 1
    assert await index.present([repost]) == set()
    assert (await index.apply(passages(original, "harbour", version_us=6_000_000), [])).applied == 1
    assert await index.present([original]) == {original}
    assert await index.receipt(original) is None
    assert (await index.apply([], [Removal(original, 5_000_000, if_newer=True)])).stale == 1
    assert await index.present([original]) == {original}


async def test_an_account_is_hidden_and_deleted_in_all_shards(index):
    ids = [post_id for shard in range(2) for post_id in ids_of(index, shard, 3)]
    await index.apply([p for post_id in ids for p in passages(post_id, "harbour")], [])
    await index.apply([], [], [AccountChange("test", "ana", "hidden", 1)])
    assert await index.present(ids) == set()
    assert (await index.summary()).hidden_accounts == 1
    await index.apply([], [], [AccountChange("test", "ana", "active", 2)])
    assert await index.present(ids) == set(ids)
    assert (await index.apply([], [], [AccountChange("test", "ana", "deleted", 3)])).removed == 6
    assert await index.present(ids) == set()


async def test_reposts_follow_the_account_of_the_post_that_they_repeat(index):
    """Only the shard that holds that post knows whose it is."""
    (original,), reposts = ids_of(index, 0, 1), ids_of(index, 1, 3, "r")
    await index.apply(passages(original, "harbour"), [])
    await index.apply([p for r in reposts for p in passages(r, "harbour said", repost_of=original, author="ben")], [])
    assert await index.present(reposts) == set(reposts)
    await index.apply([], [], [AccountChange("test", "ana", "hidden", 1)])
    assert await index.present([original, *reposts]) == set()
    await index.apply([], [], [AccountChange("test", "ana", "active", 2)])
    assert await index.present([original, *reposts]) == {original, *reposts}
    await index.apply([], [], [AccountChange("test", "ana", "deleted", 3)])
    late = ids_of(index, 1, 1, "late")[0]
    await index.apply(passages(late, "harbour said", repost_of=original, author="ben"), [])
    assert await index.present([original, late, *reposts]) == set()


async def test_copies_come_from_all_shards(index):
    (first, other), (later,) = ids_of(index, 0, 2), ids_of(index, 1, 1)
    await index.apply(passages(first, "Bridge closed", ms=NOW_MS - 5), [])
    await index.apply(passages(later, "bridge closed!", ms=NOW_MS - 3, author="ben"), [])
    await index.apply(passages(other, "bridge closed", ms=NOW_MS - 4, author="cleo"), [])
    await index.apply([Passage(post("r", "", repost_of=later, ms=NOW_MS - 2), 0, "", ())], [])
    found = await index.fetch([first, later])
    copies = await index.copies([found[first], found[later]])
    same = {first, other} if found[first].saying != found[later].saying else {first, other, later}
    assert {copy.post_id for copy in copies[first]} == same
    assert [copy.post_id for copy in copies[later]][-1] == "r"
    assert [c.sort_ms for c in copies[first]] == sorted(c.sort_ms for c in copies[first])
    assert len((await index.copies([found[first]], 1))[first]) == 1


async def test_a_bad_passage_is_refused_before_any_shard_has_changed(index):
    good, bad = ids_of(index, 0, 1)[0], ids_of(index, 1, 1)[0]
    with pytest.raises(BadPassages):
        await index.apply([*passages(good, "harbour"), replace(passages(bad, "x")[0], vector=(1.0,))], [])
    assert (await index.summary()).posts == 0


class Broken:
    """A shard that does not answer."""

    def __getattr__(self, name):
        async def call(*arguments):
            raise ConnectionError(name)

        return call


async def test_a_shard_that_fails_fails_the_call_and_the_batch_can_come_again(index, both):
    broken = ShardedIndex([both[0], Broken()])
    batch = [p for i in range(20) for p in passages(f"p{i}", "harbour")]
    for call in (
        broken.apply(batch, []), broken.search(Query("harbour")), broken.fetch(["p1"]), broken.present(["p1"]),
        broken.copies([]), broken.summary(), broken.maintain(NOW_MS),
    ):  # fmt: skip
        with pytest.raises(ConnectionError):
            await call
    assert (await index.apply(batch, [])).applied == 20
    assert (await index.summary()).posts == 20
