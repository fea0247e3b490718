"""A source against an instance with faults: nothing lost, nothing twice, each fault outlived or named (T17, T27)."""

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from ingest.post import Malformed, Post, Removal
from ingest.settings import MastodonSettings
from ingest.sources.aliases import Aliases
from ingest.sources.arrival import Source, SourceEnded
from ingest.sources.mastodon import Message
from ingest.sources.mastodon_client import WAITING, MastodonSource, _Inbox
from ingest.sources.mastodon_rest_client import MOST_WAIT_S, retry_after_s
from tests.ingest.ingest_parts import until
from tests.ingest.sources.mastodon_made import account, local_id, post_id, status
from tests.ingest.sources.mastodon_server import EventStream, MastodonServer

BOTH = pytest.mark.parametrize("transport", ["websocket", "sse"])


@pytest.fixture
async def server() -> AsyncIterator[MastodonServer]:
    async with MastodonServer() as running:
        yield running


@pytest.fixture
def aliases(tmp_path: Path) -> Iterator[Aliases]:
    with Aliases(tmp_path / "aliases.sqlite") as kept:
        yield kept


def source_of(server, aliases, transport="websocket", *, token="", stream="public", tmp_path=None, **arguments):
    if transport == "sse":
        server.websocket_url = ""
    token_file = None
    if token:
        token_file = tmp_path / "token"
        token_file.write_text(f"{token}\n")
    settings = MastodonSettings(url=server.url, transport=transport, stream=stream, token_file=token_file)
    return MastodonSource(settings, aliases, **{"first_wait_s": 0.01, "overlap_s": 0.0} | arguments)


async def records_of(source, count, cursor=None):
    """The first `count` records, and the last cursor."""
    records = []
    async with asyncio.timeout(30), aclosing(source.arrivals(cursor)) as arrivals:
        async for arrival in arrivals:
            records += arrival.records
            cursor = arrival.cursor or cursor
            if len(records) >= count:
                return records, cursor
    raise AssertionError("ended early")


def ids(records):
    return [record.id if isinstance(record, Post) else record for record in records]


def sends(*numbers, then="stay"):
    """A stream of new statuses; `then` it stays or breaks."""

    async def script(channel):
        for number in numbers:
            await channel.event("update", status(number))
        if then == "stay":
            await channel.stay()

    return script


async def says_nothing(channel):
    await channel.stay()


@BOTH
async def test_every_kind_of_event(server: MastodonServer, aliases: Aliases, transport: str) -> None:
    async def script(channel):
        await channel.event("update", status(1))
        await channel.event("filters_changed", "undefined")
        await channel.event("status.update", status(1, edited_at="2026-07-04T10:05:00.000Z", content="<p>edited</p>"))
        await channel.event("announcement", '{"id":"1"}')
        await channel.event("update", "{")
        await channel.event("delete", local_id(1))
        await channel.event("delete", local_id(9))
        await channel.event("update", status(2, content="<p>caf\u00e9 \u2028 \U0001f600</p>"))
        await channel.stay()

    server.streams.append(script)
    source: Source = source_of(server, aliases, transport)
    records, cursor = await records_of(source, 5)
    first, edited, broken, gone, second = records
    assert ids([first, second]) == [post_id(1), post_id(2)]
    assert isinstance(edited, Post) and edited.text == "edited"
    assert broken == Malformed("json")
    assert isinstance(gone, Removal) and gone.post_id == post_id(1)
    assert second.text == "caf\u00e9 \u2028 \U0001f600"
    assert cursor == f"{server.host}:{local_id(2)}"
    assert source.stats.skipped == {"filters_changed": 1, "announcement": 1, "delete_of_unknown": 1}
    assert source.stats.malformed == {"json": 1}
    assert (source.stats.connects, source.stats.gaps, source.stats.fault) == (1, 0, "")


@BOTH
async def test_closing_closes_the_connection(server: MastodonServer, aliases: Aliases, transport: str) -> None:
    server.streams.append(sends(1))
    await records_of(source_of(server, aliases, transport), 1)
    await until(lambda: not server.open)
    assert not [task for task in asyncio.all_tasks() if "MastodonSource" in repr(task.get_coro())]


@BOTH
async def test_the_token_goes_in_a_header_and_never_in_an_address(
    server: MastodonServer, aliases: Aliases, transport: str, tmp_path: Path
) -> None:
    server.streams.append(sends(1))
    await records_of(source_of(server, aliases, transport, token="s3cret", tmp_path=tmp_path), 1)
    stream = [(query, headers) for path, query, headers in server.requests if path.startswith("/api/v1/streaming")]
    assert [headers["authorization"] for _, headers in stream] == ["Bearer s3cret"]
    assert "s3cret" not in str([query for _, query, _ in server.requests])


@pytest.mark.parametrize(
    ("stream", "transport", "path", "query", "timeline", "parameters"),
    [
        ("public", "websocket", "/api/v1/streaming", {"stream": ["public"]}, "/api/v1/timelines/public", {}),
        ("public:local", "websocket", "/api/v1/streaming", {"stream": ["public:local"]}, "/api/v1/timelines/public",
         {"local": ["true"]}),
        ("public:local", "sse", "/api/v1/streaming/public/local", {}, "/api/v1/timelines/public", {"local": ["true"]}),
        ("hashtag:caf\u00e9", "websocket", "/api/v1/streaming", {"stream": ["hashtag"], "tag": ["caf\u00e9"]},
         "/api/v1/timelines/tag/caf\u00e9", {}),
        ("hashtag:#news", "sse", "/api/v1/streaming/hashtag", {"tag": ["news"]}, "/api/v1/timelines/tag/news", {}),
        ("list:12", "sse", "/api/v1/streaming/list", {"list": ["12"]}, "/api/v1/timelines/list/12", {}),
    ],
)  # fmt: skip
async def test_each_stream_has_its_path_and_its_timeline(
    server: MastodonServer, aliases: Aliases, stream: str, transport: str, path: str, query: dict[str, list[str]],
    timeline: str, parameters: dict[str, list[str]],
) -> None:  # fmt: skip
    server.streams.append(says_nothing)
    server.timeline = [status(1)]
    await records_of(source_of(server, aliases, transport, stream=stream), 1, f"{server.host}:{local_id(0)}")
    assert server.asked(path) == [query]
    assert server.asked(timeline)[0] == parameters | {"min_id": [local_id(0)], "limit": ["40"]}


@pytest.mark.parametrize("stream", ["", "user", "hashtag:", "hashtag:#", "list:", "public:media"])
def test_a_stream_that_is_none_is_named(aliases: Aliases, stream: str) -> None:
    with pytest.raises(ValueError, match="no stream"):
        MastodonSource(MastodonSettings(stream=stream), aliases)


@pytest.mark.parametrize(
    "url", ["ftp://x", "https://", "https://x:99999", "https://x:0", "mastodon.social", "http://[x"]
)
def test_an_address_that_is_none_is_refused(aliases: Aliases, url: str) -> None:
    with pytest.raises(ValueError):
        MastodonSource(MastodonSettings(url=url), aliases)


class TestEventStreams:
    async def test_t27_a_half_line_at_a_disconnect_is_dropped_and_the_status_comes_by_rest(
        self, server: MastodonServer, aliases: Aliases
    ) -> None:
        async def breaks(channel):
            await channel.event("update", status(1))
            await channel.raw(b'event: update\ndata: {"id": "10891')

        server.streams.extend([breaks, says_nothing])
        server.timeline = [status(1), status(2)]
        source = source_of(server, aliases, "sse")
        records, _ = await records_of(source, 2)
        assert ids(records) == [post_id(1), post_id(2)]
        assert source.stats.malformed == {}
        assert source.stats.connects == 2

    async def test_t27_gzip_cut_anywhere(self, server: MastodonServer, aliases: Aliases) -> None:
        async def zipped(channel):
            await channel.begin("Content-Encoding: gzip\r\n")
            packer = zlib.compressobj(wbits=31)
            for number in (1, 2):
                event = f"event: update\ndata: {json.dumps(status(number))}\n\n".encode()
                await channel.raw(packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH))
            await asyncio.sleep(30)

        server.streams.append(zipped)
        records, _ = await records_of(source_of(server, aliases, "sse"), 2)
        assert ids(records) == [post_id(1), post_id(2)]

    async def test_a_page_is_no_stream(self, server: MastodonServer, aliases: Aliases) -> None:
        async def page(channel):
            channel._writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi")
            await channel._writer.drain()

        server.streams.extend([page, sends(1)])
        source = source_of(server, aliases, "sse")
        await records_of(source, 1)
        assert source.stats.connects == 1

    async def test_bytes_that_are_no_gzip_are_outlived(self, server: MastodonServer, aliases: Aliases) -> None:
        async def lies(channel):
            await channel.begin("Content-Encoding: gzip\r\n")
            await channel.raw(gzip.compress(b"x")[:5] + b"\x00" * 50)

        server.streams.extend([lies, sends(1)])
        source = source_of(server, aliases, "sse")
        await records_of(source, 1)
        assert source.stats.connects == 2


class TestLiveness:
    async def test_t17_an_event_stream_without_a_beat_is_replaced(
        self, server: MastodonServer, aliases: Aliases
    ) -> None:
        async def freezes(channel):
            await channel.begin()
            await asyncio.sleep(30)

        server.streams.extend([freezes, sends(1)])
        source = source_of(server, aliases, "sse", alive_s=0.2)
        records, _ = await records_of(source, 1)
        assert ids(records) == [post_id(1)]
        assert source.stats.connects == 2

    async def test_t17_heartbeats_keep_an_event_stream_that_has_no_events(
        self, server: MastodonServer, aliases: Aliases
    ) -> None:
        async def slow(channel):
            for _ in range(40):
                await channel.raw(b":thump\n")
                await asyncio.sleep(0.02)
            await channel.event("update", status(1))
            await channel.stay()

        server.streams.append(slow)
        source = source_of(server, aliases, "sse", alive_s=0.4)
        await records_of(source, 1)
        assert source.stats.connects == 1

    async def test_t17_a_websocket_that_answers_no_ping_is_replaced(
        self, server: MastodonServer, aliases: Aliases
    ) -> None:
        async def freezes(channel):
            channel._socket.transport.pause_reading()
            await until(lambda: source.stats.connects == 2)
            channel._socket.transport.abort()

        server.streams.extend([freezes, sends(1)])
        source = source_of(server, aliases, alive_s=0.4)
        await records_of(source, 1)
        assert source.stats.connects == 2

    @BOTH
    async def test_t17_a_living_stream_without_events_is_replaced_too(
        self, server: MastodonServer, aliases: Aliases, transport: str
    ) -> None:
        server.streams.extend([says_nothing, sends(1)])
        source = source_of(server, aliases, transport, idle_s=0.2)
        await records_of(source, 1)
        assert source.stats.connects == 2


class TestRefusals:
    STREAM = {"websocket": "/api/v1/streaming", "sse": "/api/v1/streaming/public"}

    @BOTH
    @pytest.mark.parametrize(
        ("code", "token", "reason"),
        [
            (401, "", "asks for an access token"),
            (401, "t", "is refused"),
            (403, "t", "is refused"),
            (410, "", "no such"),
        ]
        + [(400, "", "no such")],
    )
    async def test_what_no_retry_mends_ends_the_source(
        self, server: MastodonServer, aliases: Aliases, tmp_path: Path,
        transport: str, code: int, token: str, reason: str,
    ) -> None:  # fmt: skip
        server.refusals[self.STREAM[transport]].append((code, {}))
        source = source_of(server, aliases, transport, token=token, tmp_path=tmp_path)
        with pytest.raises(SourceEnded, match=reason) as ended:
            await records_of(source, 1)
        assert str(code) in str(ended.value)
        assert source.stats.fault == ended.value.reason

    @BOTH
    async def test_busy_and_broken_instances_are_asked_again(
        self, server: MastodonServer, aliases: Aliases, transport: str
    ) -> None:
        refusals = [(429, {"Retry-After": "0"}), (503, {}), (500, {"Retry-After": "junk"}), (404, {})]
        server.refusals[self.STREAM[transport]].extend(refusals)
        server.streams.append(sends(1))
        source = source_of(server, aliases, transport)
        await records_of(source, 1)
        assert source.stats.connects == 1
        assert len(server.asked(self.STREAM[transport])) == 5

    async def test_an_instance_that_asks_for_a_pause_gets_it(self, server: MastodonServer, aliases: Aliases) -> None:
        server.refusals[self.STREAM["sse"]].append((429, {"Retry-After": "1"}))
        server.streams.append(sends(1))
        loop = asyncio.get_running_loop()
        began = loop.time()
        await records_of(source_of(server, aliases, "sse"), 1)
        assert loop.time() - began >= 1

    async def test_an_error_within_a_websocket_ends_the_source(self, server: MastodonServer, aliases: Aliases) -> None:
        async def refuses(channel):
            await channel.raw('{"error":"Unknown stream type","status":400}')
            await channel.stay()

        server.streams.append(refuses)
        with pytest.raises(SourceEnded, match="no such stream"):
            await records_of(source_of(server, aliases), 1)

    async def test_an_instance_that_is_away_is_waited_for(self, server: MastodonServer, aliases: Aliases) -> None:
        source = source_of(server, aliases, "sse")
        server._http.close()
        waiting = asyncio.ensure_future(records_of(source, 1))
        await until(lambda: source.stats.fault == "ConnectError")
        server.streams.append(sends(1))
        host, port = server.host.split(":")
        server._http = await asyncio.start_server(server._serve, host, int(port))
        records, _ = await waiting
        assert ids(records) == [post_id(1)]

    async def test_a_token_file_without_a_token_ends_the_source(
        self, server: MastodonServer, aliases: Aliases, tmp_path: Path
    ) -> None:
        for content in (None, b"", b"\n", b"\xff", b"a\nb"):
            path = tmp_path / "absent"
            if content is not None:
                path.write_bytes(content)
            source = MastodonSource(MastodonSettings(url=server.url, token_file=path), aliases)
            with pytest.raises(SourceEnded, match="holds no access token"):
                await records_of(source, 1)
        assert server.requests == []


class TestGaps:
    @BOTH
    async def test_what_was_missed_comes_by_rest_while_the_stream_flows(
        self, server: MastodonServer, aliases: Aliases, transport: str
    ) -> None:
        """98 statuses in three pages, and live ones that REST gives as well: each comes once."""
        server.timeline = [status(number) for number in range(1, 100)]
        server.streams.extend([sends(1, then="break"), sends(99, 98)])
        source = source_of(server, aliases, transport)
        records, cursor = await records_of(source, 99)
        assert sorted(ids(records)) == sorted(post_id(number) for number in range(1, 100))
        assert source.stats.gaps == 0
        assert cursor is not None

    async def test_after_a_restart_the_cursor_says_where(self, server: MastodonServer, aliases: Aliases) -> None:
        server.timeline = [status(number) for number in range(1, 6)]
        server.streams.append(says_nothing)
        records, cursor = await records_of(source_of(server, aliases), 2, f"{server.host}:{local_id(3)}")
        assert ids(records) == [post_id(4), post_id(5)]
        server.timeline.append(status(6))
        records, _ = await records_of(source_of(server, aliases), 1, f"{server.host}:{local_id(5)}")
        assert ids(records) == [post_id(6)]

    async def test_t15_going_on_overlaps_and_a_late_status_with_an_older_id_is_found(
        self, server: MastodonServer, aliases: Aliases
    ) -> None:
        server.streams.extend([sends(1, 5, 9, then="break"), says_nothing])
        server.timeline = [status(number) for number in (1, 5, 7, 9)]
        source = source_of(server, aliases, overlap_s=60.0)
        records, _ = await records_of(source, 4)
        assert ids(records) == [post_id(1), post_id(5), post_id(9), post_id(7)]
        assert source.stats.repeated >= 1

    async def test_too_long_a_gap_is_counted(self, server: MastodonServer, aliases: Aliases) -> None:
        async def later(channel):
            await until(lambda: source.stats.gaps)
            await sends(99)(channel)

        server.timeline = [status(number) for number in range(1, 99)]
        server.streams.append(later)
        source = source_of(server, aliases, max_pages=2)
        records, _ = await records_of(source, 81, f"{server.host}:{local_id(0)}")
        assert ids(records) == [post_id(number) for number in [*range(1, 81), 99]]
        assert source.stats.gaps == 1

    async def test_a_timeline_that_is_refused_is_a_gap_and_no_end(
        self, server: MastodonServer, aliases: Aliases
    ) -> None:
        async def later(channel):
            await until(lambda: source.stats.gaps)
            await sends(1)(channel)

        server.refusals["/api/v1/timelines/public"].append((401, {}))
        server.streams.append(later)
        source = source_of(server, aliases)
        await records_of(source, 1, f"{server.host}:{local_id(0)}")
        assert source.stats.gaps == 1

    async def test_a_busy_timeline_is_asked_again(self, server: MastodonServer, aliases: Aliases) -> None:
        server.refusals["/api/v1/timelines/public"].extend([(429, {"Retry-After": "0"}), (503, {})])
        server.timeline = [status(1)]
        server.streams.append(says_nothing)
        source = source_of(server, aliases)
        await records_of(source, 1, f"{server.host}:{local_id(0)}")
        assert source.stats.gaps == 0

    async def test_rubbish_in_a_timeline_leaves_the_rest(self, server: MastodonServer, aliases: Aliases) -> None:
        server.timeline = [status(1), status(2, created_at=None), status(3)]
        server.streams.append(says_nothing)
        source = source_of(server, aliases)
        records, _ = await records_of(source, 3, f"{server.host}:{local_id(0)}")
        assert ids(records) == [post_id(1), Malformed("created_at", "missing or not a string"), post_id(3)]

    async def test_edits_deletions_and_wishes_of_a_gap_are_looked_up(
        self, server: MastodonServer, aliases: Aliases
    ) -> None:
        """Of 30 posts that came before, one was deleted, one edited and one made private meanwhile."""
        server.streams.extend([sends(*range(1, 31), then="break"), says_nothing])
        edited = "2026-07-04T10:05:00.000Z"
        server.extra = [status(number) for number in range(4, 31)] + [
            status(2, edited_at=edited, content="<p>edited</p>"),
            status(3, visibility="private"),
        ]
        source = source_of(server, aliases)
        records, _ = await records_of(source, 33)
        found = records[30:]
        assert {type(record).__name__ for record in found} == {"Post", "Removal"}
        assert {record.text for record in found if isinstance(record, Post)} == {"edited"}
        gone = {(record.post_id, record.reason) for record in found if isinstance(record, Removal)}
        assert gone == {(post_id(1), "deleted"), (post_id(3), "consent")}

    async def test_an_answer_that_leaves_a_status_out_deletes_nothing(
        self, server: MastodonServer, aliases: Aliases
    ) -> None:
        alone = f"/api/v1/statuses/{local_id(1)}"

        async def later(channel):
            await until(lambda: server.asked(alone))
            await sends(2)(channel)

        server.streams.extend([sends(1, then="break"), later])
        server.refusals[alone].append((403, {}))
        source = source_of(server, aliases)
        records, _ = await records_of(source, 2)
        assert ids(records) == [post_id(1), post_id(2)]

    async def test_an_old_instance_that_cannot_look_up_is_counted(
        self, server: MastodonServer, aliases: Aliases
    ) -> None:
        async def later(channel):
            await until(lambda: source.stats.skipped["look_up_refused"])
            await sends(2)(channel)

        server.streams.extend([sends(1, then="break"), later])
        server.refusals["/api/v1/statuses"].append((404, {}))
        source = source_of(server, aliases)
        records, _ = await records_of(source, 2)
        assert ids(records) == [post_id(1), post_id(2)]

    async def test_what_came_before_has_no_gap(self, server: MastodonServer, aliases: Aliases) -> None:
        server.timeline = [status(1)]
        server.streams.append(sends(2))
        records, _ = await records_of(source_of(server, aliases), 1)
        assert ids(records) == [post_id(2)]
        assert server.asked("/api/v1/timelines/public") == []


async def test_a_slow_publisher_holds_the_stream_back_and_loses_nothing(
    server: MastodonServer, aliases: Aliases
) -> None:
    numbers = list(range(1, 700))

    async def much(channel):
        for number in numbers:
            made = status(number) | {"id": f"1089143549079{number:05d}"}
            await channel.event("update", made | {"account": account()})
        await channel.stay()

    EventStream.size, before = 4096, EventStream.size
    server.streams.append(much)
    source, records = source_of(server, aliases, "sse"), []
    async with asyncio.timeout(60), aclosing(source.arrivals(None)) as arrivals:
        async for arrival in arrivals:
            records += arrival.records
            if len(records) == 1:
                await asyncio.sleep(0.3)
                assert source.stats.events <= 2
            if len(records) == len(numbers):
                break
    EventStream.size = before
    assert ids(records) == [post_id(number) for number in numbers]


async def test_only_so_many_messages_wait_for_the_publisher() -> None:
    inbox, message = _Inbox(), Message("update", "{}", 0)
    for _ in range(WAITING):
        await inbox.put(message)
    one_more = asyncio.ensure_future(inbox.put(message))
    await asyncio.sleep(0.05)
    assert not one_more.done()
    await inbox.take()
    await one_more


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "Sat, 04 Jul 2026 10:00:30 GMT"}, 30.0),
        ({"retry-after": "Sat, 04 Jul 2026 09:00:00 GMT"}, 0.0),
        ({"x-ratelimit-reset": "2026-07-04T10:00:10.000Z"}, 10.0),
        ({"retry-after": "99999999"}, MOST_WAIT_S),
        ({"retry-after": "9" * 5000}, MOST_WAIT_S),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({}, None),
    ],
)
def test_how_long_an_instance_asks_to_wait(headers: dict[str, str], wait_s: float | None) -> None:
    assert retry_after_s(headers, 1_783_159_200.0) == wait_s
