"""POST /v1/search, GET /v1/removals, GET /v1/feed: shapes, faults, and that nothing is ignored."""

from dataclasses import replace
from typing import Any

import pytest
from scripted_chat import KEY, Receipts, ScriptedChat, ScriptedStatus, client, scripted_app

from ingest.retrieve import Found
from services.accounts import ApiKeys
from services.http import build_app
from services.remote import Unavailable
from services.search import Search, read_ask, time_notice
from services.wire import ApiError
from tests.fakes import FakeRetriever, FakeScreen, match

PARENT = match("bo", "Is the bridge closed?")
BRIDGE = match(
    "ana",
    "The bridge is closed.",
    why={"bm25": 3.0, "cosine": 0.7, "words": 1.0, "relevance": 0.8, "recency": 1.2, "authors": 2.0},
    repeats=3,
    independent=2,
    first_ms=1_699_999_000_000,
    reply_to="bo",
    context=(PARENT,),
    labels=("news",),
    likes=4,
)


def app(retriever: Any = None, screen: Any = None) -> Any:
    search = Search(screen or FakeScreen(), retriever or FakeRetriever([BRIDGE]), Receipts())
    return build_app(ScriptedChat(), search, ScriptedStatus(), ApiKeys(None))


async def found(body: Any, **parts: Any) -> Any:
    async with client(app(**parts)) as http:
        return await http.post("/v1/search", json=body)


async def test_a_match_is_shown_with_everything_that_explains_it():
    response = await found({"query": "Is the bridge open?"})
    assert response.status_code == 200
    body = response.json()
    assert body["object"] == "list" and body["searched"] == 1 and body["time_filter"] is None
    (shown,) = body["data"]
    assert (shown["post_id"], shown["text"], shown["repeats"], shown["independent"]) == (
        "ana", "The bridge is closed.", 3, 2,
    )  # fmt: skip
    assert shown["created_at"] == "2023-11-14T22:13:20.000000Z" and shown["first_at"] == "2023-11-14T21:56:40.000000Z"
    assert shown["why"]["cosine"] == 0.7 and shown["reasons"] and shown["reply_to"] == "bo"
    assert shown["engagement"]["likes"] == 4 and shown["labels"] == ["news"]
    assert shown["context"][0]["post_id"] == "bo" and "quote_of" not in shown


async def test_every_filter_reaches_the_search():
    asked = read_ask(
        {
            "query": "bridge",
            "limit": 3,
            "since": "2026-11-30T08:00:00Z",
            "until": "2026-11-30T09:00:00+01:00",
            "sources": ["bluesky"],
            "authors": ["ana.example"],
            "without_authors": ["bo"],
            "languages": ["es"],
            "labels": ["news"],
            "without_labels": ["nsfw"],
            "min_likes": 1,
            "min_reposts": 2,
            "min_replies": 3,
            "conversation": "t:1",
            "half_life_s": 90.5,
            "bm25_share": 0.25,
            "time_zone": "Europe/Berlin",
            "time_words": False,
        }
    )
    assert (asked.question, asked.limit, asked.sources, asked.authors) == ("bridge", 3, ("bluesky",), ("ana.example",))
    assert asked.since_ms == asked.until_ms == 1_796_025_600_000
    assert (asked.without_authors, asked.languages, asked.labels, asked.without_labels) == (
        ("bo",), ("es",), ("news",), ("nsfw",),
    )  # fmt: skip
    assert (asked.min_likes, asked.min_reposts, asked.min_replies, asked.conversation) == (1, 2, 3, "t:1")
    assert (asked.half_life_ms, asked.bm25_share, asked.time_zone) == (90_500, 0.25, "Europe/Berlin")
    assert not asked.read_time_words


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"query": ""}, "query"),
        ({"query": 7}, "query"),
        ({"query": "x" * 2001}, "query"),
        ({"query": None}, "query"),
        ({"since": "yesterday"}, "since"),
        ({"since": 1_796_025_600_000}, "since"),
        ({"since": "2026-11-30T09:00:00Z", "until": "2026-11-30T08:00:00Z"}, "until"),
        ({"limit": 0}, "limit"),
        ({"limit": 51}, "limit"),
        ({"limit": 2.5}, "limit"),
        ({"sources": "bluesky"}, "sources"),
        ({"authors": [7]}, "authors.0"),
        ({"authors": [""]}, "authors"),
        ({"min_likes": -1}, "min_likes"),
        ({"half_life_s": 1}, "half_life_s"),
        ({"bm25_share": 1.1}, "bm25_share"),
        ({"time_zone": "Atlantis/Capital"}, "time_zone"),
        ({"time_zone": "../../etc/passwd"}, "time_zone"),
        ({"autors": ["ana"]}, "autors"),
    ],
)
async def test_a_field_that_cannot_be_used_is_named(fields: dict[str, Any], param: str):
    response = await found({"query": "bridge", **fields})
    assert response.status_code == 400 and response.json()["error"]["param"] == param


async def test_nulls_let_everything_through():
    names = ("limit", "since", "until", "sources", "authors", "min_likes", "half_life_s", "time_zone", "time_words")
    assert (await found({"query": "bridge", **dict.fromkeys(names)})).status_code == 200


@pytest.mark.parametrize("body", ["bridge", ["bridge"], 7, None])
async def test_a_body_that_is_no_object_is_refused(body: Any):
    assert (await found(body)).status_code == 400


async def test_a_query_that_the_filter_forbids_is_refused_and_searched_for_nowhere():
    retriever = FakeRetriever([BRIDGE])
    response = await found({"query": "how to bomb it"}, retriever=retriever, screen=FakeScreen(forbidden="bomb"))
    assert response.status_code == 400 and response.json()["error"]["code"] == "content_filter"
    assert not retriever.asked


async def test_what_the_filter_rewrites_is_searched_for_as_it_was_rewritten():
    retriever = FakeRetriever([BRIDGE])
    screen = FakeScreen(secret="510-555-0134")
    response = await found({"query": "who is 510-555-0134"}, retriever=retriever, screen=screen)
    assert response.status_code == 200 and retriever.asked == ["who is [SECRET]"]


async def test_a_part_that_does_not_answer_is_a_503_with_a_retry():
    class Gone(FakeRetriever):
        async def search(self, ask: Any) -> Found:
            raise Unavailable("Retriever")

    response = await found({"query": "bridge"}, retriever=Gone([]))
    assert response.status_code == 503 and response.headers["retry-after"] == "5"
    assert response.json()["error"]["code"] == "service_unavailable"


async def test_how_time_words_were_understood_is_told():
    retriever = FakeRetriever([])
    retriever.limits = {"since_ms": 1_796_025_600_000, "until_ms": 1_796_029_200_000, "time_words": "since 8am"}
    body = (await found({"query": "bridge since 8am"}, retriever=retriever)).json()
    assert body["time_filter"] == {
        "words": "since 8am",
        "since": "2026-11-30T08:00:00.000000Z",
        "until": "2026-11-30T09:00:00.000000Z",
    }
    said = time_notice(Found((), 1_796_025_600_000, 1_796_029_200_000, "since 8am", 0))
    assert said == 'Only posts from 2026-11-30 08:00 to 2026-11-30 09:00 UTC ("since 8am").'
    assert time_notice(replace(Found(), since_ms=1)) == ""


async def test_a_removal_has_a_receipt():
    async with client(app()) as http:
        body = (await http.get("/v1/removals/t:gone")).json()
        missing = await http.get("/v1/removals/t:here")
    assert body == {
        "object": "removal",
        "post_id": "t:gone",
        "reason": "deleted",
        "removed_at": "2026-11-30T00:53:20.000000Z",
        "purged_at": "2026-11-30T00:53:20.250000Z",
    }
    assert missing.status_code == 404


async def test_the_new_routes_ask_for_a_key():
    guarded, _ = scripted_app(keys=True)
    async with client(guarded) as http:
        for method, path in (("POST", "/v1/search"), ("GET", "/v1/feed"), ("GET", "/v1/removals/t:gone")):
            assert (await http.request(method, path, json={"query": "x"})).status_code == 401
        bearer = {"authorization": f"Bearer {KEY}"}
        assert (await http.get("/v1/feed", headers=bearer)).json()["object"] == "feed"


def test_an_ask_is_refused_with_a_message_that_does_not_repeat_it():
    with pytest.raises(ApiError) as refused:
        read_ask({"query": "bridge", "since": "SECRET"})
    assert "SECRET" not in refused.value.message
