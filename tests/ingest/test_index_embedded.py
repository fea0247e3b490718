"""One thread owns the embedded index; a search waits for one step of what else is under way."""

import asyncio
from dataclasses import replace

import pytest

from ingest.index import BadPassages, Query
from ingest.index_embedded import EmbeddedIndex
from ingest.index_layout import Layout, claim
from ingest.index_tier import IndexUnusable
from ingest.post import AccountChange, Removal
from tests.ingest.index_parts import clear, quick_folder
from tests.ingest.made import NOW_MS, passages, vector

DAY_MS = 24 * 3_600_000


@pytest.fixture(scope="module")
def shared():
    with quick_folder() as path:
        index = EmbeddedIndex(path, clock=lambda: NOW_MS)
        yield index
        asyncio.run(index.close())


@pytest.fixture
def index(shared):
    clear(shared)
    return shared


async def test_a_search_does_not_wait_for_the_whole_of_a_batch(index):
    batch = [p for i in range(640) for p in passages(f"p{i}", f"word{i}")]
    applying = asyncio.create_task(index.apply(batch, []))
    found = []
    while not applying.done():
        found.append(len(await index.present([f"p{i}" for i in range(640)])))
    assert (await applying).applied == 640
    assert any(0 < count < 640 for count in found), found
    assert found == sorted(found)


async def test_a_search_does_not_wait_for_all_that_is_moved(index):
    await index.apply([p for i in range(300) for p in passages(f"p{i}", "word", ms=NOW_MS - 5 * DAY_MS)], [])
    moving = asyncio.create_task(index.maintain(NOW_MS))
    warm = []
    while not moving.done():
        summary = await index.summary()
        warm.append(summary.warm_posts)
        assert summary.posts == 300
    await moving
    assert any(0 < count < 300 for count in warm), warm
    assert (await index.summary()).warm_posts == 300


async def test_everything_that_can_be_asked(index):
    await index.apply(passages("a", "harbour"), [Removal("gone", 5_000)], [AccountChange("test", "ben", "hidden", 1)])
    (match,) = await index.search(Query("harbour", vector("harbour"), now_ms=NOW_MS))
    assert match.post_id == "a"
    assert await index.present(["a", "gone"]) == {"a"}
    assert (await index.fetch(["a"]))["a"].text == "harbour"
    assert [copy.post_id for copy in (await index.copies([match]))["a"]] == ["a"]
    assert (await index.receipt("gone")).event_ms == 5
    summary = await index.summary()
    assert (summary.posts, summary.removals, summary.hidden_accounts) == (1, 1, 1)
    assert await index.copies([]) == {}


async def test_a_batch_with_a_bad_passage_is_refused_as_a_whole(index):
    good, bad = passages("good", "harbour")[0], replace(passages("bad", "x")[0], vector=())
    with pytest.raises(BadPassages, match="bad"):
        await index.apply([good, bad], [Removal("good", 1)], [AccountChange("test", "ana", "deleted", 1)])
    assert (await index.summary()).removals == 0
    assert (await index.apply([good], [])).applied == 1


def test_a_folder_that_cannot_be_used_is_refused_and_leaves_no_thread(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(IndexUnusable, match="neither an index"):
        EmbeddedIndex(tmp_path)
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier" / "edge_config.json").write_text("{}")
    with pytest.raises(IndexUnusable, match="made by an earlier version; move it away"):
        EmbeddedIndex(tmp_path / "earlier")


def test_a_folder_made_for_another_number_of_shards_is_refused(tmp_path):
    whole, part = tmp_path / "whole", tmp_path / "parts" / "shard-0"
    claim(whole, Layout(384))
    claim(part, Layout(384, 0, 2))
    claim(part, Layout(384, 0, 2))
    with pytest.raises(IndexUnusable, match="was made as shard 0 of 2, not as shard 0 of 3"):
        claim(part, Layout(384, 0, 3))
    with pytest.raises(IndexUnusable, match="was made as shard 0 of 2, not as shard 1 of 2"):
        claim(part, Layout(384, 1, 2))
    with pytest.raises(IndexUnusable, match="was made for one shard, not for 2"):
        claim(whole / "shard-0", Layout(384, 0, 2))
    with pytest.raises(IndexUnusable, match="neither an index nor an empty folder"):
        claim(part.parent, Layout(384))
    (whole / "layout.json").write_text('{"layout": 3, "dim": 384, "shard": 0, "shards": 1}')
    with pytest.raises(IndexUnusable, match="has layout 3"):
        claim(whole, Layout(384))
