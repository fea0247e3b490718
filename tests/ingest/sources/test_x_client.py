"""X's filtered stream against a server in the test that speaks it, faults included."""

import asyncio
import json
from contextlib import aclosing

import pytest

from ingest.post import Malformed, Post, Removal
from ingest.sources.arrival import SourceEnded
from ingest.sources.x_client import XSource
from tests.ingest.sources.x_events import event, id_at, post
from tests.ingest.sources.x_parts import NOON_MS, NOON_S, TOKEN, Parts, first, texts
from tests.ingest.sources.x_server import CUT, HANG, LOOK_UP, RECENT, RULES, STREAM, Reply, XServer

ALIVE = b"\r\n"
DISCONNECT = {"errors": [{"title": "operational-disconnect", "disconnect_type": "UpstreamOperationalDisconnect"}]}


def said(number, text=None, **fields):
    """One post each second before noon; the greater the number, the newer."""
    return event(post(id_at(NOON_MS - 60_000 + number * 1000), text or f"post {number}", **fields))


def source_of(parts, **options):
    return XSource(*parts.all, **{"clock": parts.clock, "sleep": parts.clock.sleep, "silence_s": 10.0, **options})


@pytest.fixture
async def server():
    async with XServer() as one:
        yield one


@pytest.fixture
def parts(tmp_path, server):
    with Parts(tmp_path, server.url) as one:
        yield one


@pytest.mark.parametrize("piece", [1, 3, 10_000])
async def test_t27_posts_come_through_chunks_of_any_size_and_keep_alives(server, parts, piece):
    server.piece = piece
    server.streams = [[ALIVE, said(1, "\u00fcber \U0001f525"), ALIVE, ALIVE, said(2), HANG]]
    source = source_of(parts)
    arrivals = await first(source, 2)
    assert texts(arrivals) == ["\u00fcber \U0001f525", "post 2"]
    assert [arrival.cursor for arrival in arrivals] == [id_at(NOON_MS - 59_000), id_at(NOON_MS - 58_000)]
    assert (source.stats.events, source.stats.connects, source.stats.gaps) == (2, 1, 0)
    assert source.stats.lag_ms == 58_000
    assert parts.clock.slept == []


async def test_what_is_asked_of_x(server, parts):
    server.streams = [[said(1), HANG]]
    await first(source_of(parts), 1)
    (asked,) = server.asked_for(STREAM)
    assert asked.headers["authorization"] == f"Bearer {TOKEN}" and asked.headers["user-agent"] == "groundswell"
    assert {"edit_history_tweet_ids", "note_tweet", "withheld"} <= set(asked.parameters["tweet.fields"].split(","))
    assert "referenced_tweets.id.author_id" in asked.parameters["expansions"]
    assert "protected" in asked.parameters["user.fields"]


async def test_a_disconnect_in_the_middle_of_an_object_loses_nothing(server, parts):
    whole = json.dumps(said(2)).encode() + ALIVE
    server.streams = [[said(1), whole[:40], CUT], [whole, HANG]]
    source = source_of(parts)
    assert texts(await first(source, 2)) == ["post 1", "post 2"]
    assert source.stats.connects == 2 and source.stats.malformed == {}
    assert parts.clock.slept == [0], "the first reconnection is at once"


async def test_t15_a_gap_is_filled_from_the_search_and_repeats_are_dropped(server, parts):
    server.streams = [[said(1), said(3), CUT], [said(5), said(6), HANG]]
    page = {"data": [said(n)["data"] for n in (5, 4, 3)], "meta": {"result_count": 3}}
    server.replies[RECENT] = [Reply(page)]
    source = source_of(parts)
    arrivals = await first(source, 4)
    assert texts(arrivals) == ["post 1", "post 3", "post 4", "post 5", "post 6"]
    (asked,) = server.asked_for(RECENT)
    assert asked.parameters["query"] == "fire"
    assert asked.parameters["since_id"] == id_at(NOON_MS - 57_000 - 10_000), "overlaps by ten seconds"
    assert source.stats.repeated == 1 and source.stats.gaps == 0


async def test_a_gap_of_several_pages_comes_oldest_first_and_moves_the_cursor_at_its_end(server, parts):
    server.replies[RECENT] = [
        Reply({"data": [said(4)["data"], said(3)["data"]], "meta": {"next_token": "older"}}),
        Reply({"data": [said(2)["data"], said(1)["data"]], "meta": {}}),
    ]
    source = source_of(parts)
    arrivals = await first(source, 2, cursor=id_at(NOON_MS - 60_000))
    assert texts(arrivals) == ["post 1", "post 2", "post 3", "post 4"]
    assert [arrival.cursor for arrival in arrivals] == [None, id_at(NOON_MS - 56_000)]
    assert server.asked_for(RECENT)[1].parameters["next_token"] == "older"
    assert parts.budget.spent().posts == 4 and source.stats.gaps == 0


@pytest.mark.parametrize(
    "answers",
    [[Reply({}, 400)], [Reply({}, 503)], [Reply(b"<html>")], [Reply({}, 429)],
     [Reply({"data": [said(1)["data"]], "meta": {"next_token": "more"}})]],
    ids=["too old", "503", "garbage", "429", "too many"],
)  # fmt: skip
async def test_a_gap_that_cannot_be_closed_is_counted_and_the_stream_goes_on(server, parts, answers):
    server.replies[RECENT] = answers
    server.streams = [[said(9), HANG]]
    source = source_of(parts)
    found = []
    async with asyncio.timeout(20), aclosing(source.arrivals(id_at(NOON_MS - 90_000))) as coming:
        while "post 9" not in found:
            found += texts([await anext(coming)])
    assert source.stats.gaps == 1 and source.stats.connects == 1


async def test_a_cursor_that_is_no_id_is_no_gap(server, parts):
    server.streams = [[said(1), HANG]]
    await first(source_of(parts), 1, cursor="1.34e+18")
    assert server.asked_for(RECENT) == []


async def test_after_a_failed_publication_everything_since_the_cursor_comes_again(server, parts):
    server.streams = [[said(1), HANG], [said(2), HANG]]
    source = source_of(parts)
    assert texts(await first(source, 1)) == ["post 1"]
    server.replies[RECENT] = [Reply({"data": [said(1)["data"]]})]
    assert texts(await first(source, 2, cursor=id_at(NOON_MS - 60_000))) == ["post 1", "post 2"]


async def test_tcp_faults_back_off_by_quarters_of_a_second(parts, server):
    server.streams = [[CUT], [CUT], [CUT], [CUT], [said(1), HANG]]
    source = source_of(parts)
    await first(source, 1)
    assert parts.clock.slept == [0, 0.25, 0.5, 0.75]


async def test_what_x_sends_is_a_success_after_which_pauses_begin_anew(parts, server):
    server.streams = [[CUT], [CUT], [CUT], [ALIVE, CUT], [CUT], [said(1), HANG]]
    await first(source_of(parts), 1)
    assert parts.clock.slept == [0, 0.25, 0.5, 0, 0.25]


async def test_http_errors_double_from_five_seconds_and_start_again_after_a_success(server, parts):
    server.streams = [Reply({}, 503), Reply(b"oops", 502), Reply({}, 500), [ALIVE, Reply({}, 503)][:1], Reply({}, 503)]
    server.streams += [[said(1), HANG]]
    await first(source_of(parts), 1)
    assert parts.clock.slept == [5, 10, 20, 0, 5]


async def test_429_waits_for_the_reset_that_x_states_or_for_a_minute_doubling(server, parts):
    limited = {"x-rate-limit-reset": str(int(NOON_S) + 400)}
    server.streams = [Reply({}, 429, limited), Reply({}, 429), Reply({}, 429, {"x-rate-limit-reset": "soon"})]
    server.streams += [Reply({}, 429, {"x-rate-limit-reset": "99999999999"}), [said(1), HANG]]
    await first(source_of(parts), 1)
    assert parts.clock.slept == [400, 120, 240, 900]


async def test_the_fault_is_named_while_it_lasts(server, parts):
    problem = {"title": "CreditsDepleted", "type": "https://api.x.com/2/problems/credits"}
    server.streams = [Reply(problem, 402), [said(1), HANG]]

    async def watched(seconds):
        faults.append(source.stats.fault)
        await parts.clock.sleep(seconds)

    source = source_of(parts, sleep=watched)
    faults = [source.stats.fault]
    async with asyncio.timeout(20), aclosing(source.arrivals(None)) as coming:
        await anext(coming)
        faults.append(source.stats.fault)
    assert faults == ["not connected yet", "402 credits", ""]
    assert source.stats.fault == "closed"


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_token_ends_the_source(server, parts, status):
    server.streams = [Reply({"title": "Unauthorized"}, status)]
    with pytest.raises(SourceEnded, match=f"x: {status} Unauthorized"):
        await first(source_of(parts), 1)
    assert parts.budget.spent().posts == 0


@pytest.mark.parametrize("token", ["", "two words of it", "\u00e4" * 20, "x\ny" * 9])
async def test_a_token_that_is_none_ends_the_source(server, tmp_path, token):
    with Parts(tmp_path, server.url, token=token) as parts, pytest.raises(SourceEnded, match="no token"):
        await first(source_of(parts), 1)
    assert server.asked == []


async def test_garbage_is_counted_kept_and_survived(server, parts):
    server.streams = [[b"{nonsense\r\n", b"\xff\xfe\r\n", b"[1]\r\n", b'{"data":{"id":5}}\r\n', said(1), HANG]]
    source = source_of(parts)
    arrivals = await first(source, 5)
    assert [type(arrival.records[0]) for arrival in arrivals] == [Malformed] * 4 + [Post]
    assert source.stats.malformed == {"json": 2, "utf8": 1, "id": 1}
    assert parts.budget.spent().posts == 5, "X may have billed what could not be read"


async def test_t24_what_is_no_text_becomes_u_fffd_and_emoji_stay(server, parts):
    line = json.dumps(said(1, "TEXT")).replace("TEXT", "a\\ud83d b\\u0000 \\ud83d\\udd25").encode() + ALIVE
    server.streams = [[line, HANG]]
    assert texts(await first(source_of(parts), 1)) == ["a\ufffd b\ufffd \U0001f525"]


async def test_t17_a_silent_stream_is_dead_and_a_quiet_one_is_not(server, parts):
    server.streams = [[said(1), HANG], [ALIVE, ALIVE, said(2), HANG]]
    source = source_of(parts, silence_s=0.3)
    assert texts(await first(source, 2)) == ["post 1", "post 2"]
    assert source.stats.connects == 2 and parts.clock.slept == [0]


async def test_x_says_that_it_disconnects(server, parts):
    server.streams = [[said(1), DISCONNECT, HANG], [DISCONNECT, HANG], [DISCONNECT, HANG], [said(2), HANG]]
    source = source_of(parts)
    assert texts(await first(source, 2)) == ["post 1", "post 2"]
    assert parts.clock.slept == [0, 0.25, 0.5], "a disconnection is no success"


async def test_duplicate_posts_are_dropped_edits_and_retweets_are_not(server, parts):
    old, new = id_at(NOON_MS - 50_000), id_at(NOON_MS - 40_000)
    edited = event(post(new, "edited", edit_history_tweet_ids=[old, new]))
    repeat = event(post(id_at(NOON_MS), "RT", referenced_tweets=[{"type": "retweeted", "id": old}]), posts=[post(old)])
    server.streams = [[event(post(old)), event(post(old)), edited, edited, repeat, repeat, HANG]]
    source = source_of(parts)
    arrivals = await first(source, 3)
    assert texts(arrivals) == ["hello", "edited", ""]
    assert arrivals[2].records[0].repost_of == f"x:{old}"
    assert source.stats.repeated == 2
    assert parts.aliases.get(f"x:{new}") == f"x:{old}"


async def test_rules_are_made_those_of_the_settings(server, tmp_path):
    there = [{"id": "1", "value": "fire"}, {"id": "2", "value": "flood"}, {"id": "3", "value": "old"}]
    server.replies[RULES] = [Reply({"data": there}), Reply({}), Reply({"data": [{"id": "4", "value": "quake"}]}, 201)]
    server.streams = [[said(1), CUT], [said(2), HANG]]
    with Parts(tmp_path, server.url, rules=("fire", "quake")) as parts:
        await first(source_of(parts), 2)
    asked = [one.body for one in server.asked_for(RULES)]
    assert asked == [None, {"delete": {"ids": ["2", "3"]}}, {"add": [{"value": "quake", "tag": "groundswell"}]}]
    assert [one.parameters["query"] for one in server.asked_for(RECENT)] == ["fire", "quake"]


async def test_rules_that_are_set_are_left_alone_without_any_in_the_settings(server, parts):
    server.streams = [[said(1), HANG]]
    await first(source_of(parts), 1)
    assert [one.body for one in server.asked_for(RULES)] == [None]


async def test_without_any_rule_the_stream_waits_for_one(server, parts):
    server.replies[RULES] = [Reply({}), Reply({"data": [{"id": "1", "value": "fire"}]})]
    server.streams = [[said(1), HANG]]
    await first(source_of(parts), 1)
    assert parts.clock.slept == [5]


@pytest.mark.parametrize(
    "answer", [Reply({"title": "Invalid Request"}, 400), Reply({"errors": [{"title": "Invalid"}]})]
)
async def test_a_rule_that_x_refuses_ends_the_source(server, tmp_path, answer):
    server.replies[RULES] = [Reply({}), answer]
    with Parts(tmp_path, server.url, rules=("((",)) as parts, pytest.raises(SourceEnded, match="rule"):
        await first(source_of(parts), 1)


async def test_the_budget_closes_the_stream_until_the_next_day(server, tmp_path):
    """10 posts a day, 2 of them for look-ups: after 6 there is no room for a line of three."""
    server.streams = [[*map(said, range(9)), HANG], [said(20), HANG]]
    with Parts(tmp_path, server.url, daily_posts=10) as parts:
        source = source_of(parts)
        arrivals = await first(source, 7)
        assert texts(arrivals) == [*(f"post {n}" for n in range(6)), "post 20"]
        assert sum(parts.clock.slept) == 43_200, "noon to midnight"
        assert len(server.asked_for(STREAM)) == 2
        assert source.stats.gaps == 1 and server.asked_for(RECENT) == [], "what was missed is not bought afterwards"
        assert parts.budget.spent().posts == 1 and parts.budget.spent().day == "2026-07-05"


async def test_a_post_is_counted_on_the_day_on_which_it_comes(server, parts):
    server.streams = [[said(1), said(2), said(3), HANG]]
    source = source_of(parts)
    async with asyncio.timeout(20), aclosing(source.arrivals(None)) as coming:
        await anext(coming)
        parts.clock.now_s += 43_200
        await anext(coming)
        await anext(coming)
    assert parts.budget.spent().posts == 2


async def test_a_spent_budget_is_said_and_breaks_nothing(server, tmp_path):
    with Parts(tmp_path, server.url, daily_usd=0.0) as parts:
        said_of_it = set()

        async def watched(seconds):
            said_of_it.add(source.stats.fault)
            if len(parts.clock.slept) > 1000:
                raise SourceEnded("x", "enough of the test")
            await parts.clock.sleep(seconds)

        source = source_of(parts, sleep=watched)
        with pytest.raises(SourceEnded, match="enough"):
            await first(source, 1)
        assert said_of_it == {"the budget of the day is spent"} and server.asked == []


async def test_included_posts_are_paid_for_too_and_the_rest_is_given_back(server, parts):
    repeat = event(post(id_at(NOON_MS), "RT", referenced_tweets=[{"type": "retweeted", "id": "9"}]), posts=[post("40")])
    server.streams = [[repeat, HANG]]
    await first(source_of(parts), 1)
    assert parts.budget.spent().by_purpose == {"stream": 2}


async def test_a_file_that_fails_is_a_fault_and_no_end(server, parts):
    server.streams = [[said(n), HANG] for n in range(4)]
    parts.published.close()
    faults = []

    async def watched(seconds):
        if len(faults) == 3:
            raise SourceEnded("x", "enough of the test")
        faults.append(source.stats.fault)
        await parts.clock.sleep(seconds)

    source = source_of(parts, sleep=watched)
    async with asyncio.timeout(20), aclosing(source.arrivals(None)) as coming:
        with pytest.raises(SourceEnded, match="enough"):
            await anext(coming)
    assert faults == ["its files: ProgrammingError"] * 3
    assert parts.clock.slept == [5, 10, 20]


HOUR_S = 3600


def not_found(native_id, problem="resource-not-found"):
    return {"resource_id": native_id, "parameter": "ids", "type": f"https://api.x.com/2/problems/{problem}"}


async def test_posts_are_looked_up_again_and_what_is_gone_is_removed(server, parts):
    gone, kept = said(1)["data"]["id"], said(2)["data"]["id"]
    server.streams = [[said(1), said(2), HANG]]
    source = source_of(parts)
    await first(source, 2)
    assert server.asked_for(LOOK_UP) == []
    parts.clock.now_s += HOUR_S
    server.replies[LOOK_UP] = [Reply({"data": [post(kept)], "errors": [not_found(gone)]})]
    server.streams = [[ALIVE, HANG]]
    (arrival,) = await first(source, 1)
    assert arrival.records == (Removal(f"x:{gone}", int(parts.clock.now_s * 1000) * 1000 + 999, if_newer=True),)
    assert arrival.cursor is None
    (asked,) = server.asked_for(LOOK_UP)
    assert set(asked.parameters["ids"].split(",")) == {gone, kept}
    assert parts.budget.spent().by_purpose["recheck"] == 1, "what is gone costs nothing"


async def test_look_ups_go_on_while_the_budget_of_the_stream_is_spent(server, tmp_path):
    server.streams = [[*map(said, range(6)), HANG]]
    with Parts(tmp_path, server.url, daily_posts=10) as parts:
        gone = said(3)["data"]["id"]
        server.replies[LOOK_UP] = [Reply({"errors": [not_found(gone)]})]
        arrivals = await first(source_of(parts), 7)
        assert isinstance(arrivals[-1].records[0], Removal)
        assert len(server.asked_for(LOOK_UP)[0].parameters["ids"].split(",")) == 2, "a fifth of ten"
        assert HOUR_S - 60 <= sum(parts.clock.slept) <= HOUR_S + 120
