"""The RSS source against a real HTTP server that moves, refuses, cuts, stalls and lies."""

import asyncio
import gzip
import json
from contextlib import aclosing

import pytest

from ingest.settings import RssSettings
from ingest.sources.arrival import SourceEnded
from ingest.sources.backoff import BackOff
from ingest.sources.rss_client import MAX_BODY, RssSource
from tests.ingest.sources.feeds import NOW_MS, FeedServer, Reply, atom, entry, item, rss

A, B = rss(item("a", guid="urn:a")), rss(item("b", guid="urn:b"), item("a", guid="urn:a"))


class Waits:
    """A sleep that ends at once and keeps how long it should have been; after `most` of them, it lasts for ever."""

    def __init__(self):
        self.asked, self.most = [], 10_000

    async def __call__(self, wait_s):
        self.asked.append(wait_s)
        if len(self.asked) >= self.most:
            await asyncio.Event().wait()
        await asyncio.sleep(0.002)


def source_of(server, *paths, every_s=300.0, **fields):
    settings = RssSettings(urls=tuple(f"{server.url}/{path}" for path in paths), every_s=every_s)
    fields = {"sleep": Waits(), "clock_ms": lambda: NOW_MS, "poll_s": 20.0, **fields}
    fields.setdefault("backoff", lambda every_s: BackOff(every_s, 8 * every_s, spread=lambda least, most: most))
    return RssSource(settings, **fields)


async def read(source, count, cursor=None):
    """(the texts of the first `count` posts, the cursor after them)."""
    texts = []
    async with asyncio.timeout(30), aclosing(source.arrivals(cursor)) as arrivals:
        async for arrival in arrivals:
            texts += [post.text for post in arrival.records]
            if len(texts) >= count:
                return texts, arrival.cursor


async def until(holds):
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


async def polled(source, times, cursor=None):
    """All texts that came while the feed was asked `times` times, and all cursors."""
    texts, cursors = [], []

    async def reading():
        async for arrival in source.arrivals(cursor):
            texts.extend(post.text for post in arrival.records)
            cursors.append(arrival.cursor)

    source._sleep.most = times
    task = asyncio.create_task(reading())
    await until(lambda: len(source._sleep.asked) >= times or task.done())
    await asyncio.sleep(0.02)  # what was put before the wait reaches the reader
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return texts, cursors


# Asking


async def test_each_entry_comes_once_however_often_it_is_asked_for():
    async with FeedServer(f=[Reply(body=A), Reply(body=A), Reply(body=B), Reply(body=A), Reply(body=B)]) as server:
        source = source_of(server, "f")
        texts, _ = await polled(source, 6)
    assert texts == ["a", "b"]
    assert source.stats.events >= 7 and source.stats.skipped["unchanged"] >= 5
    assert (source.stats.fault, source.stats.lag_ms) == ("", 300_000)


async def test_what_has_not_changed_is_not_sent_again():
    """ETag, Last-Modified and 304."""
    headers = {"ETag": 'W/"x"', "Last-Modified": "Sat, 04 Jul 2026 10:00:00 GMT"}
    async with FeedServer(f=[Reply(body=A, headers=headers), Reply(304), Reply(body=B)]) as server:
        texts, cursor = await read(source_of(server, "f"), 2)
        first, second, third = server.asked("/f")[:3]
        again = source_of(server, "f")
        await polled(again, 1, cursor)
    assert texts == ["a", "b"]
    assert "if-none-match" not in first and "if-modified-since" not in first
    for headers in (second, third):
        assert headers["if-none-match"] == 'w/"x"' and headers["if-modified-since"] == "sat, 04 jul 2026 10:00:00 gmt"
    assert "if-none-match" not in server.asked("/f")[-1]  # the last answer had none


async def test_the_cursor_carries_on_after_a_restart():
    async with FeedServer(f=[Reply(body=A), Reply(body=B)]) as server:
        texts, cursor = await read(source_of(server, "f"), 1)
        assert list(json.loads(cursor)) == [f"{server.url}/f"]
        more, _ = await read(source_of(server, "f"), 1, cursor)
    assert (texts, more) == (["a"], ["b"])


async def test_an_answer_that_only_has_a_new_etag_moves_the_cursor():
    replies = [Reply(body=A, headers={"ETag": f'"{version}"'}) for version in (1, 2)]
    async with FeedServer(f=replies) as server:
        _, cursors = await polled(source_of(server, "f"), 3)
    assert [next(iter(json.loads(cursor).values()))["etag"] for cursor in cursors] == ['"1"', '"2"']


async def test_a_cursor_that_was_tampered_with_is_a_fault_and_mended():
    async with FeedServer(f=[Reply(body=A)]) as server:
        bad = {"etag": "", "modified": "", "at": "http://[::bad", "seen": {}}
        texts, _ = await read(source_of(server, "f"), 1, json.dumps({f"{server.url}/f": bad}))
    assert texts == ["a"]


async def test_what_was_read_and_not_acknowledged_comes_again():
    async with FeedServer(f=[Reply(body=A)]) as server:
        source = source_of(server, "f")
        assert (await read(source, 1))[0] == (await read(source, 1))[0] == ["a"]


async def test_no_cursor_says_of_a_feed_what_was_not_given():
    """The other feed is read, and its entries wait, while the first one's arrival is with the reader."""
    async with FeedServer(f=[Reply(body=A)], g=[Reply(body=B)]) as server:
        source = source_of(server, "f", "g")
        async with aclosing(source.arrivals(None)) as arrivals:
            first = await anext(arrivals)
            await until(lambda: len(server.requests) >= 3)
        feeds = json.loads(first.cursor)
        assert sorted(len(feed["seen"]) for feed in feeds.values())[0] == 0


async def test_each_feed_goes_at_its_own_pace():
    slow = rss(item("s", guid="urn:s"), more="<ttl>60</ttl>")
    waits = {}
    async with FeedServer(f=[Reply(body=A)], s=[Reply(body=slow)]) as server:
        for path in ("f", "s"):
            source = source_of(server, path)
            await polled(source, 2)
            waits[path] = source._sleep.asked[:2]
    assert waits == {"f": [300, 300], "s": [3600, 3600]}


async def test_a_feed_that_hangs_delays_no_other():
    async with FeedServer(f=[Reply(body=A), Reply(body=B)], h=[Reply(body=A, hang=True)]) as server:
        texts, _ = await read(source_of(server, "h", "f"), 2)
    assert texts == ["a", "b"]


async def test_closing_the_reader_ends_all_requests():
    async with FeedServer(f=[Reply(body=A)], h=[Reply(body=A, hang=True)]) as server:
        await read(source_of(server, "h", "f"), 1)
        assert not [task for task in asyncio.all_tasks() if "_follow" in repr(task.get_coro())]


# Faults


FAULTS = {
    "status": Reply(500, b"oops"),
    "html": Reply(body=b"<html><body>Please log in</body></html>"),
    "cut": Reply(body=B, cut=True),
    "no http": Reply(raw=b"garbage\r\n\r\n"),
    "nothing": Reply(raw=b""),
    "not gzip": Reply(body=B, headers={"Content-Encoding": "gzip"}),
    "empty": Reply(body=b""),
    "redirect to nowhere": Reply(301, headers={"Location": "http://[::bad"}),
    "redirect to a file": Reply(302, headers={"Location": "file:///etc/passwd"}),
    "redirect without": Reply(302),
    "bad header": Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"),
    "odd header": Reply(raw=b"HTTP/1.1 301 \xff\r\nLocation: http://\xff\xfe/\x80\r\nContent-Length: 0\r\n\r\n"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_after_any_fault_the_feed_is_asked_again_and_loses_and_repeats_nothing(fault):
    async with FeedServer(f=[Reply(body=A), fault, fault, Reply(body=B), fault, Reply(body=B)]) as server:
        source = source_of(server, "f")
        texts, _ = await polled(source, 6)
    assert texts == ["a", "b"]
    assert source._sleep.asked == [300, 300, 600, 300, 300, 300] and source.stats.fault == ""


async def test_a_server_that_trickles_is_given_up():
    async with FeedServer(f=[Reply(body=B, hang=True), Reply(body=B, drip=True), Reply(body=A)]) as server:
        texts, _ = await read(source_of(server, "f", poll_s=0.3), 1)
    assert texts == ["a"]


async def test_a_body_that_is_too_large_is_not_read_to_its_end():
    huge = rss(item("x" * (MAX_BODY + 1), guid="urn:x"))
    bomb = Reply(body=gzip.compress(huge), headers={"Content-Encoding": "gzip"})
    async with FeedServer(f=[Reply(body=huge), bomb, Reply(body=A)]) as server:
        source = source_of(server, "f")
        texts, _ = await read(source, 1)
    assert texts == ["a"] and source.stats.malformed == {"too_large": 2}


async def test_gzip_is_read():
    async with FeedServer(f=[Reply(body=gzip.compress(A), headers={"Content-Encoding": "gzip"})]) as server:
        assert (await read(source_of(server, "f"), 1))[0] == ["a"]


async def test_failures_wait_longer_and_longer_each_at_least_the_usual_time():
    async with FeedServer(f=[Reply(500)] * 5 + [Reply(body=A)]) as server:
        source = source_of(server, "f", every_s=10)
        await polled(source, 7)
    assert source._sleep.asked[:7] == [10, 20, 40, 80, 80, 10, 10]


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("given", "wait_s"),
    [
        ("1000", 1000),
        ("Sat, 04 Jul 2026 10:25:00 GMT", 1200),
        ("5", 300),
        ("Sat, 04 Jul 2020 10:25:00 GMT", 300),
        ("soon", 300),
        ("9" * 40, 86_400),
    ],
)
async def test_a_server_that_asks_for_patience_gets_it(status, given, wait_s):
    async with FeedServer(f=[Reply(status, headers={"Retry-After": given}), Reply(body=A)]) as server:
        source = source_of(server, "f")
        await read(source, 1)
    assert source._sleep.asked[0] == wait_s


async def test_the_faults_of_many_feeds_are_told_in_one_line():
    async with FeedServer(f=[Reply(404)], g=[Reply(500)], h=[Reply(body=A)]) as server:
        source = source_of(server, "f", "g", "h")
        await polled(source, 6)
    assert source.stats.fault == "2 of 3 feeds, first 127.0.0.1: HTTP 404"


async def test_an_unreachable_server_is_a_fault_of_that_feed_only():
    async with FeedServer(f=[Reply(body=A)]) as server:
        other = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        port = other.sockets[0].getsockname()[1]
        other.close()
        settings = RssSettings(urls=(f"http://127.0.0.1:{port}/x", f"{server.url}/f"))
        source = RssSource(settings, sleep=Waits(), clock_ms=lambda: NOW_MS)
        texts, _ = await polled(source, 4)
    assert texts == ["a"] and source.stats.fault == "127.0.0.1: ConnectError"


# Moving and ending


@pytest.mark.parametrize(("status", "is_kept"), [(301, True), (308, True), (302, False), (307, False), (303, False)])
async def test_a_feed_that_moved_for_good_is_asked_at_its_new_place(status, is_kept):
    moved = Reply(status, headers={"Location": "/new"})
    async with FeedServer(old=[moved], new=[Reply(body=A), Reply(body=B)]) as server:
        texts, cursor = await read(source_of(server, "old"), 2)
        assert texts == ["a", "b"]
        assert len(server.asked("/old")) == (1 if is_kept else 2)
        before = len(server.asked("/old"))
        await polled(source_of(server, "old"), 1, cursor)
        assert len(server.asked("/old")) - before == (0 if is_kept else 1)


async def test_the_posts_of_a_feed_that_moved_keep_their_names():
    async with FeedServer(old=[Reply(body=A), Reply(301, headers={"Location": "/new"})], new=[Reply(body=B)]) as server:
        texts, _ = await read(source_of(server, "old"), 2)
    assert texts == ["a", "b"]


async def test_when_the_new_place_fails_the_old_one_is_asked_again():
    moved = Reply(301, headers={"Location": "/new"})
    async with FeedServer(old=[moved, Reply(body=B)], new=[Reply(body=A), Reply(404)]) as server:
        texts, _ = await read(source_of(server, "old"), 2)
        assert texts == ["a", "b"] and len(server.asked("/old")) == 2


@pytest.mark.parametrize(("count", "is_followed"), [(5, True), (6, False)])
async def test_redirects_have_an_end(count, is_followed):
    chain = {f"r{n}": [Reply(302, headers={"Location": f"/r{n + 1}"})] for n in range(count)}
    async with FeedServer(**chain, **{f"r{count}": [Reply(body=A)]}) as server:
        source = source_of(server, "r0")
        texts, _ = await polled(source, 1)
    assert texts == (["a"] if is_followed else [])
    assert source.stats.malformed == ({} if is_followed else {"redirect": 1})


async def test_a_feed_that_is_gone_is_asked_no_more_and_the_others_go_on():
    async with FeedServer(f=[Reply(410)], g=[Reply(body=A), Reply(body=B)]) as server:
        source = source_of(server, "f", "g")
        texts, _ = await polled(source, 5)
        assert len(server.asked("/f")) == 1 and len(server.asked("/g")) == 5
    assert texts == ["a", "b"] and source.stats.fault == "127.0.0.1: HTTP 410"


async def test_when_every_feed_is_gone_the_source_is_over_and_has_given_all():
    async with FeedServer(f=[Reply(body=A), Reply(410)], g=[Reply(body=B), Reply(410)]) as server:
        texts = []
        with pytest.raises(SourceEnded, match="410"):
            async with asyncio.timeout(30):
                async for arrival in source_of(server, "f", "g").arrivals(None):
                    texts += [post.text for post in arrival.records]
    assert sorted(texts) == ["a", "a", "b"]  # "a" stands in both feeds: the same id, written by each


async def test_without_feeds_the_source_is_over():
    with pytest.raises(SourceEnded, match="no feeds"):
        await anext(RssSource(RssSettings()).arrivals(None))


@pytest.mark.parametrize("url", ["ftp://ex.org/f", "ex.org/feed", "", "http://", "http://[bad"])
def test_an_address_that_is_none_is_refused_at_once(url):
    with pytest.raises(ValueError, match="http"):
        RssSource(RssSettings(urls=(url,)))


async def test_an_edit_of_an_atom_entry_comes_as_a_newer_version():
    """T31"""
    replies = [
        Reply(body=atom(entry(1, "one"))),
        Reply(body=atom(entry(1, "one", updated="2026-07-04T10:05:00Z"))),
        Reply(body=atom(entry(1, "two", updated="2026-07-04T10:05:00Z"))),
    ]
    async with FeedServer(f=replies) as server:
        posts = []
        async with asyncio.timeout(30), aclosing(source_of(server, "f").arrivals(None)) as arrivals:
            async for arrival in arrivals:
                posts += arrival.records
                if len(posts) == 2:
                    break
    assert [post.text for post in posts] == ["Entry 1\none", "Entry 1\ntwo"]
    assert posts[0].id == posts[1].id and posts[0].version_us < posts[1].version_us
