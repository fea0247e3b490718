"""The archiver: a consumer that writes what it commits and commits what it has written."""

import asyncio
import itertools
import json

import pytest
from typer.testing import CliRunner

from ingest.archive import Archive
from ingest.archive_republish import republish
from ingest.archiver import Archiver
from ingest.feed import KafkaFeed
from ingest.payload import Refused
from ingest.post import AccountChange, Removal, account_of
from ingest.publish import Publisher
from ingest.record import decode, encode
from ingest.versions import time_us
from services.archive_cli import archive_cli
from tests.ingest.ingest_parts import FakeFeed, FakeScreen, raw, until
from tests.ingest.test_archive import HOUR_MS, TEN_MS, Clock, held, made

NUMBERS = itertools.count()
runner = CliRunner()


@pytest.fixture
def url():
    return f"memory://archiver-{next(NUMBERS)}"


def record(offset, post):
    key, value, headers = encode(post)
    return raw(offset, value, key, headers=tuple(headers))


def published(*records):
    return [record(offset, each) for offset, each in enumerate(records)]


class Ticks:
    """A monotonic clock that the test moves."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


async def archived(url, *batches, screen=None):
    """Everything through an archiver that writes at once."""
    feed = FakeFeed(*batches)
    archiver = Archiver(feed, screen or FakeScreen(), Archive(url, Clock()), flush_s=0.0)
    running = asyncio.create_task(archiver.run())
    await until(lambda: len(feed.committed) == len(batches) or running.done())
    await feed.close()
    await running
    return feed, archiver


async def test_posts_are_screened_written_and_only_then_committed(url):
    posts = made("a", "fine"), made("b", "my secret"), made("c", "bad")
    feed, archiver = await archived(url, published(*posts))
    assert held(Archive(url)) == {"a": "fine", "b": "my [secret]"}
    assert feed.committed == feed.batches
    stats = archiver.stats()
    assert (stats.records, stats.posts, stats.blocked, stats.waiting_records) == (3, 2, 1, 0)
    assert stats.healthy and stats.last_written_ms is not None


async def test_the_byline_is_archived_as_it_may_be_shown_and_the_account_can_still_be_deleted(url):
    await archived(url, published(made("a", author="bad author")))
    (post,) = Archive(url).restore(0, 10 * TEN_MS)
    assert "bad author" not in repr(post)
    await archived(url, published(AccountChange("test", "bad author", "deleted", 2)))
    assert held(Archive(url)) == {}


async def test_a_post_that_is_blocked_after_an_edit_takes_the_older_version_with_it(url):
    await archived(url, published(made("a", "fine", version_us=TEN_MS * 1000)))
    await archived(url, published(made("a", "bad", version_us=TEN_MS * 1000 + 1)))
    assert held(Archive(url)) == {}


async def test_removals_and_account_changes_reach_the_archive(url):
    first = published(made("a"), made("b"), made("c", author="ben"))
    second = published(Removal("a", 10**16, if_newer=True), AccountChange("test", "ben", "deleted", 5))
    _, archiver = await archived(url, first, second)
    assert held(Archive(url)) == {"b": "text"}
    assert archiver.stats().erased == 2


async def test_records_that_are_no_posts_are_passed_by(url):
    feed, archiver = await archived(url, [raw(0, b"not json"), record(1, made("a"))])
    assert held(Archive(url)) == {"a": "text"}
    assert (len(feed.committed), feed.aside) == (1, [])


async def test_posts_wait_until_it_is_time(url):
    feed, ticks = FakeFeed(published(made("a"))), Ticks()
    archiver = Archiver(feed, FakeScreen(), Archive(url, Clock()), flush_s=60.0, now_s=ticks)
    running = asyncio.create_task(archiver.run())
    await until(lambda: archiver.stats().waiting_records == 1)
    assert held(Archive(url)) == {}
    feed.push(published(made("b")))
    await until(lambda: archiver.stats().waiting_records == 2)
    assert feed.committed == []
    ticks.now_s += 60.0
    feed.push(published(made("c")))
    await until(lambda: len(feed.committed) == 3)
    assert set(held(Archive(url))) == {"a", "b", "c"}
    assert len(Archive(url).stats().damaged) == 0 and Archive(url).stats().files == 1
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()


async def test_a_quiet_feed_does_not_keep_posts_waiting(url):
    feed = FakeFeed(published(made("a")))
    archiver = Archiver(feed, FakeScreen(), Archive(url, Clock()), flush_s=0.05)
    running = asyncio.create_task(archiver.run())
    await until(lambda: feed.committed)
    assert held(Archive(url)) == {"a": "text"}
    await feed.close()
    await running


async def test_what_waits_at_the_end_of_the_feed_is_written(url):
    feed = FakeFeed(published(made("a")))
    archiver = Archiver(feed, FakeScreen(), Archive(url, Clock()), flush_s=60.0)
    running = asyncio.create_task(archiver.run())
    await until(lambda: archiver.stats().waiting_records)
    await feed.close()
    await running
    assert held(Archive(url)) == {"a": "text"}
    assert feed.committed == feed.batches


async def test_many_records_are_written_before_their_time(url):
    feed = FakeFeed(*(published(*(made(f"p{i}-{j}", "x" * 9_000) for j in range(100))) for i in range(80)))
    archiver = Archiver(feed, FakeScreen(), Archive(url, Clock()), flush_s=3600.0)
    running = asyncio.create_task(archiver.run())
    await until(lambda: feed.committed, timeout_s=60.0)
    assert archiver.stats().posts > 5000
    running.cancel()
    await asyncio.wait([running])


async def test_a_store_that_fails_is_tried_again_and_nothing_is_committed_meanwhile(url):
    archive = Archive(url, Clock())
    real, failures = archive._store.write, iter([True] * 3)

    def failing(path, content):
        if next(failures, False):
            raise OSError("disk full")
        real(path, content)

    archive._store.write = failing
    feed = FakeFeed(published(made("a")))
    waits = []

    async def sleep(seconds):
        waits.append((seconds, len(feed.committed), archiver.stats().reason))

    archiver = Archiver(feed, FakeScreen(failures=2), archive, flush_s=0.0, sleep=sleep)
    running = asyncio.create_task(archiver.run())
    await until(lambda: feed.committed)
    assert [committed for _, committed, _ in waits] == [0] * 5
    assert [reason for *_, reason in waits] == ["screen: Down"] * 2 + ["archive: OSError"] * 3
    assert held(Archive(url)) == {"a": "text"}
    assert archiver.stats().reason == ""
    await feed.close()
    await running


async def test_a_batch_delivered_again_changes_nothing(url):
    batch = published(made("a"), Removal("b", 10**16, if_newer=True))
    await archived(url, batch)
    _, archiver = await archived(url, batch)
    assert (archiver.stats().posts, archiver.stats().stale) == (0, 1)
    assert held(Archive(url)) == {"a": "text"}


async def test_a_stalled_feed_is_told(url):
    feed = FakeFeed()
    feed.stalled = RuntimeError("stalled")
    with pytest.raises(RuntimeError, match="stalled"):
        Archiver(feed, FakeScreen(), Archive(url), flush_s=1.0).check()


# -- to the topic and back


async def read_topic(brokers, topic, count):
    feed = KafkaFeed(brokers, topic, f"reader-{next(NUMBERS)}", session_timeout_s=2.0)
    found = []
    async for batch in feed:
        found += batch.records
        if len(found) >= count:
            break
    await feed.close()
    return [decode(r.key, r.value, r.headers, timestamp_ms=r.timestamp_ms, received_ms=2**42) for r in found]


async def test_posts_go_from_the_topic_to_the_archive_and_back_to_a_topic(brokers, topic, url):
    posts = [
        made(f"x:{2**60 + i}", f"text {i}", ms=TEN_MS + i * HOUR_MS // 10, version_us=2**50 + i) for i in range(40)
    ]
    async with Publisher(brokers, topic) as publisher:
        for post in posts:
            await publisher.publish(post)
        await publisher.publish(Removal(posts[5].id, 2**51, if_newer=True))
    feed = KafkaFeed(brokers, topic, "g-archive", session_timeout_s=2.0)
    archiver = Archiver(feed, FakeScreen(), Archive(url), flush_s=0.1)
    running = asyncio.create_task(archiver.run())
    await until(lambda: archiver.stats().records == 41 and not archiver.stats().waiting_records)
    running.cancel()
    await asyncio.wait([running])

    seen = []
    async with Publisher(brokers, f"{topic}-again") as publisher:
        done = await republish(Archive(url), publisher, TEN_MS, TEN_MS + 2 * HOUR_MS, seen.append)
    expected = [post for post in posts[:21] if post.id != posts[5].id]
    assert (done.posts, done.refused, done.damaged, seen[-1]) == (20, {}, {}, 20)
    back = await read_topic(brokers, f"{topic}-again", 20)
    assert {(p.id, p.version_us, p.text, p.created_ms, p.account) for p in back} == {
        (p.id, p.version_us, p.text, p.created_ms, p.account) for p in expected
    }


async def test_a_restored_post_still_belongs_to_its_account_though_the_id_is_not_shown(brokers, topic, url):
    await archived(url, published(made("a", author="bad author")))
    async with Publisher(brokers, topic) as publisher:
        await republish(Archive(url), publisher, 0, 10 * TEN_MS)
    (post,) = await read_topic(brokers, topic, 1)
    assert post.author.id != "bad author"
    assert post.account == account_of("test", "bad author")


async def test_restored_posts_do_not_double_the_archive(brokers, topic, url):
    await archived(url, published(made("a"), made("b", ms=TEN_MS + HOUR_MS)))
    async with Publisher(brokers, topic) as publisher:
        await republish(Archive(url), publisher, 0, 10 * TEN_MS)
    again = await read_topic(brokers, topic, 2)
    _, archiver = await archived(url, published(*again))
    assert (archiver.stats().posts, archiver.stats().stale) == (0, 2)
    assert Archive(url).stats().posts == 2


class PublisherOfSome:
    """Refuses what says "refused"."""

    def __init__(self):
        self.sent, self.most = [], 0

    async def send(self, post):
        if "refused" in post.text:
            raise Refused("field", "text")
        self.sent.append(post.id)
        waiting = asyncio.get_running_loop().create_future()
        return post, waiting

    async def acknowledged(self, waiting):
        waiting.set_result(None)


async def test_what_the_topic_refuses_is_counted_and_the_others_go_on(url):
    await archived(url, published(made("a"), made("b", "refused"), made("c")))
    publisher = PublisherOfSome()
    done = await republish(Archive(url), publisher, 0, 10 * TEN_MS)
    assert (done.posts, done.refused, sorted(publisher.sent)) == (2, {"field": 1}, ["a", "c"])


# -- the command


def test_the_command_restores_a_day_and_tells_what_there_is(brokers, topic, tmp_path):
    folder = tmp_path / "archive"
    day_ms = time_us("2026-07-04T00:00:00Z") // 1000
    posts = [made("before", ms=day_ms - 1), made("first", ms=day_ms), made("last", ms=day_ms + 24 * HOUR_MS - 1)]
    Archive(str(folder)).write([*posts, made("after", ms=day_ms + 24 * HOUR_MS)])
    stats = runner.invoke(archive_cli, ["stats", "--url", str(folder)])
    assert json.loads(stats.stdout) | {"bytes": 0} == {
        "files": 4, "bytes": 0, "posts": 4, "hours": 4, "remembered": 0, "damaged": {},
        "first_hour": "2026-07-03T23:00:00.000000Z", "last_hour": "2026-07-05T00:00:00.000000Z",
    }  # fmt: skip
    arguments = ["restore", "--from", "2026-07-04", "--to", "2026-07-04", "--url", str(folder)]
    done = runner.invoke(archive_cli, [*arguments, "--brokers", brokers, "--topic", topic])
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"posts": 2, "refused": {}, "damaged": 0})
    back = asyncio.run(read_topic(brokers, topic, 2))
    assert {post.id for post in back} == {"first", "last"}


def test_the_command_tells_of_damage_and_restores_the_rest(brokers, topic, tmp_path):
    Archive(str(tmp_path)).write([made("a"), made("b", ms=TEN_MS + HOUR_MS)])
    path = next(tmp_path.rglob("*hour=11/*.parquet"))
    path.write_bytes(path.read_bytes()[:-10])
    arguments = ["restore", "--from", "2026-07-04", "--url", str(tmp_path), "--brokers", brokers, "--topic", topic]
    done = runner.invoke(archive_cli, arguments)
    assert (done.exit_code, json.loads(done.stdout)) == (1, {"posts": 1, "refused": {}, "damaged": 1})
    assert str(path) in done.stderr
    stats = runner.invoke(archive_cli, ["stats", "--url", str(tmp_path)])
    assert (stats.exit_code, list(json.loads(stats.stdout)["damaged"])) == (1, [str(path)])


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["restore", "--from", "yesterday", "--url", "memory://x"], 2, "--from yesterday: no RFC 3339 time"),
        (["restore", "--from", "2026-13-01", "--url", "memory://x"], 2, "--from 2026-13-01"),
        (["restore", "--from", "2026-07-04", "--to", "2026-07-03", "--url", "memory://x"], 2, "--to is before --from"),
        (["restore", "--from", "2026-07-04"], 2, "there is no archive"),
        (["stats"], 2, "there is no archive"),
        (["stats", "--url", "nosuch://x"], 1, "archive nosuch://x"),
    ],
)
def test_the_command_refuses_in_one_line(arguments, code, says):
    done = runner.invoke(archive_cli, arguments)
    assert (done.exit_code, done.stdout) == (code, "")
    assert says in done.stderr and done.stderr.count("\n") == 1


def test_the_command_tells_of_a_broker_that_is_not_there(tmp_path, port):
    Archive(str(tmp_path)).write([made("a")])
    arguments = ["restore", "--from", "2026-07-04", "--url", str(tmp_path), "--brokers", f"127.0.0.1:{port}"]
    done = runner.invoke(archive_cli, arguments)
    assert done.exit_code == 1
    assert f"127.0.0.1:{port}" in done.stderr and done.stderr.count("\n") == 1
