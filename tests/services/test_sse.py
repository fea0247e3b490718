import json
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai._streaming import SSEDecoder
from openai.types.chat import ChatCompletionChunk
from scripted_chat import ONE, SCRIPT, TEXT, TWO, ask, citation, client, scripted_app

from services.answer import Answer
from services.events import Delta, Done, Failed, Marked, Notice, Searching, Sources
from services.sse import frame

DONE = Done("stop", 3, 2)


async def stream(script: Any = None, fields: dict[str, Any] | None = None, **limits: Any) -> httpx.Response:
    app, _ = scripted_app(script, **limits)
    async with client(app) as http:
        return await http.post("/v1/chat/completions", json=ask(stream=True, **(fields or {})))


def payloads(response: httpx.Response) -> list[Any]:
    """Read like a naive client: frames end in a blank line, each `data:` line is one JSON value."""
    assert response.status_code == 200, response.text
    lines = [line for line in response.text.split("\n") if line and not line.startswith(":")]
    assert all(line.startswith("data: ") for line in lines), "only data lines and comments"
    found = [line.removeprefix("data: ") for line in lines]
    return [value if value == "[DONE]" else json.loads(value) for value in found]


def content(chunks: list[Any]) -> str:
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks if chunk["choices"])


async def test_the_frames_of_a_plain_answer():
    response = await stream()
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache" and response.headers["x-accel-buffering"] == "no"
    assert "\r" not in response.text and not response.content.startswith(b"\xef\xbb\xbf")
    *chunks, last = payloads(response)
    assert last == "[DONE]" and "[DONE]" not in chunks
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    first, *middle, finish = chunks
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert content(chunks) == TEXT
    assert finish["choices"][0]["delta"] == {} and finish["choices"][0]["finish_reason"] == "stop"
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in [first, *middle])
    assert all("usage" not in chunk for chunk in chunks), "usage only when asked for"
    assert all("event" not in chunk and "type" not in chunk for chunk in chunks), "Open WebUI reads these as its own"


async def test_usage_when_asked_for():
    *chunks, _ = payloads(await stream(fields={"stream_options": {"include_usage": True}}))
    *others, usage = chunks
    assert usage["choices"] == [] and usage["usage"]["total_tokens"] == 38
    assert usage["usage"]["prompt_tokens"] == 31 and usage["usage"]["completion_tokens"] == 7
    assert all(chunk["choices"] and chunk["usage"] is None for chunk in others)
    assert others[-1]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("include_usage", [False, True])
async def test_every_chunk_has_openais_shape(include_usage: bool):
    script = [*SCRIPT[:-1], Notice("post_removed", "gone"), SCRIPT[-1]]
    for chunk in payloads(await stream(script, {"stream_options": {"include_usage": include_usage}}))[:-1]:
        ChatCompletionChunk.model_validate(chunk, strict=True)
        assert all(choice["logprobs"] is None for choice in chunk["choices"])


async def test_citations_in_all_forms():
    *chunks, _ = payloads(await stream())
    first, finish = chunks[0], chunks[-1]
    for chunk in (first, finish):
        assert chunk["citations"] == [ONE.url, TWO.url], "`[n]` is the n-th"
        assert [result["post_id"] for result in chunk["search_results"]] == [ONE.post_id, TWO.post_id]
    result = first["search_results"][0]
    assert (result["title"], result["url"], result["snippet"]) == (ONE.title, ONE.url, ONE.snippet)
    assert result["date"] == "2026-11-30T00:53:20+00:00" and result["source"] == "sample"
    assert (result["author_name"], result["author_handle"]) == ("Ana 1", "ana1")
    assert all("citations" not in chunk for chunk in chunks[1:-1])
    notes = [note for chunk in chunks for note in chunk["choices"][0]["delta"].get("annotations", [])]
    assert [note["type"] for note in notes] == ["url_citation"]
    place = notes[0]["url_citation"]
    assert (place["url"], place["title"], place["marker"]) == (ONE.url, ONE.title, "[1]")
    assert content(chunks)[place["start_index"] : place["end_index"]] == "[1]", "offsets are code points"


async def test_the_freshness_of_the_evidence_is_told():
    *chunks, _ = payloads(await stream())
    assert chunks[0]["groundswell"] == {"newest_age_ms": 42_000, "searched_posts": 1204}
    assert chunks[-1]["groundswell"] == {
        "newest_age_ms": 42_000,
        "cited": [1],
        "removed": [],
        "unsupported_sentences": 1,
    }


async def test_no_evidence_is_told():
    *chunks, _ = payloads(await stream([Searching(9), Sources((), None), Delta("No posts."), DONE]))
    assert chunks[0]["citations"] == [] and chunks[0]["groundswell"]["newest_age_ms"] is None


async def test_a_post_removed_meanwhile_keeps_its_number_and_loses_its_address():
    script = [
        Sources((ONE, TWO), 1),
        Delta("a [1] b [2]", (Marked(ONE, 2, 5), Marked(TWO, 8, 11))),
        Notice("post_removed", "No longer available: [1]."),
        Done("stop", 3, 2, cited=(TWO,), removed=(1,)),
    ]
    *chunks, _ = payloads(await stream(script))
    assert chunks[-1]["citations"] == ["", TWO.url]
    assert [result["number"] for result in chunks[-1]["search_results"]] == [2]
    assert chunks[-1]["groundswell"]["removed"] == [1]
    notices = [chunk["groundswell"]["notice"] for chunk in chunks if "notice" in chunk.get("groundswell", {})]
    assert notices == [{"code": "post_removed", "message": "No longer available: [1]."}]


async def test_a_removed_post_that_was_never_cited_is_not_sent_again():
    *chunks, _ = payloads(await stream([Sources((ONE, TWO), 1), Delta("a"), Done("stop", 3, 2, removed=(2,))]))
    assert chunks[-1]["citations"] == [ONE.url, ""]
    assert [result["number"] for result in chunks[-1]["search_results"]] == [1]
    assert TWO.snippet not in json.dumps(chunks[-1])
    assert chunks[-1]["groundswell"]["removed"] == [2] and chunks[-1]["groundswell"]["cited"] == []


async def test_a_notice_before_the_first_word_follows_the_role_chunk():
    *chunks, _ = payloads(await stream([Notice("stale", "old"), Sources((ONE,), 1), Delta("a"), DONE]))
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant" and chunks[0]["citations"] == [ONE.url]
    assert chunks[1]["groundswell"]["notice"]["code"] == "stale"


async def test_a_filtered_answer_says_why():
    *chunks, last = payloads(
        await stream([Sources((), None), Delta("I'd rather not."), Done("stop", 1, 1, filter_reason="hate")])
    )
    assert chunks[-1]["choices"][0]["finish_reason"] == "content_filter"
    assert chunks[-1]["groundswell"]["filter_reason"] == "hate" and last == "[DONE]"


async def test_an_answer_without_a_word_is_still_whole():
    *chunks, last = payloads(await stream([DONE]))
    assert [bool(chunk["choices"][0]["finish_reason"]) for chunk in chunks] == [False, True] and last == "[DONE]"


FAILED = Failed(503, "overloaded", "queue_full", "Too many questions wait already.", retry_after_s=2)


@pytest.mark.parametrize("before", [[], [Searching(3), Sources((ONE,), 5)], [Delta("")], [Notice("stale", "old")]])
async def test_a_failure_before_the_first_word_has_its_own_status(before: list[Any]):
    response = await stream([*before, FAILED])
    assert response.status_code == 503 and response.headers["retry-after"] == "2"
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {
        "error": {"message": FAILED.message, "type": "overloaded", "param": None, "code": "queue_full"}
    }


async def test_a_retry_that_is_useless_is_not_asked_for():
    response = await stream([Failed(504, "server_error", "deadline", "too slow", retry_after_s=0)])
    assert response.headers["x-should-retry"] == "false" and response.headers["retry-after"] == "1"


@pytest.mark.parametrize("fault", [FAILED, RuntimeError("my secret is 4711")])
async def test_a_failure_after_the_first_word_is_an_error_event_and_the_end(fault: Any):
    chunks = payloads(await stream([Sources((ONE,), 5), Delta("a"), fault]))
    assert "[DONE]" not in chunks and "4711" not in str(chunks)
    assert chunks[-1].keys() - {"groundswell"} == {"error"}
    assert chunks[-1]["error"].keys() == {"message", "type", "param", "code"}
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks[:-1])


async def test_a_slow_first_word_gets_headers_then_comments():
    response = await stream([Sources((ONE,), 5), 0.2, Delta("a"), 0.2, DONE], hold_s=0.01, keep_alive_s=0.02)
    assert response.text.count(": keep-alive\n") >= 3
    assert ": keep-alive\n\n" not in response.text, "openai-go fails on a frame of comments only"
    *chunks, last = payloads(response)
    assert chunks[0]["citations"] == [ONE.url] and content(chunks) == "a" and last == "[DONE]"


async def test_a_failure_after_the_headers_had_to_go_is_an_error_event():
    chunks = payloads(await stream([0.1, FAILED], hold_s=0.01))
    (chunk,) = chunks
    assert chunk["error"]["code"] == "queue_full" and "choices" not in chunk
    assert chunk["groundswell"] == {"retry_after_s": 2}, "the header it would have had"


async def test_progress_shows_the_search_going_on():
    *chunks, _ = payloads(await stream(fields={"groundswell": {"progress": True}}))
    assert chunks[0]["groundswell"] == {"searched_posts": 1204} and chunks[0]["choices"][0]["delta"] == {}
    assert chunks[1]["choices"][0]["delta"]["role"] == "assistant" and chunks[1]["citations"] == [ONE.url, TWO.url]
    chunks = payloads(await stream([Searching(1), FAILED], {"groundswell": {"progress": True}}))
    assert chunks[-1]["error"]["code"] == "queue_full"
    response = await stream([FAILED], {"groundswell": {"progress": True}})
    assert response.status_code == 503, "before the first event a failure keeps its status"


any_text = st.text(max_size=20) | st.sampled_from(
    ["\n\ndata: x", "\r\n", "\u2028\u2029\u0085", ": c\n", "\0", "[DONE]"]
)


@given(st.lists(any_text, min_size=1, max_size=5), st.lists(st.integers(1, 40), min_size=1))
@settings(deadline=None)
def test_any_text_comes_through_however_the_bytes_are_cut(texts: list[str], cuts: list[int]):
    answer = Answer("chatcmpl-1")
    sent = b"".join(frame(chunk) for text in texts for chunk in answer.chunks(Delta(text)))
    pieces, at = [], 0
    while at < len(sent):
        size = cuts[len(pieces) % len(cuts)]
        pieces.append(sent[at : at + size])
        at += size
    events = list(SSEDecoder().iter_bytes(iter(pieces)))
    assert all(event.event is None and event.id is None and event.retry is None for event in events)
    assert content([event.json() for event in events]) == "".join(texts)
    assert len(sent.decode().splitlines()) == sent.count(b"\n"), "no line end but ours, whoever splits"


@given(any_text, any_text)
def test_a_posts_words_cannot_break_a_frame(name: str, snippet: str):
    post = citation(1, author_name=name, snippet=snippet, title=name)
    chunks = list(Answer("x").chunks(Sources((post,), 1)))
    sent = b"".join(map(frame, chunks))
    (event,) = SSEDecoder().iter_bytes(iter([sent]))
    result = event.json()["search_results"][0]
    assert (result["author_name"], result["snippet"]) == (name, snippet)
