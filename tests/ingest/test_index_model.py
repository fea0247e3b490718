"""Whatever happens in whatever order: the index, with a warm tier or in shards, holds what the rules say."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.index import Query
from ingest.index_edge_changes import entries
from ingest.index_embedded import EmbeddedIndex
from ingest.index_shards import ShardedIndex
from ingest.post import AccountChange, Passage, Removal
from tests.ingest.index_model import Model
from tests.ingest.index_parts import clear, quick_folder
from tests.ingest.made import NOW_MS, passages, vector

DAY_MS = 24 * 3_600_000
# id -> author, what it reposts, age in days. Two of one author, a bare repost, one with a text, one of an old post.
POSTS = {
    "new": ("ana", None, 0),
    "old": ("ana", None, 5),
    "other": ("ben", None, 5),
    "bare": ("ben", "new", 0),
    "textual": ("cleo", "new", 4),
    "of old": ("cleo", "old", 0),
}
IDS = st.sampled_from(sorted(POSTS))
VERSIONS = st.integers(1, 4)
CHANGES = st.one_of(
    st.tuples(st.just("post"), IDS, VERSIONS, st.integers(1, 3)),
    st.tuples(st.just("post"), IDS, VERSIONS, st.integers(1, 3)),
    st.tuples(st.just("removal"), IDS, VERSIONS, st.booleans()),
    st.tuples(
        st.just("account"), st.sampled_from(["ana", "ben", "cleo"]), VERSIONS,
        st.sampled_from(["active", "hidden", "hidden", "deleted"]),
    ),
)  # fmt: skip
BATCHES = st.lists(st.tuples(st.lists(CHANGES, max_size=5), st.booleans()), max_size=8)


@pytest.fixture(scope="module")
def tiered():
    with quick_folder() as folder:
        index = EmbeddedIndex(folder, clock=lambda: NOW_MS)
        yield index
        asyncio.run(index.close())


@pytest.fixture(scope="module")
def shards():
    with quick_folder() as folder:
        made = [EmbeddedIndex(folder / f"shard-{n}", clock=lambda: NOW_MS, shard=n, shards=3) for n in range(3)]
        yield made
        asyncio.run(ShardedIndex(made).close())


def version_of(post_id, version_us, pieces, text):
    author, repost_of, days = POSTS[post_id]
    texts = [f"{post_id} {text} piece{n}" for n in range(pieces)]
    made = passages(
        post_id, *texts, version_us=version_us, author=author, repost_of=repost_of, ms=NOW_MS - days * DAY_MS
    )
    return [Passage(replace(made[0].post, text=""), 0, "", ())] if post_id == "bare" else made


def batch_of(changes, number):
    posts, removals, accounts = [], [], []
    for i, (kind, name, version_us, more) in enumerate(changes):
        if kind == "post":
            posts += version_of(name, version_us, more, f"{number}x{i}")
        elif kind == "removal":
            removals.append(Removal(name, version_us, if_newer=more))
        else:
            accounts.append(AccountChange("test", name, more, version_us))
    return posts, removals, accounts


async def found(index):
    matches = await index.search(Query("", vector("any"), limit=200, since_ms=0))
    assert len({(match.post_id, match.number) for match in matches}) == len(matches), "found twice"
    return {(match.post_id, match.number, match.text) for match in matches}


async def holds(index, model):
    expected = model.found()
    assert await found(index) == expected
    ids = {post_id for post_id, _, _ in expected}
    assert await index.present(sorted(POSTS)) == set(await index.fetch(sorted(POSTS))) == ids
    assert (await index.summary()).posts == len(ids)


async def run(index, batches):
    model = Model()
    for number, (changes, is_old_moved) in enumerate(batches):
        batch = batch_of(changes, number)
        await index.apply(*batch)
        model.apply(*batch)
        if is_old_moved:
            await index.maintain(NOW_MS)
        await holds(index, model)
    return model


@settings(max_examples=50, deadline=None)
@given(BATCHES)
def test_hot_and_warm_hold_what_the_rules_say(tiered, batches):
    clear(tiered)
    model = asyncio.run(run(tiered, batches))
    hot, warm = (entries(tier, POSTS) for tier in tiered.tiers)
    assert not hot.keys() & warm.keys()
    held = {post_id: (entry.version_us, entry.pieces > 0) for post_id, entry in {**warm, **hot}.items()}
    assert held == model.versions()


@settings(max_examples=20, deadline=None)
@given(BATCHES)
def test_three_shards_hold_what_the_rules_say(shards, batches):
    for shard in shards:
        clear(shard)
    asyncio.run(run(ShardedIndex(shards), batches))
