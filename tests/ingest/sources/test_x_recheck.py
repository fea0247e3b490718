"""Published X posts looked up again: what is due, what it costs, what it finds, what a crash loses (nothing)."""

import pytest

from ingest.post import Post, Removal
from ingest.sources.x_api_client import XApi
from ingest.sources.x_published import FIRST_MS, FORGET_MS, MAX_POSTS, Published, Version
from ingest.sources.x_recheck import Recheck
from tests.ingest.sources.x_events import id_at, post
from tests.ingest.sources.x_parts import NOON_MS, Parts
from tests.ingest.sources.x_server import LOOK_UP, Reply, XServer

HOUR_S = 3600
OLD, NEW, NEWER = id_at(NOON_MS - 9000), id_at(NOON_MS - 5000), id_at(NOON_MS - 3000)


@pytest.fixture
async def server():
    async with XServer() as one:
        yield one


@pytest.fixture
def parts(tmp_path, server):
    with Parts(tmp_path, server.url) as one:
        yield one


@pytest.fixture
async def api(parts):
    one = XApi(parts.settings.url, parts.settings.token_file, silence_s=10.0)
    yield one
    await one.close()


def recheck_of(parts, api):
    return Recheck(api, parts.aliases, parts.budget, parts.published, parts.clock, parts.failed)


def gone(native_id, problem="resource-not-found"):
    return {"resource_id": native_id, "parameter": "ids", "type": f"https://api.x.com/2/problems/{problem}"}


def ids(server):
    return [one.parameters["ids"].split(",") for one in server.asked_for(LOOK_UP)]


async def test_nothing_is_asked_before_its_time_and_then_ever_more_rarely(server, parts, api):
    server.replies[LOOK_UP] = [Reply({"data": [post(OLD)]})]
    recheck = recheck_of(parts, api)
    parts.published.remember([Version(f"x:{OLD}", OLD)], NOON_MS)
    at_h = []
    for minute in range(0, 30 * 24 * 60, 20):
        parts.clock.now_s = NOON_MS / 1000 + minute * 60
        before = len(ids(server))
        assert await recheck.look() is None, "it stands as it was published"
        if len(ids(server)) > before:
            at_h.append(minute // 60)
    assert at_h == [1, 5, 21, 85, 341]


async def test_a_post_that_is_gone_is_asked_for_once_more_only_after_a_crash(server, parts, api):
    server.replies[LOOK_UP] = [Reply({"errors": [gone(OLD, "not-authorized-for-resource")]})]
    parts.published.remember([Version(f"x:{OLD}", OLD)], NOON_MS)
    parts.clock.now_s += HOUR_S
    for recheck in (recheck_of(parts, api), recheck_of(parts, api)):  # the first one dies before it is asked again
        (removal,) = (await recheck.look()).records
        assert removal == Removal(f"x:{OLD}", int(parts.clock.now_s) * 10**6 + 999, "consent", if_newer=True)
    parts.clock.now_s += 60
    assert await recheck.look() is None
    parts.clock.now_s += 300 * HOUR_S
    assert await recheck.look() is None and len(ids(server)) == 2
    assert parts.budget.spent().posts == 0


async def test_an_edit_that_the_stream_did_not_bring_is_found_and_published_once(server, parts, api):
    chain = {"edit_history_tweet_ids": [OLD, NEW]}
    server.replies[LOOK_UP] = [
        Reply({"data": [post(OLD, "old", **chain)]}),
        Reply({"data": [post(NEW, "new", **chain)]}),
    ]
    recheck = recheck_of(parts, api)
    parts.published.remember([Version(f"x:{OLD}", OLD)], NOON_MS)
    parts.clock.now_s += HOUR_S
    assert await recheck.look() is None
    parts.clock.now_s += 60
    (edited,) = (await recheck.look()).records
    assert isinstance(edited, Post) and (edited.id, edited.text) == (f"x:{OLD}", "new")
    assert ids(server) == [[OLD], [NEW]] and parts.aliases.get(f"x:{NEW}") == f"x:{OLD}"
    parts.clock.now_s += 60
    assert await recheck.look() is None and len(ids(server)) == 2
    parts.clock.now_s += 300 * HOUR_S
    assert await recheck.look() is None and ids(server)[2] == [NEW]


async def test_an_author_who_protects_his_posts_now_has_them_removed(server, parts, api):
    users = [{"id": "2244994945", "username": "ana", "protected": True}]
    server.replies[LOOK_UP] = [Reply({"data": [post(OLD)], "includes": {"users": users}})]
    parts.published.remember([Version(f"x:{OLD}", OLD)], NOON_MS)
    parts.clock.now_s += HOUR_S
    (removal,) = (await recheck_of(parts, api).look()).records
    assert isinstance(removal, Removal) and removal.reason == "consent"


async def test_a_hundred_at_once_once_a_minute_within_the_budget(server, parts, api):
    everything = [Version(f"x:{n}", id_at(NOON_MS, n)) for n in range(250)]
    parts.published.remember(everything, NOON_MS)
    recheck = recheck_of(parts, api)
    parts.clock.now_s += HOUR_S
    server.replies[LOOK_UP] = [Reply({"data": [post(id_at(NOON_MS, n)) for n in range(100)]})]
    for _ in range(3):
        await recheck.look()
        parts.clock.now_s += 20
    assert [len(some) for some in ids(server)] == [100]
    await recheck.look()
    parts.clock.now_s += 60
    await recheck.look()
    assert [len(some) for some in ids(server)] == [100, 100], "a fifth of 1000 a day"
    assert parts.budget.spent().by_purpose == {"recheck": 200}


async def test_a_fault_of_x_is_counted_and_waited_for(server, parts, api):
    server.replies[LOOK_UP] = [Reply({}, 429), Reply({"errors": [gone(OLD)]})]
    recheck = recheck_of(parts, api)
    parts.published.remember([Version(f"x:{OLD}", OLD)], NOON_MS)
    parts.clock.now_s += HOUR_S
    assert await recheck.look() is None and parts.failed == {"look-up: 429 unknown": 1}
    parts.clock.now_s += 59
    assert await recheck.look() is None and len(ids(server)) == 1
    parts.clock.now_s += 1
    assert await recheck.look() is not None and parts.budget.spent().posts == 0


@pytest.fixture
def published(tmp_path):
    with Published(tmp_path / "some" / "published.sqlite") as one:
        yield one


def test_those_never_looked_up_come_first_and_of_them_the_newest(published):
    for n in range(4):
        published.remember([Version(f"x:{n}", str(n + 1))], NOON_MS + n)
    later_ms = NOON_MS + FIRST_MS + 10
    published.checked(["x:3"], NOON_MS - 10 * FIRST_MS)
    assert [one.post_id for one in published.due(later_ms, 3)] == ["x:2", "x:1", "x:0"]
    assert [one.post_id for one in published.due(later_ms, 9)] == ["x:2", "x:1", "x:0", "x:3"]
    assert [one.post_id for one in published.due(NOON_MS + FIRST_MS, 9)] == ["x:0", "x:3"]


def test_only_a_newer_version_replaces_the_one_that_is_known(published):
    longer, shorter = "10000000000000000000", "9999999999999999999"
    published.remember([Version("x:1", longer)], NOON_MS)
    published.remember([Version("x:1", shorter, is_read=False)], NOON_MS)
    assert published.due(NOON_MS + FIRST_MS, 9) == [Version("x:1", longer)]
    published.remember([Version("x:1", longer, is_read=False)], NOON_MS)
    assert published.due(NOON_MS, 9) == [], "its text is published already"


def test_it_is_kept_on_disk_and_old_ones_are_forgotten(tmp_path):
    with Published(tmp_path / "p") as one, Published(tmp_path / "p") as other:
        one.remember([Version("x:1", "1")], NOON_MS)
        other.remember([Version("x:2", "2")], NOON_MS + 1)
    with Published(tmp_path / "p") as again:
        again.expire(NOON_MS + 1 + FORGET_MS)
        assert again.due(NOON_MS + FORGET_MS, 9) == [Version("x:2", "2")]


def test_the_number_of_those_remembered_is_bounded(published):
    published.remember((Version(f"x:{n}", str(n + 1)) for n in range(MAX_POSTS + 50)), NOON_MS)
    published.remember([Version("x:newest", "1")], NOON_MS + 1)
    published.expire(NOON_MS + 2)
    assert [one.post_id for one in published.due(NOON_MS + 2 * FIRST_MS, 10**6)] == ["x:newest"]
