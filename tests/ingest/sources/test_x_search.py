"""A user's question asked of X: a safe query, within the budget, never twice, never an exception."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.post import Post, Removal
from ingest.sources.x_query import MAX_QUERY, queries_for
from ingest.sources.x_search import MAX_REMEMBERED, REMEMBER_S, XSearch
from tests.ingest.sources.x_events import id_at, post
from tests.ingest.sources.x_parts import NOON_MS, Parts
from tests.ingest.sources.x_server import HANG, LOOK_UP, RECENT, Reply, XServer

FOUND = {"data": [post(id_at(NOON_MS - n * 1000), f"found {n}") for n in range(12)], "meta": {"result_count": 12}}


@pytest.fixture
async def server():
    async with XServer() as one:
        one.replies[RECENT] = [Reply(FOUND)]
        yield one


@pytest.fixture
def parts(tmp_path, server):
    with Parts(tmp_path, server.url) as one:
        yield one


@pytest.fixture
async def search(parts):
    one = XSearch(*parts.all, clock=parts.clock, timeout_s=10.0)
    yield one
    await one.close()


@pytest.mark.parametrize(
    ("question", "query"),
    [
        ("What are people saying about the fire in Lisbon?", '"fire" "Lisbon"'),
        ("\u00bfQu\u00e9 est\u00e1 pasando con los incendios en Galicia?", '"incendios" "Galicia"'),
        ("Was passiert gerade am Berliner Hauptbahnhof?", '"Berliner" "Hauptbahnhof"'),
        ("\u4e1c\u4eac\u73b0\u5728\u53d1\u751f\u4e86\u4ec0\u4e48\u5730\u9707", '"\u4e1c\u4eac" "\u5730\u9707"'),
        ("\u6771\u4eac\u306e\u5730\u9707\u306b\u3064\u3044\u3066", '"\u6771\u4eac" "\u5730\u9707"'),
        ("\u0645\u0644\u0639\u0628 \u0627\u0644\u0642\u0627\u0647\u0631\u0629 \u0627\u0644\u064a\u0648\u0645",
         '"\u0645\u0644\u0639\u0628" "\u0627\u0644\u0642\u0627\u0647\u0631\u0629"'),
        ("#Eurovision and @bbc", "#Eurovision @bbc"),
        ("Lisbon lisbon LISBON", '"Lisbon"'),
        ("see https://example.org/from:a?b=c Lisbon", '"see" "Lisbon"'),
    ],
)  # fmt: skip
def test_a_question_becomes_its_words(question, query):
    assert queries_for(question)[0] == f"{query} -is:retweet"


@pytest.mark.parametrize("question", ["", "?!", "what's happening?", "\u00bfqu\u00e9 pasa hoy?", "\U0001f525", "#"])
def test_a_question_about_nothing_is_not_asked(question):
    assert queries_for(question) == ()


def test_what_is_too_strict_is_followed_by_the_strongest_words():
    strict, fewer, fewest = queries_for("will the bridge near Setubal reopen for lorries before 2027")
    assert strict == '"bridge" "near" "Setubal" "reopen" "lorries" "2027" -is:retweet'
    assert fewer == '"Setubal" "lorries" "2027" -is:retweet' and fewest == '"Setubal" "2027" -is:retweet'


ATTACKS = ["OR", "AND", "NOT", "(", ")", '"', "-", "from:", "lang:en", "url:", "is:retweet", "has:media", "\\", "\n",
           "#a", "@b", "$c", "*", ":", "\u2019", "\u202e", "\x00", "\u65e5\u672c", "fire", "\ud800"]  # fmt: skip


@given(st.lists(st.sampled_from(ATTACKS) | st.text(max_size=5), max_size=30).map("".join))
def test_nothing_in_a_question_becomes_an_operator(question):
    for query in queries_for(question):
        assert len(query) <= MAX_QUERY and query.endswith(" -is:retweet")
        words = query.removesuffix(" -is:retweet").split(" ")
        for word in words:
            bare = word[1:-1] if word[0] == word[-1] == '"' and len(word) > 2 else word[1:]
            assert word[0] in '"#@' and bare and all(c.isalnum() or c in "_'\u2019" or not c.isascii() for c in bare)


def test_a_long_question_fits():
    query = queries_for(" ".join(f"uncommonlylongword{n:030}" for n in range(40)))[0]
    assert 300 < len(query) <= MAX_QUERY
    assert queries_for("x" * 2000) == () and queries_for("x" * 2000 + " fire") == ('"fire" -is:retweet',)


async def test_what_x_finds_is_an_arrival_and_paid_for(server, parts, search):
    arrival = await search.search("fire in Lisbon", 25)
    assert [record.text for record in arrival.records] == [f"found {n}" for n in range(12)]
    assert all(isinstance(record, Post) for record in arrival.records) and arrival.cursor is None
    (asked,) = server.asked_for(RECENT)
    assert asked.parameters["query"] == '"fire" "Lisbon" -is:retweet' and asked.parameters["max_results"] == "25"
    assert asked.parameters["expansions"] == "author_id", "no more posts come than are paid for"
    assert parts.budget.spent().by_purpose == {"search": 12}
    assert (search.stats.questions, search.stats.calls, search.stats.posts) == (1, 1, 12)


@pytest.mark.parametrize(("most", "size"), [(1, "10"), (0, "10"), (57, "57"), (1000, "100")])
async def test_x_answers_with_ten_to_a_hundred(server, search, most, size):
    await search.search("fire", most)
    assert server.asked_for(RECENT)[0].parameters["max_results"] == size


async def test_the_same_question_does_not_pay_twice(server, parts, search):
    assert await search.search("fire in Lisbon?", 10) is not None
    assert await search.search("What about the fire in Lisbon", 10) is None
    assert search.stats.refused == {"asked lately": 1} and len(server.asked_for(RECENT)) == 1
    parts.clock.now_s += REMEMBER_S
    assert await search.search("fire in Lisbon?", 10) is not None


async def test_the_same_question_at_the_same_time_pays_once(server, search):
    answers = await asyncio.gather(*(search.search("fire in Lisbon", 10) for _ in range(5)))
    assert [answer is not None for answer in answers].count(True) == 1 and len(server.asked_for(RECENT)) == 1


async def test_what_is_remembered_is_bounded(server, parts, search):
    server.replies[RECENT] = [Reply({"data": [post()]})]
    for n in range(MAX_REMEMBERED + 5):
        search._remember(f"query {n}")
    assert len(search._asked) == MAX_REMEMBERED


async def test_nothing_found_is_tried_with_fewer_words_and_costs_nothing(server, parts, search):
    server.replies[RECENT] = [Reply({"meta": {"result_count": 0}}), Reply({"meta": {}}), Reply(FOUND)]
    arrival = await search.search("will the bridge near Setubal reopen for lorries before 2027", 10)
    assert len(arrival.records) == 12 and len(server.asked_for(RECENT)) == 3
    server.replies[RECENT] = [Reply({"meta": {"result_count": 0}})]
    assert (await search.search("hailstorm", 10)).records == ()
    assert parts.budget.spent().posts == 12


async def test_the_budget_refuses_and_is_asked_again_later(server, tmp_path):
    with Parts(tmp_path, server.url, daily_posts=30) as parts:
        search = XSearch(*parts.all, clock=parts.clock, timeout_s=10.0)
        assert await search.search("fire", 10) is not None, "24 for searches"
        assert await search.search("flood", 15) is not None, "12 are left: fewer than were asked for, but enough"
        assert await search.search("quake", 10) is None and search.stats.refused == {"budget": 1}
        assert len(server.asked_for(RECENT)) == 2
        parts.clock.now_s += 43_200
        assert await search.search("quake", 10) is not None
        await search.close()


@pytest.mark.parametrize(
    ("reply", "why", "cost"),
    [
        (Reply({"title": "Unauthorized"}, 401), "401 Unauthorized", 0),
        (Reply({}, 429), "429 unknown", 0),
        (Reply({}, 503), "503 unknown", 0),
        (Reply(b"<html>", 502), "502", 0),
        (Reply(b"<html>"), "answer: json", 10),
        (Reply(b"x" * 9_000_000), "answer: too_large", 10),
        (Reply(b"[" * 40 + b"]" * 40), "answer: too_deep", 10),
    ],
    ids=["401", "429", "503", "502", "garbage", "huge", "deep"],
)
async def test_faults_of_x_give_none_and_are_counted(server, parts, search, reply, why, cost):
    server.replies[RECENT] = [reply]
    assert await search.search("fire", 10) is None
    assert search.stats.failed == {why: 1} and parts.budget.spent().posts == cost
    assert await search.search("flood", 10) is None and search.stats.refused == {"waiting for X": 1}
    server.replies[RECENT] = [Reply(FOUND)]
    parts.clock.now_s += 60
    assert await search.search("fire", 10) is not None, "a question that failed may be asked again"


async def test_an_answer_that_does_not_come_is_given_up_and_counted_as_paid(server, parts):
    server.replies[RECENT] = [Reply(HANG)]
    search = XSearch(*parts.all, clock=parts.clock, timeout_s=0.2)
    assert await search.search("fire", 10) is None
    assert sum(search.stats.failed.values()) == 1 and parts.budget.spent().posts == 10
    await search.close()


async def test_x_that_cannot_be_reached_costs_nothing(tmp_path):
    with Parts(tmp_path, "http://127.0.0.1:1") as parts:
        search = XSearch(*parts.all, clock=parts.clock, timeout_s=10.0)
        assert await search.search("fire", 10) is None
        assert search.stats.failed == {"ConnectError": 1} and parts.budget.spent().posts == 0
        await search.close()


@pytest.mark.parametrize("url", ["http://[", "no url", "ftp://a", ""])
async def test_an_address_that_is_none_is_a_fault_of_x(tmp_path, url):
    with Parts(tmp_path, url) as parts:
        search = XSearch(*parts.all, clock=parts.clock, timeout_s=10.0)
        assert await search.search("fire", 10) is None and sum(search.stats.failed.values()) == 1
        assert parts.budget.spent().posts == 0
        await search.close()


async def test_files_that_fail_give_none(server, parts, search):
    parts.published.close()
    assert await search.search("fire", 10) is None
    assert search.stats.failed == {"ProgrammingError": 1}


async def test_what_was_found_is_looked_up_again(server, parts, search):
    await search.search("fire", 12)
    assert await search.look_again() is None and server.asked_for(LOOK_UP) == []
    gone = FOUND["data"][0]["id"]
    error = {"resource_id": gone, "parameter": "ids", "type": "https://api.x.com/2/problems/resource-not-found"}
    server.replies[LOOK_UP] = [Reply({"errors": [error]})]
    parts.clock.now_s += 3600
    (removal,) = (await search.look_again()).records
    assert isinstance(removal, Removal) and removal.post_id == f"x:{gone}"
