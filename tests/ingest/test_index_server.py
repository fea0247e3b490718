"""The server index over HTTP: what it sends, and what it makes of every fault. Its rules: tests/contracts."""

import asyncio
import pickle

import pytest
from qdrant_client import AsyncQdrantClient, models

from ingest.index import ApplyReport, Query, Summary
from ingest.index_server import ServerIndex, connect
from ingest.index_server_calls import ATTEMPTS, REQUEST_BYTES, IndexUnavailable
from ingest.post import AccountChange, Removal
from tests.contracts.index_kinds import CLOCK, local, no_sleep, words
from tests.ingest.made import DIM, NOW_MS, passages, vector
from tests.ingest.qdrant_rest import Server

pytestmark = [
    pytest.mark.filterwarnings("ignore:Payload indexes have no effect:UserWarning"),
    pytest.mark.filterwarnings("ignore:Local mode performs exact:UserWarning"),
    pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection:UserWarning"),
]


@pytest.fixture(autouse=True)
def clock():
    CLOCK.now_ms = NOW_MS


@pytest.fixture
async def server():
    async with Server().running() as running:
        yield running


@pytest.fixture
async def index(server):
    client = AsyncQdrantClient(url=server.url, check_compatibility=False, timeout=2)
    made = await ServerIndex.open(client, "posts", url=server.url, clock=CLOCK, sleep=no_sleep)
    server.asked.clear()
    yield made
    await made.close()


def batch(version=1):
    return (
        [
            *passages("a", "harbour bridge", "closed today", version_us=version),
            *passages("x", "storm", author="xi"),
            *passages("r", "RT storm", repost_of="x", author="ben"),
            *passages("h", "hidden storm", author="hidden"),
            *passages("d", "deleted storm", author="deleted"),
        ],
        [Removal("x", 5), Removal("y", 6, "screened", if_newer=True)],
        [AccountChange("test", "hidden", "hidden", 5), AccountChange("test", "deleted", "deleted", 5)],
    )


async def points(server):
    records, _ = await server.client.scroll("posts", limit=1000, with_payload=True, with_vectors=True)
    return {record.id: (record.payload, sorted(record.vector)) for record in records}


# -- over the wire


async def test_posts_are_found_over_http_and_matches_are_whole(index):
    text = "日本語 🌍 bridge \u202e \x00"
    (passage,) = passages("1346889436626259968", text, version_us=2**62 + 1, labels=("a", "b"))
    assert await index.apply([passage], []) == ApplyReport(applied=1)
    (match,) = await index.search(Query("bridge", passage.vector, now_ms=NOW_MS))
    assert (match.post_id, match.text, match.version_us, match.labels) == (
        "1346889436626259968", text, 2**62 + 1, ("a", "b")
    )  # fmt: skip
    assert match.vector == pytest.approx(passage.vector, abs=1e-6)
    assert set(match.why) == {"bm25", "cosine", "relevance", "recency", "words"}
    assert (await index.copies([match]))[match.post_id][0].post_id == match.post_id
    assert await index.summary() == Summary(1, NOW_MS)


async def test_every_change_waits_until_it_can_be_seen(index, server):
    """T14."""
    await index.apply(*batch())
    await index.maintain(NOW_MS)
    kinds = ("/points/batch", "/points/delete", "/points/payload")
    waits = {(kind, query.get("wait")) for kind in kinds for path, query, _ in server.asked if path.endswith(kind)}
    assert waits == {(kind, "true") for kind in kinds}


async def test_a_search_never_leaves_out_what_the_graph_lacks_and_scores_with_whole_vectors(index, server):
    await index.search(Query("bridge", vector("bridge")))
    (body,) = [body for path, _, body in server.asked if path.endswith("/query/batch")]
    (params,) = [one.params for one in models.QueryRequestBatch.model_validate_json(body).searches if one.params]
    assert (params.indexed_only, params.quantization.rescore) == (False, True)


async def test_a_search_takes_three_round_trips(index, server):
    await index.apply([p for i in range(300) for p in passages(f"p{i}", f"bridge number{i % 7}")], [])
    server.calls.clear()
    found = await index.search(Query("bridge number1", vector("bridge number2"), limit=20))
    assert len(found) == 20
    assert dict(server.calls) == {"query": 2, "points": 1}
    server.calls.clear()
    copies = await index.copies(found[:5])
    assert dict(server.calls) == {"query": 2}
    assert all(copies[match.post_id] for match in found[:5])


async def test_requests_stay_below_what_a_server_takes(index, server):
    long = "\U0001f600" * 1500
    await index.apply([p for i in range(150) for p in passages(f"p{i}", *(f"{n} {long}" for n in range(4)))], [])
    assert (await index.summary()).posts == 150
    assert len(server.bodies) > 3
    assert max(server.bodies) < REQUEST_BYTES * 1.05


# -- faults


@pytest.mark.parametrize("fault", ["503", "429", "408", "500 after", "lost"])
async def test_a_fault_that_passes_changes_nothing_in_the_end(index, server, fault):
    """T13: retries with the same ids, also when the server has done it already."""
    server.faults = Every([fault, fault, "fine"])
    assert await index.apply(*batch()) == ApplyReport(applied=4, stale=1, removed=2)
    server.faults = Every(["fine"])
    assert await index.present(["a", "x", "r", "h", "d"]) == {"a"}
    faulty = await points(server)
    async with Server().running() as other:
        client = AsyncQdrantClient(url=other.url, check_compatibility=False)
        smooth = await ServerIndex.open(client, "posts", clock=CLOCK)
        await smooth.apply(*batch())
        assert await points(other) == faulty
        await smooth.close()


class Every:
    """The same faults again and again."""

    def __init__(self, faults):
        self.faults, self.place = faults, 0

    def __bool__(self):
        return True

    def popleft(self):
        self.place += 1
        return self.faults[(self.place - 1) % len(self.faults)]


async def test_a_search_is_asked_again(index, server):
    await index.apply(passages("a", "bridge"), [])
    server.changes_only = False
    server.faults.extend(["503", "lost", "fine", "502"])
    assert await words(index, "bridge") == ["a"]


async def test_a_server_that_stays_broken_is_told_and_the_same_call_ends_it_later(index, server):
    server.faults.extend(["fine", *["500 after"] * ATTEMPTS])
    with pytest.raises(IndexUnavailable, match="answers with status 500") as caught:
        await index.apply(*batch())
    assert server.url in str(caught.value)
    server.faults.clear()
    await index.apply(*batch())
    assert await index.present(["a", "x", "r", "h", "d"]) == {"a"}
    assert await words(index, "storm") == []


async def test_a_refusal_is_not_asked_again(index, server):
    server.faults.extend(["422"])
    with pytest.raises(IndexUnavailable, match="answers with status 422"):
        await index.apply(passages("a", "bridge"), [])
    assert sum(path.endswith("/points/batch") for path, _, _ in server.asked) == 1


async def test_a_server_that_goes_away_is_told():
    async with Server().running() as server:
        client = AsyncQdrantClient(url=server.url, check_compatibility=False)
        index = await ServerIndex.open(client, "posts", url=server.url, clock=CLOCK, sleep=no_sleep)
    with pytest.raises(IndexUnavailable, match=f"{server.url}: cannot be reached"):
        await index.present(["a"])
    await index.close()


async def test_a_call_that_takes_too_long_is_made_again():
    index = await local()
    client, slow = index._calls._client, iter([True])
    real = client.batch_update_points

    async def overdue(*given, **named):
        await real(*given, **named)
        if next(slow, False):
            raise TimeoutError

    client.batch_update_points = overdue
    await index.apply(passages("a", "bridge"), [])
    assert (await words(index, "bridge"), index._calls.retries) == (["a"], 1)


async def test_pauses_grow_and_end(server):
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    client = AsyncQdrantClient(url=server.url, check_compatibility=False)
    index = await ServerIndex.open(client, "posts", clock=CLOCK, sleep=sleep)
    server.faults.extend(["503"] * 99)
    with pytest.raises(IndexUnavailable):
        await index.apply(passages("a", "bridge"), [])
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6]
    await index.close()


# -- several writers


async def two_writers():
    one = await local()
    return one, await local(client=one._calls._client)


async def race(one, other, first, second):
    """`second` happens on the other index after the first has read what is stored, and before it writes."""
    real, done = one._calls.write, []

    async def late_write(writes):
        if not done:
            done.append(True)
            await other.apply(*second)
        await real(writes)

    one._calls.write = late_write
    report = await one.apply(*first)
    one._calls.write = real
    assert done
    return report


async def test_of_two_writers_at_once_the_newer_version_wins():
    """T5."""
    for newer in ("first", "second"):
        one, other = await two_writers()
        versions = {"first": 1 + (newer == "first"), "second": 1 + (newer == "second")}
        first = passages("p", "first", "more of first", "rest of first", version_us=versions["first"])
        second = passages("p", "second", "more of second", version_us=versions["second"])
        await race(one, other, (first, []), (second, []))
        found = await one.search(Query("first second more rest", limit=10))
        expected = [passage.text for passage in (first if newer == "first" else second)]
        assert sorted(match.text for match in found) == sorted(expected)
        assert (await one.summary()).posts == 1
        records, _ = await one._calls._client.scroll("posts", limit=100)
        assert len(records) == len(expected)


async def test_a_removal_beside_an_older_post_wins():
    """T6."""
    one, other = await two_writers()
    await race(one, other, (passages("p", "bridge", version_us=3), []), ([], [Removal("p", 5, if_newer=True)]))
    assert (await words(one, "bridge"), await one.present(["p"])) == ([], set())


async def test_a_removal_without_a_version_removes_what_came_beside_it():
    one, other = await two_writers()
    await one.apply(passages("p", "bridge", version_us=3), [])
    await race(one, other, ([], [Removal("p", 1)]), (passages("p", "bridge again", version_us=7), []))
    assert await one.present(["p"]) == set()
    assert (await one.apply(passages("p", "bridge", version_us=7), [])).stale == 1


async def test_a_post_beside_the_change_of_its_account():
    """T19."""
    for state, expected in (("hidden", set()), ("deleted", set())):
        one, other = await two_writers()
        change = AccountChange("test", "ana", state, 5)
        await race(one, other, (passages("p", "bridge"), []), ([], [], [change]))
        assert await one.present(["p"]) == expected
        assert await words(one, "bridge") == []


async def test_a_repost_beside_the_removal_of_its_original():
    one, other = await two_writers()
    await one.apply(passages("x", "bridge"), [])
    repost = passages("r", "RT bridge", repost_of="x", author="ben")
    await race(one, other, (repost, []), ([], [Removal("x", 9)]))
    assert await one.present(["x", "r"]) == set()
    assert await words(one, "bridge") == []


async def test_a_deletion_of_an_account_is_not_undone_by_a_change_beside_it():
    one, other = await two_writers()
    await one.apply(passages("p", "bridge"), [])
    deletion, hiding = AccountChange("test", "ana", "deleted", 5), AccountChange("test", "ana", "hidden", 9)
    await race(one, other, ([], [], [hiding]), ([], [], [deletion]))
    await one.apply([], [], [AccountChange("test", "ana", "active", 10)])
    await one.apply(passages("q", "bridge"), [])
    assert await one.present(["p", "q"]) == set()


# -- age and numbers


async def test_without_warm_days_old_posts_and_the_oldest_of_too_many_go():
    index = await local(warm_days=0.0, window_h=1.0, max_posts=5)
    for i in range(9):
        await index.apply(passages(f"p{i}", f"bridge {i}", f"more {i}", ms=NOW_MS - i * 500_000), [])
    await index.maintain(NOW_MS)
    assert await index.present([f"p{i}" for i in range(9)]) == {f"p{i}" for i in range(5)}
    records, _ = await index._calls._client.scroll("posts", limit=100)
    assert len(records) == 10
    await index.maintain(NOW_MS + 3_600_000 - 500_000)
    assert await index.present(["p0", "p1", "p2"]) == {"p0", "p1"}


async def test_with_warm_days_many_posts_stay():
    index = await local(warm_days=1.0, window_h=1.0, max_posts=5)
    await index.apply([p for i in range(9) for p in passages(f"p{i}", f"bridge {i}")], [])
    await index.maintain(NOW_MS)
    assert (await index.summary()).posts == 9


# -- the collection


async def test_the_collection_is_made_once_by_many_at_once(server):
    async def opened():
        client = AsyncQdrantClient(url=server.url, check_compatibility=False)
        return await ServerIndex.open(client, "posts", url=server.url, shards=3, replicas=2, clock=CLOCK)

    indexes = await asyncio.gather(*(opened() for _ in range(4)))
    await indexes[0].apply(passages("p", "bridge"), [])
    assert [await words(index, "bridge") for index in indexes] == [["p"]] * 4
    (body, *_) = [body for path, _, body in server.asked if path == "/collections/posts" and body]
    wanted = models.CreateCollection.model_validate_json(body)
    assert (wanted.shard_number, wanted.replication_factor, wanted.write_consistency_factor) == (3, 2, 2)
    assert wanted.vectors["dense"].on_disk and wanted.vectors["dense"].distance == models.Distance.DOT
    assert wanted.sparse_vectors["bm25"].modifier == models.Modifier.IDF
    assert wanted.quantization_config.scalar.type == models.ScalarType.INT8
    fields = {
        models.CreateFieldIndex.model_validate_json(body).field_name: body
        for path, _, body in server.asked
        if path.endswith("/index")
    }
    assert {"sort_ms", "account", "saying", "repost_of", "hidden"} <= fields.keys()
    for index in indexes:
        await index.close()


async def test_replicas_are_read_and_written_by_most(server):
    client = AsyncQdrantClient(url=server.url, check_compatibility=False)
    index = await ServerIndex.open(client, "posts", url=server.url, replicas=3, clock=CLOCK)
    server.asked.clear()
    await index.apply(passages("p", "bridge"), [])
    await index.search(Query("bridge"))
    queries = [(path.rsplit("/", 2)[-1], query) for path, query, _ in server.asked]
    assert {query.get("ordering") for path, query in queries if "wait" in query} == {"strong"}
    assert {query.get("consistency") for path, query in queries if "wait" not in query} == {"quorum"}
    await index.close()


@pytest.mark.parametrize(
    ("vectors", "sparse", "reason"),
    [
        ({"dense": models.VectorParams(size=768, distance="Dot")}, True, "768 dimensions by Dot, not 384 by Dot"),
        ({"dense": models.VectorParams(size=DIM, distance="Cosine")}, True, "384 dimensions by Cosine"),
        (models.VectorParams(size=DIM, distance="Dot"), True, "is not an index of posts"),
        ({"text": models.VectorParams(size=DIM, distance="Dot")}, True, "is not an index of posts"),
        ({"dense": models.VectorParams(size=DIM, distance="Dot")}, False, "is not an index of posts"),
    ],
)
async def test_a_collection_of_something_else_is_refused_and_left_alone(server, vectors, sparse, reason):
    terms = {"bm25": models.SparseVectorParams(modifier=models.Modifier.IDF)} if sparse else None
    await server.client.create_collection("posts", vectors_config=vectors, sparse_vectors_config=terms)
    with pytest.raises(IndexUnavailable, match=reason):
        await connect(server.url, collection="posts")
    assert not [path for path, _, body in server.asked if body]


async def test_connect_makes_an_index_that_works(server):
    index = await connect(server.url, collection="mine", window_h=10**6)
    await index.apply(passages("p", "bridge"), [])
    assert await words(index, "bridge") == ["p"]
    await index.close()


@pytest.mark.parametrize("version", ["1.15.9", "0.11.0", "1.9.0-dev"])
async def test_an_old_server_is_refused(version):
    async with Server(version=version).running() as server:
        with pytest.raises(IndexUnavailable, match=f"runs Qdrant {version}, needed is 1.16 or later"):
            await connect(server.url)


async def test_a_newer_server_is_taken():
    async with Server(version="2.0.0").running() as server:
        await (await connect(server.url)).close()


async def test_the_api_key_is_sent_and_a_wrong_one_is_told():
    async with Server(api_key="right").running() as server:
        await (await connect(server.url, api_key="right")).close()
        for key in ("", "wrong"):
            with pytest.raises(IndexUnavailable, match="refuses the API key") as caught:
                await connect(server.url, api_key=key)
            assert "wrong" not in str(caught.value)


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "http://[::1"])
async def test_a_wrong_address_is_told(url):
    with pytest.raises(IndexUnavailable, match="is no address of a server"):
        await connect(url)


async def test_a_server_that_is_not_there_is_told(port):
    with pytest.raises(IndexUnavailable, match=f"http://127.0.0.1:{port}: cannot be reached"):
        await connect(f"http://127.0.0.1:{port}")


def test_the_error_survives_pickling():
    error = IndexUnavailable("http://x", "does not answer in time")
    assert str(pickle.loads(pickle.dumps(error))) == "index http://x: does not answer in time" == str(error)
