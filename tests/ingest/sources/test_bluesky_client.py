"""The Bluesky source against a real websocket server that drops, stalls, lies and repeats."""

import asyncio
import random
import time
from contextlib import aclosing

import pytest

from ingest.post import AccountChange, Malformed, Post
from ingest.settings import BlueskySettings
from ingest.sources.backoff import BackOff
from ingest.sources.bluesky import COLLECTIONS, read_frame
from ingest.sources.bluesky_client import MAX_FRAME_BYTES, BlueskySource
from tests.ingest.sources.bluesky_events import TIME_US, account, commit, frame_of, identity, real_events, tid
from tests.ingest.sources.jetstream_server import Act, JetstreamServer

SECOND = 1_000_000
KINDS = pytest.mark.parametrize("is_v2", [False, True], ids=["v1", "v2"])


def source_of(server, **fields):
    fields = {"backoff": BackOff(0.001, 0.01), "quiet_s": 0.05, **fields}
    languages = fields.pop("languages", ())
    return BlueskySource(BlueskySettings(url=server.url, languages=languages), **fields)


def made_events(count, step_us=SECOND, start=0):
    return [
        commit({"text": f"post {n}"}, rkey=f"rkey{n}", rev=tid(TIME_US + n * step_us), us=TIME_US + n * step_us)
        for n in range(start, start + count)
    ]


def expected(events):
    return [record for event in events for record in read_frame(frame_of(event), 1).records]


def ids(records):
    return [
        record if isinstance(record, AccountChange | Malformed) else getattr(record, "id", None) or record.post_id
        for record in records
    ]


async def read(source, count, cursor=None):
    """(the first `count` records, the cursor after them); the connection is closed."""
    records = []
    async with asyncio.timeout(30), aclosing(source.arrivals(cursor)) as arrivals:
        async for arrival in arrivals:
            records += arrival.records
            after = arrival.cursor
            if len(records) >= count:
                return records, after


def start_cursor(server):
    return f"v2:1@{server.host}" if server.is_v2 else f"v1:{server.events[0]['time_us']}"


# Reading


@KINDS
async def test_real_events_arrive_in_order_with_a_cursor(is_v2):
    events = real_events()
    events.sort(key=lambda event: event["time_us"])
    async with JetstreamServer(events, is_v2=is_v2) as server:
        source = source_of(server)
        records, cursor = await read(source, 34, start_cursor(server))
    assert ids(records) == ids(expected(events))
    last = max(number for number, event in enumerate(events) if expected([event]))
    assert cursor == (f"v2:{last + 1}@{server.host}" if is_v2 else f"v1:{events[last]['time_us']}")
    query = server.queries[0]
    assert query["collections" if is_v2 else "wantedCollections"] == list(COLLECTIONS)
    assert server.subprotocols == (["xrpc.v1.json"] if is_v2 else [None])
    assert source.stats.skipped["like"] > 90 and not source.stats.malformed
    assert (source.stats.connects, source.stats.gaps, source.stats.repeated) == (1, 0, 0)


async def test_without_a_cursor_the_stream_begins_now():
    async with JetstreamServer(made_events(5)) as server:
        source = source_of(server, clock_us=lambda: TIME_US + 12 * SECOND)
        reading = asyncio.create_task(read(source, 1))
        await server.until(lambda: server.queries)
        await server.until(lambda: server.serving == 1)
        await server.publish(*made_events(1, start=9))
        records, cursor = await reading
    assert [record.text for record in records] == ["post 9"]
    assert cursor == f"v1:{TIME_US + 9 * SECOND}"
    assert "cursor" not in server.queries[0]
    assert source.stats.lag_ms == 3000


@KINDS
async def test_closing_the_reader_closes_the_connection(is_v2):
    async with JetstreamServer(made_events(3), is_v2=is_v2) as server:
        await read(source_of(server), 1, start_cursor(server))
        await server.until(lambda: server.closed == 1)
        assert len(server.queries) == 1


async def test_a_quote_taken_back_an_author_and_an_account_pass_through():
    quoted = "at://did:plc:bbbb/app.bsky.feed.post/3q"
    quoting = commit({"text": "look", "embed": {"record": {"uri": quoted}}}, rkey="3k")
    gate = commit(
        {"detachedEmbeddingUris": ["at://did:plc:aaaaaaaaaaaaaaaaaaaaaaaa/app.bsky.feed.post/3k"]},
        collection="app.bsky.feed.postgate",
        rkey="3q",
        did="did:plc:bbbb",
    )
    label = {"labels": {"values": [{"val": "!no-unauthenticated"}]}}
    out = commit(label, collection="app.bsky.actor.profile", rkey="self", rev=tid(TIME_US))
    back = commit({}, collection="app.bsky.actor.profile", rkey="self", rev=tid(TIME_US + 5))
    events = [identity("ana.example"), quoting, gate, out, account(True), back, account(False, "deleted", seq=9)]
    async with JetstreamServer(events) as server:
        source = source_of(server)
        records, _ = await read(source, 6, start_cursor(server))
    assert source.stats.skipped == {"identity": 1} and source.stats.events == 7
    post, without, hidden, still_hidden, active, deleted = records
    assert post.author.handle == "ana.example" and post.quote_of == f"bluesky:{quoted}"
    assert (without.id, without.quote_of, without.version_us) == (post.id, None, post.version_us + 1)
    states = [change.state for change in (hidden, still_hidden, active, deleted)]
    assert states == ["hidden", "hidden", "active", "deleted"]


async def test_only_wanted_languages_are_given():
    events = made_events(1) + [
        commit({"text": "olá", "langs": ["pt-BR"]}),
        commit({"text": "hi", "langs": ["en-US"]}, rkey="z"),
    ]
    async with JetstreamServer(events) as server:
        source = source_of(server, languages=("EN",))
        records, _ = await read(source, 2, start_cursor(server))
    assert [record.text for record in records] == ["post 0", "hi"]
    assert source.stats.skipped == {"language": 1}


# Faults


FAULTS = ["drop", "cut", "no frame", "error", "1001", "1011", "503", "redirect", "no handshake"]


@KINDS
@pytest.mark.parametrize("fault", FAULTS)
async def test_after_any_fault_nothing_is_lost_repeated_or_out_of_order(is_v2, fault):
    """T15, T32"""
    events = made_events(20)
    async with JetstreamServer(events, [Act(fault, 7), Act(fault, 9)], is_v2) as server:
        source = source_of(server)
        records, _ = await read(source, 20, start_cursor(server))
        assert ids(records) == ids(expected(events))
        assert len(server.queries) == 3
        assert source.stats.gaps == 0 and source.stats.fault == ""
        if fault not in ("503", "redirect", "no handshake"):
            assert source.stats.repeated > 0
            second = int(server.queries[1]["cursor"][0])
            assert second == 7 if is_v2 else second == events[6]["time_us"] - 5 * SECOND


@KINDS
@pytest.mark.parametrize("seed", range(3))
async def test_any_mixture_of_faults_and_new_events_gives_each_event_once(is_v2, seed):
    """T15: replay, live and faults at once."""
    chance = random.Random(seed)
    events = made_events(120)
    acts = [Act(chance.choice(FAULTS), chance.randrange(30)) for _ in range(25)]
    async with JetstreamServer(events[:40], acts, is_v2) as server:
        source = source_of(server)

        async def publish():
            for event in events[40:]:
                await server.publish(event)
                await asyncio.sleep(0.001)

        publishing = asyncio.create_task(publish())
        records, _ = await read(source, 120, start_cursor(server))
        await publishing
    assert ids(records) == ids(expected(events))
    assert source.stats.gaps == 0


@KINDS
async def test_garbage_is_malformed_and_the_connection_lives_on(is_v2):
    """T24, T32"""
    deep = b'{"a":' * 40 + b"1" + b"}" * 40
    events = [*made_events(2), b"{not json", b'{"did": "\xff\xfe"}', deep, b"", *made_events(2, start=2)]
    async with JetstreamServer(events, is_v2=is_v2) as server:
        source = source_of(server)
        records, _ = await read(source, 8, start_cursor(server))
        reasons = [record.reason for record in records if isinstance(record, Malformed)]
        assert reasons == ["json", "utf8", "too_deep", "null"]
        assert source.stats.malformed == {"json": 1, "utf8": 1, "too_deep": 1, "null": 1}
        assert [record.text for record in records if isinstance(record, Post)] == [f"post {n}" for n in range(4)]
        assert source.stats.connects == 1


@pytest.mark.parametrize("fault", ["error", "503"])
async def test_tries_wait_longer_and_longer_until_an_event_comes(fault):
    waits = []

    async def sleep(wait_s):
        waits.append(wait_s)

    acts = [Act(fault)] * 4 + [Act("drop", 1)]
    async with JetstreamServer(made_events(3), acts) as server:
        source = source_of(server, backoff=BackOff(1, 5, spread=lambda least, most: most), sleep=sleep)
        await read(source, 3, start_cursor(server))
    assert waits == [1, 2, 4, 5, 1]


async def test_a_server_that_cannot_be_reached_is_tried_again():
    faults = []

    async def sleep(wait_s):
        faults.append(source.stats.fault)
        if len(faults) == 3:
            raise asyncio.CancelledError

    async with JetstreamServer() as server:
        pass
    source = source_of(server, sleep=sleep)
    with pytest.raises(asyncio.CancelledError):
        await read(source, 1)
    assert faults == ["ConnectionRefusedError"] * 3 and source.stats.connects == 0


@KINDS
async def test_an_event_that_is_too_large_for_memory_is_left_out_once(is_v2):
    huge = frame_of(commit({"text": "x" * (MAX_FRAME_BYTES + 1)}))
    events = [*made_events(2), huge, *made_events(3, start=2)]
    async with JetstreamServer(events, is_v2=is_v2) as server:
        source = source_of(server)
        records, _ = await read(source, 5, start_cursor(server))
        assert [record.text for record in records] == [f"post {n}" for n in range(5)]
        assert source.stats.malformed == {"too_large": 1} and source.stats.gaps == 0
        assert [query.get("maxMessageSizeBytes") for query in server.queries] == [None, [str(MAX_FRAME_BYTES)]]


async def test_a_server_that_sends_it_all_the_same_costs_a_gap_and_no_endless_loop():
    huge = frame_of(commit({"text": "x" * (MAX_FRAME_BYTES + 1)}))
    async with JetstreamServer([*made_events(2), huge, *made_events(3, start=2)]) as server:
        server.ignores_size = True
        source = source_of(server)
        reading = asyncio.create_task(read(source, 3, start_cursor(server)))
        await server.until(lambda: len(server.queries) == 3 and server.closed == 2)
        await server.until(lambda: server.serving == 1)
        await server.publish(*made_events(1, start=8))
        records, _ = await reading
    assert [record.text for record in records] == ["post 0", "post 1", "post 8"]
    assert source.stats.gaps == 1 and "cursor" not in server.queries[2]


async def test_a_slow_reader_holds_the_server_back():
    """Memory is bounded: what is not read stays at the server."""
    events = [commit({"text": f"{n} " + "x" * 100_000}, rkey=f"r{n}", us=TIME_US + n) for n in range(500)]
    async with (
        JetstreamServer(events) as server,
        aclosing(source_of(server).arrivals(start_cursor(server))) as arrivals,
    ):
        await anext(arrivals)
        sent = -1
        while sent != server.sent:
            sent = server.sent
            await asyncio.sleep(0.1)
        assert 1 <= sent < 400
        for _ in range(499):
            await anext(arrivals)


# Liveness (T17)


async def test_a_silent_connection_is_made_anew_and_what_was_missed_comes():
    """T17: the socket is open, pings are answered, and no event comes."""
    events = made_events(10)
    async with JetstreamServer(events, [Act("silent", 4)]) as server:
        source = source_of(server, idle_s=0.2)
        records, _ = await read(source, 10, start_cursor(server))
    assert ids(records) == ids(expected(events)) and len(server.queries) == 2


async def test_a_dead_connection_is_noticed_by_its_pings_long_before():
    """T17"""
    events = made_events(10)
    async with JetstreamServer(events, [Act("dead", 4)]) as server:
        source = source_of(server, idle_s=3600, ping_s=0.05, pong_s=0.1)
        records, _ = await read(source, 10, start_cursor(server))
    assert ids(records) == ids(expected(events)) and len(server.queries) == 2


async def test_a_feed_that_is_only_idle_is_left_alone():
    """T17: a watchdog must not restart it."""
    async with JetstreamServer(made_events(1)) as server:
        source = source_of(server, quiet_s=0.01, idle_s=3600, ping_s=0.02, pong_s=5)
        reading = asyncio.create_task(read(source, 2, start_cursor(server)))
        await asyncio.sleep(0.4)
        await server.publish(*made_events(1, start=1))
        records, _ = await reading
    assert len(records) == 2 and source.stats.connects == 1


async def test_a_quiet_subscription_still_moves_the_cursor():
    async with JetstreamServer(made_events(1)) as server:
        source = source_of(server, quiet_s=0.02, idle_s=100, monotonic=lambda: time.monotonic() * 1000)
        async with aclosing(source.arrivals(start_cursor(server))) as arrivals:
            first = await anext(arrivals)
            second = await anext(arrivals)
    assert len(first.records) == 1 and second.records == ()
    assert int(second.cursor.removeprefix("v1:")) > int(first.cursor.removeprefix("v1:"))
    assert source.stats.connects >= 2 and source.stats.gaps == 0


# Cursors and gaps


async def test_a_v1_server_that_clamps_the_cursor_is_a_gap():
    """T15"""
    events = made_events(200)
    async with JetstreamServer(events, floor=100) as server:
        source = source_of(server)
        records, _ = await read(source, 100, start_cursor(server))
    assert records[0].text == "post 100" and source.stats.gaps == 1


async def test_a_v2_server_that_refuses_the_cursor_is_a_gap_and_gives_the_oldest_it_has():
    """T15"""
    async with JetstreamServer(made_events(200), is_v2=True, floor=100) as server:
        source = source_of(server)
        records, cursor = await read(source, 100, f"v2:5@{server.host}")
        assert [query["cursor"] for query in server.queries] == [["5"], [str(10**15)]]
    assert records[0].text == "post 100" and source.stats.gaps == 1
    assert cursor == f"v2:200@{server.host}"


@pytest.mark.parametrize(
    ("is_v2", "cursor"),
    [(True, f"v1:{TIME_US}"), (True, "v2:3@elsewhere"), (False, "v2:3@elsewhere"), (False, "rubbish")],
)
async def test_a_cursor_of_another_kind_is_never_asked_for(is_v2, cursor):
    """jetstream#349"""
    async with JetstreamServer(made_events(3), is_v2=is_v2) as server:
        source = source_of(server)
        reading = asyncio.create_task(read(source, 1, cursor))
        await server.until(lambda: server.serving == 1)
        await server.publish(*made_events(1, start=5))
        records, _ = await reading
        assert "cursor" not in server.queries[0]
    assert [record.text for record in records] == ["post 5"] and source.stats.gaps == 1


async def test_what_was_read_and_not_acknowledged_comes_again_to_the_next_reader():
    async with JetstreamServer(made_events(5)) as server:
        source = source_of(server)
        first, _ = await read(source, 5, start_cursor(server))
        again, _ = await read(source, 5, start_cursor(server))
    assert ids(first) == ids(again) and source.stats.repeated == 0


async def test_events_that_a_v1_server_sends_out_of_order_are_given_once_each():
    """T15: jetstream-legacy#42, what is live overtakes the replay."""
    events = made_events(12)
    overtaken = [*events[:4], events[11], *events[4:11]]
    async with JetstreamServer(overtaken, [Act("drop", 7)]) as server:
        records, _ = await read(source_of(server), 12, start_cursor(server))
    assert sorted(ids(records)) == sorted(ids(expected(events)))


@pytest.mark.parametrize("url", ["https://jetstream.example/subscribe", "jetstream.example", "ws://", ""])
def test_an_address_that_is_none_is_refused_at_once(url):
    with pytest.raises(ValueError, match="wss://"):
        BlueskySource(BlueskySettings(url=url))


async def test_what_the_address_asks_for_itself_is_kept():
    async with JetstreamServer(made_events(2)) as server:
        server.url += "?wantedCollections=app.bsky.feed.post&wantedDids=did:plc:a&cursor=5"
        await read(source_of(server), 1, start_cursor(server))
        query = server.queries[0]
    assert query["wantedCollections"] == ["app.bsky.feed.post"] and query["wantedDids"] == ["did:plc:a"]
    assert query["cursor"] == [str(TIME_US - 5 * SECOND)]
