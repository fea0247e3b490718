"""Whatever a server does, an answer is whole or it fails with a reason, and no key and no word is in that reason."""

import asyncio
import json
import logging
import pickle
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripted_upstream import HELLO, MODELS, Call, ScriptedUpstream, Step, delta, refuses, says, usage

from model_runtime.request import (
    Finished,
    GenerationFailed,
    GenerationRequest,
    Grammar,
    PromptTooLong,
    QueueFull,
    Sampling,
    Token,
    UnusableRequest,
)
from model_runtime.settings import ModelSettings
from model_runtime.upstream import ATTEMPTS, UNREACHED, UpstreamEngine

KEY = "sk-4711"
SECRET = "my secret question"
REQUEST = GenerationRequest("r1", (0,) * 50, Sampling(max_tokens=20), (("system", "Be brief."), ("user", SECRET)))


def engine_at(url: str, tmp_path: Path | None = None, patience_s: float = 20.0, **changes: Any) -> UpstreamEngine:
    fields: dict[str, Any] = {"upstream_url": url}
    if tmp_path is not None:
        (tmp_path / "key").write_text(f"{KEY}\n")
        fields["upstream_api_key_file"] = str(tmp_path / "key")
    most_streams = changes.pop("most_streams", 256)
    settings = ModelSettings(**fields | changes)
    return UpstreamEngine(settings, patience_s=patience_s, pause_s=0.001, most_streams=most_streams)


@asynccontextmanager
async def running(*script: Step, models: Step | None = None, **changes: Any) -> AsyncIterator[tuple[Any, Any]]:
    """A server that follows the script, and an engine that has started."""
    upstream = ScriptedUpstream(script, **({} if models is None else {"models": models}))
    async with upstream.on() as url:
        engine = engine_at(url, **changes)
        await engine.start()
        try:
            yield engine, upstream
        finally:
            await engine.stop()


async def answer(engine: UpstreamEngine, request: GenerationRequest = REQUEST) -> tuple[str, Finished]:
    items = [item async for batch in engine.generate(request) for item in batch]
    assert [item for item in items if isinstance(item, Finished)] == items[-1:], "exactly one end, and it is the last"
    end = items[-1]
    assert isinstance(end, Finished)
    return "".join(item.text for item in items), end


async def failure(engine: UpstreamEngine, request: GenerationRequest = REQUEST) -> tuple[str, Exception]:
    """What was shown, and what was raised: never a word of the prompt or the answer in it, nor the key."""
    shown = ""
    try:
        async for batch in engine.generate(request):
            assert not any(isinstance(item, Finished) for item in batch)
            shown += "".join(item.text for item in batch)
    except (GenerationFailed, QueueFull) as error:
        assert not any(word in f"{error!r} {error}" for word in (KEY, "secret", "Hello"))
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
        return shown, error
    raise AssertionError("it did not fail")


async def test_an_answer_comes_in_pieces_with_the_counts_of_the_upstream(tmp_path: Path):
    async with running(tmp_path=tmp_path, upstream_model="other") as (engine, upstream):
        batches = [batch async for batch in engine.generate(REQUEST)]
        assert [[type(item), item.text] for batch in batches for item in batch] == [
            [Token, "Hello"],
            [Token, " there"],
            [Finished, ""],
        ]
        assert batches[-1] == [Finished("stop", 31, 7)]
        (call,) = upstream.chats
        assert call.path == "/v1/chat/completions" and call.headers["authorization"] == f"Bearer {KEY}"
        assert call.body == {
            "model": "other",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": SECRET}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0.0,
            "max_tokens": 20,
        }


async def test_pieces_come_as_soon_as_they_are_there():
    """The server sends the second word only when the first was seen."""
    seen = asyncio.Event()

    async def step(call: Call) -> None:
        await call.begin()
        await call.event(delta("one"))
        await seen.wait()
        await call.event(delta("two", finish="length"))
        await call.event("[DONE]")
        await call.end()

    async with running(step) as (engine, _):
        words = engine.generate(REQUEST)
        assert [item.text for item in await anext(words)] == ["one"]
        seen.set()
        assert [item.text for item in await anext(words)] == ["two"]
        assert await anext(words) == [Finished("length", 50, 2)]


@pytest.mark.parametrize(
    ("sampling", "sent"),
    [
        ({"temperature": 0.7, "top_p": 0.9, "seed": 2**40 + 5}, {"temperature": 0.7, "top_p": 0.9, "seed": 5}),
        ({"seed": 7}, {}),
        ({"stop": ("END", "\n")}, {"stop": ["END", "\n"]}),
        ({"presence_penalty": 0.5, "frequency_penalty": -1}, {"presence_penalty": 0.5, "frequency_penalty": -1}),
        ({"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1}, {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1}),
        ({"logprobs": 0}, {"logprobs": True}),
        ({"grammar": Grammar()}, {"response_format": {"type": "json_object"}}),
        (
            {"grammar": Grammar('{"type": "object"}')},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True},
                }
            },
        ),
    ],
)
async def test_sampling_is_sent_where_it_changes_something(sampling: dict[str, Any], sent: dict[str, Any]):
    async with running() as (engine, upstream):
        await answer(engine, replace(REQUEST, sampling=Sampling(max_tokens=20, **sampling)))
        usual = {"model", "messages", "stream", "stream_options", "max_tokens"}
        body = {name: value for name, value in upstream.chats[0].body.items() if name not in usual}
        assert body == {"temperature": 0.0} | sent


@pytest.mark.parametrize(
    "sampling",
    [
        {"logit_bias": ((1, 5.0),)},
        {"stop_ids": (2,)},
        {"logprobs": 3},
        {"deterministic": True},
        {"grammar": Grammar("no schema")},
    ],
)
async def test_what_an_upstream_cannot_do_is_refused_before_it_is_asked(sampling: dict[str, Any]):
    async with running() as (engine, upstream):
        with pytest.raises(UnusableRequest):
            await answer(engine, replace(REQUEST, sampling=Sampling(**sampling)))
        assert upstream.chats == [] and engine.streams == 0


async def test_logprobs_are_those_of_the_chosen_tokens():
    entries = [{"token": "Hel", "logprob": -0.5}, {"token": "lo", "logprob": -1.5}]
    async with running(says(delta("Hello", finish="stop", logprobs={"content": entries}), "[DONE]")) as (engine, _):
        request = replace(REQUEST, sampling=Sampling(max_tokens=20, logprobs=0))
        tokens = (await anext(engine.generate(request)))[:2]
        assert [(token.text, token.logprob.chosen) for token in tokens] == [("Hello", -0.5), ("", -1.5)]


async def drops(call: Call) -> None:
    call.drop()


async def half_a_head(call: Call) -> None:
    await call.send(b"HTTP/1.1 200 OK\r\ncontent-")
    call.drop()


async def nothing_then_drops(call: Call) -> None:
    await call.begin()
    await call.event(delta(""))
    await call.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}]})
    call.drop()


PASSING = {
    "408": refuses(408),
    "429": refuses(429, retry_after="0"),
    "500": refuses(500, b"<html>secret</html>"),
    "502": refuses(502),
    "503": refuses(503, retry_after="Wed, 21 Oct 2015 07:28:00 GMT"),
    "504": refuses(504),
    "529": refuses(529, retry_after="soon"),
    "dropped before the head": drops,
    "dropped within the head": half_a_head,
    "dropped before a word": nothing_then_drops,
    "no word": says(),
    "thoughts, then nothing": says(delta(None, delta={"reasoning_content": "hm"})),
}


@pytest.mark.parametrize("name", PASSING)
async def test_a_fault_before_the_first_word_may_pass(name: str):
    async with running(*[PASSING[name]] * (ATTEMPTS - 1)) as (engine, upstream):
        assert await answer(engine) == ("Hello there", Finished("stop", 31, 7))
        assert len(upstream.chats) == ATTEMPTS
        engine.check()


@pytest.mark.parametrize("name", PASSING)
async def test_a_fault_that_does_not_pass_has_a_reason(name: str):
    async with running(*[PASSING[name]] * ATTEMPTS) as (engine, upstream):
        shown, error = await failure(engine)
        assert shown == "" and len(upstream.chats) == ATTEMPTS and engine.streams == 0
        assert isinstance(error, QueueFull if name in ("429", "503", "529") else GenerationFailed)
        assert isinstance(error, QueueFull) or not name.isdigit() or f"answered {name}" in error.reason
        assert await answer(engine) == ("Hello there", Finished("stop", 31, 7)), "the next one is answered"


@pytest.mark.parametrize("headers", [{"retry_after": "3600"}, {"retry_after": "Wed, 21 Oct 2099 07:28:00 GMT"}])
async def test_an_upstream_that_asks_for_a_long_pause_is_full(headers: dict[str, str]):
    async with running(refuses(429, **headers)) as (engine, upstream):
        _, error = await failure(engine)
        assert isinstance(error, QueueFull) and len(upstream.chats) == 1


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 413, 422, 501])
async def test_a_refusal_is_final_and_repeats_no_words(status: int, tmp_path: Path):
    error = {
        "message": f"cannot answer {SECRET} with {KEY}",
        "code": "bad_thing",
        "type": f"{SECRET} {KEY}",
        "param": 3,
    }
    async with running(refuses(status, {"error": error}, location="/elsewhere"), tmp_path=tmp_path) as (
        engine,
        upstream,
    ):
        _, error_raised = await failure(engine)
        assert isinstance(error_raised, GenerationFailed)
        assert error_raised.reason == f"{engine.card().file} answered {status} (bad_thing)"
        assert len(upstream.chats) == 1


@pytest.mark.parametrize(
    "body", [b"", b"no", b"[]", b'{"error": "secret"}', b'{"error": {"code": "two words"}}', b"[" * 99]
)
async def test_a_refusal_may_say_nothing(body: bytes):
    async with running(refuses(400, body)) as (engine, _):
        _, error = await failure(engine)
        assert isinstance(error, GenerationFailed) and error.reason.endswith("answered 400")


async def test_a_quota_that_is_used_up_is_no_queue():
    body = {"error": {"code": "insufficient_quota", "type": "insufficient_quota"}}
    async with running(refuses(429, body)) as (engine, upstream):
        _, error = await failure(engine)
        assert isinstance(error, GenerationFailed) and len(upstream.chats) == 1


async def test_a_server_that_wants_the_newer_name_of_max_tokens_gets_it():
    """Once it has said so, at the first attempt."""
    error = {"error": {"message": "no", "param": "max_tokens", "code": "unsupported_parameter"}}

    both = asyncio.Barrier(2)

    async def step(call: Call) -> None:
        if "max_tokens" not in call.body:
            return await HELLO(call)
        async with both:
            await refuses(400, error)(call)

    async with running(*[step] * 5) as (engine, upstream):
        await asyncio.gather(answer(engine), answer(engine))
        await answer(engine)
        bodies = [call.body for call in upstream.chats]
        assert [body.get("max_tokens") for body in bodies] == [20, 20, None, None, None]
        assert [body.get("max_completion_tokens") for body in bodies] == [None, None, 20, 20, 20]
    wrong = {"error": {"message": "no", "param": "max_tokens", "code": "too_large"}}
    async with running(refuses(400, wrong)) as (engine, upstream):
        assert isinstance((await failure(engine))[1], GenerationFailed) and len(upstream.chats) == 1


async def word_then_drop(call: Call) -> None:
    await call.begin()
    await call.event(delta("Hello"))
    call.drop()


BROKEN: dict[str, tuple[Step, str]] = {
    "dropped": (word_then_drop, "broke"),
    "ended": (says(delta("Hello")), "ended the stream before the answer"),
    "error object": (says(delta("Hello"), {"error": {"message": SECRET, "code": 500, "type": "oops"}}), "(500, oops)"),
    "error text": (says(delta("Hello"), {"error": SECRET}), "reported an error"),
    "garbage": (says(delta("Hello"), f"<{SECRET}>"), "no JSON"),
    "a list": (says(delta("Hello"), "[1]"), "no part of an answer"),
    "a number for choices": (says(delta("Hello"), {"choices": 3}), "no part of an answer"),
    "a text for a choice": (says(delta("Hello"), {"choices": [SECRET]}), "no part of an answer"),
    "a number for a text": (says(delta("Hello"), {"choices": [{"delta": {"content": 3}}]}), "no part of an answer"),
    "deep": (says(delta("Hello"), "[" * 100_000), "no JSON"),
    "filtered": (says(delta("Hello"), delta(finish="content_filter")), "(content_filter)"),
    "aborted": (says(delta("Hello"), delta(finish="abort")), "(abort)"),
    "tools": (says(delta("Hello"), delta(finish="tool_calls")), "(tool_calls)"),
    "strange": (says(delta("Hello"), delta(finish=SECRET)), "a reason of its own ()"),
    "huge": (says(delta("Hello"), "x" * (5 << 20)), "more than"),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_an_answer_that_breaks_off_fails_and_is_not_begun_again(name: str):
    step, reason = BROKEN[name]
    async with running(step) as (engine, upstream):
        shown, error = await failure(engine)
        assert shown == "Hello" and isinstance(error, GenerationFailed) and reason in error.reason
        assert len(upstream.chats) == 1 and engine.streams == 0


async def test_an_answer_that_is_no_stream_is_refused():
    async with running(refuses(200, {"choices": [{"message": {"content": "Hello"}}]})) as (engine, _):
        _, error = await failure(engine)
        assert "answered with application/json instead of a stream" in str(error)


async def whispers(call: Call) -> None:
    """Comments and nothing else, until the client is gone."""
    await call.begin()
    gone = asyncio.create_task(call.gone())
    while not gone.done():
        await call.piece(b": keep-alive\n\n")
        await asyncio.wait([gone], timeout=0.02)


async def says_hello_and_whispers(call: Call) -> None:
    await call.begin()
    await call.event(delta("Hello"))
    gone = asyncio.create_task(call.gone())
    while not gone.done():
        await call.piece(b": keep-alive\n\n")
        await asyncio.wait([gone], timeout=0.02)


async def is_silent(call: Call) -> None:
    await call.gone()


@pytest.mark.parametrize(("step", "words"), [(whispers, ""), (says_hello_and_whispers, "Hello"), (is_silent, "")])
async def test_comments_are_no_progress(step: Step, words: str):
    async with running(step, patience_s=0.3) as (engine, upstream):
        shown, error = await failure(engine)
        assert shown == words and "sent nothing new for 0.3 s" in str(error)
        assert len(upstream.chats) == 1


def tolerated() -> list[bytes]:
    """An answer with everything that servers are known to send and that means nothing here."""

    def data(event: Any, end: str = "\n\n", space: str = " ") -> bytes:
        return f"data:{space}{event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)}{end}".encode()

    return [
        b": OPENROUTER PROCESSING\n\n",
        b"retry: 3000\nid: 7\nevent: message\n",
        data({"choices": [], "prompt_filter_results": [{}]}),
        data({"object": "ping"}),
        data({"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}, "finish_reason": None}]}),
        data({"choices": [{"index": 0, "delta": {"reasoning_content": "SECRET THOUGHTS", "content": ""}}]}),
        data(delta("Grüße \N{ROCKET} "), end="\r\n\r\n"),
        b"\n\n",
        data({"choices": [{"index": 1, "delta": {"content": "another choice"}, "finish_reason": "stop"}]}),
        data(delta("一\u2028二\x85\u2029"), space=""),
        b'data: {"choices": [{"index": 0,\ndata: "delta": {"content": "!"}}]}\n\n',
        b'data: {"choices": [{"index": 0, "delta": {"content": "\\ud83d"}}], "usage": null}\n\n',
        data({"choices": [{"index": 0, "delta": {"refusal": " No."}, "finish_reason": None}]}),
        data({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}),
        data(usage(12, 34, prompt_tokens_details={"cached_tokens": 8})),
        data("[DONE]"),
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000, 10**6])
async def test_what_means_nothing_is_passed_over_however_the_bytes_fall(size: int):
    whole = b"".join(tolerated())

    async def step(call: Call) -> None:
        await call.begin()
        for start in range(0, len(whole), size):
            await call.piece(whole[start : start + size])
        await call.end()

    async with running(step) as (engine, _):
        text, end = await answer(engine)
        assert text == "Grüße \N{ROCKET} 一\u2028二\x85\u2029!\ufffd No."
        assert end == Finished("length", 12, 34, cached_tokens=8)


async def test_without_counts_the_estimate_stands():
    async with running(says(delta("a"), delta("b"), "[DONE]")) as (engine, _):
        assert await answer(engine) == ("ab", Finished("stop", 50, 2))


@pytest.mark.parametrize(("said", "meant"), [("stop", "stop"), ("eos", "stop"), ("length", "length")])
async def test_a_connection_that_breaks_after_the_end_of_the_text_does_no_harm(said: str, meant: str):
    async def step(call: Call) -> None:
        await call.begin()
        await call.event(delta("Hello", finish=said))
        call.drop()

    async with running(step) as (engine, _):
        assert (await answer(engine)) == ("Hello", Finished(meant, 50, 1))


async def test_a_stream_that_stays_open_after_its_last_event_is_closed():
    async def step(call: Call) -> None:
        await says(delta("Hello"), "[DONE]", end=False)(call)
        await call.gone()

    async with running(step) as (engine, _):
        assert (await answer(engine)) == ("Hello", Finished("stop", 50, 1))


async def test_connections_are_used_again():
    async with running() as (engine, upstream):
        for _ in range(3):
            await answer(engine)
        assert len(upstream.chats) == 3 and upstream.connections == 1


async def test_closing_an_answer_closes_the_connection_at_once():
    gone = asyncio.Event()

    async def step(call: Call) -> None:
        await says(delta("Hello"), end=False)(call)
        await call.gone()
        gone.set()

    async with running(step) as (engine, _):
        words = engine.generate(REQUEST)
        await anext(words)
        assert engine.streams == 1
        await words.aclose()
        assert engine.streams == 0
        await asyncio.wait_for(gone.wait(), 5)


async def test_a_caller_that_is_cancelled_closes_the_connection_too():
    asked, gone = asyncio.Event(), asyncio.Event()

    async def step(call: Call) -> None:
        asked.set()
        await call.gone()
        gone.set()

    async with running(step) as (engine, _):
        caller = asyncio.create_task(answer(engine))
        await asked.wait()
        caller.cancel()
        await asyncio.wait([caller])
        await asyncio.wait_for(gone.wait(), 5)
        assert engine.streams == 0


async def test_more_streams_than_it_may_have_are_refused():
    async def holds(call: Call) -> None:
        await says(delta("Hello"), end=False)(call)
        await call.gone()

    async with running(holds, holds, most_streams=2) as (engine, _):
        held = [engine.generate(REQUEST) for _ in range(2)]
        for words in held:
            await anext(words)
        with pytest.raises(QueueFull):
            await answer(engine)
        await held[0].aclose()
        assert (await answer(engine))[0] == "Hello there"
        await held[1].aclose()


async def test_a_prompt_that_cannot_fit_is_refused_here():
    async with running(upstream_model="other") as (engine, upstream):
        assert engine.card().context_tokens == 1000, (
            "what the server says of its model, when it is less than the setting"
        )
        with pytest.raises(PromptTooLong) as caught:
            await answer(engine, replace(REQUEST, prompt_ids=(0,) * 981))
        assert (caught.value.length, caught.value.limit) == (1001, 1000) and upstream.chats == []


async def test_stopping_ends_answers_under_way():
    async def holds(call: Call) -> None:
        await says(delta("Hello"), end=False)(call)
        await call.gone()

    async with running(holds) as (engine, _):
        words = engine.generate(REQUEST)
        await anext(words)
        await engine.stop()
        with pytest.raises(GenerationFailed):
            await anext(words)
        with pytest.raises(GenerationFailed, match="was stopped"):
            await answer(engine)


async def test_it_is_unhealthy_when_nobody_is_there_and_well_again_after():
    upstream = ScriptedUpstream()
    async with upstream.on() as url:
        engine = engine_at(url)
        await engine.start()
    for _ in range(UNREACHED):
        engine.check()
        _, error = await failure(engine)
        assert isinstance(error, GenerationFailed) and "no connection to 127.0.0.1" in error.reason
    with pytest.raises(GenerationFailed, match=f"the last {UNREACHED} requests did not reach 127.0.0.1"):
        engine.check()
    async with upstream.on(int(url.rpartition(":")[2])):
        await answer(engine)
        engine.check()
        await engine.stop()


async def test_the_start_waits_for_a_server_that_is_not_up_yet(caplog: pytest.LogCaptureFixture, tmp_path: Path):
    caplog.set_level(logging.DEBUG)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    engine = engine_at(f"http://127.0.0.1:{port}", tmp_path)
    starting = asyncio.create_task(engine.start())
    while "not ready" not in caplog.text:  # noqa: ASYNC110 (a log line is no event)
        await asyncio.sleep(0.001)
    answers = iter([refuses(503), refuses(500), refuses(200, MODELS)])

    async def models(call: Call) -> None:
        await next(answers)(call)

    async with ScriptedUpstream(models=models).on(port):
        await starting
        card = engine.card()
        assert (card.name, card.file, card.context_tokens) == ("tiny", f"127.0.0.1:{port}", 8192)
        (line,) = [record for record in caplog.records if "are sent there" in record.getMessage()]
        assert f"127.0.0.1:{port} (model tiny)" in line.getMessage() and line.levelname == "INFO"
        await engine.stop()
    assert KEY not in caplog.text and KEY not in repr(vars(engine))


@pytest.mark.parametrize(
    ("models", "wanted", "name"),
    [
        (refuses(404), "mine", "mine"),
        (refuses(200, {"data": []}), "mine", "mine"),
        (refuses(200, MODELS), "mine", "mine"),
        (refuses(200, MODELS), "", "tiny"),
        (refuses(200, {"data": [3, {"id": 4}, {"id": "five"}]}), "", "five"),
        (refuses(404), "", "lists no models: set model.upstream_model"),
        (refuses(200, {"data": 3}), "", "lists no models: set model.upstream_model"),
        (refuses(200, b"no JSON"), "", "lists no models: set model.upstream_model"),
        (refuses(401), "mine", "answered 401"),
        (refuses(403), "", "answered 403"),
    ],
)
async def test_the_model_is_the_one_that_is_set_or_the_first_that_is_listed(models: Step, wanted: str, name: str):
    async with ScriptedUpstream(models=models).on() as url:
        engine = engine_at(url, upstream_model=wanted)
        if " " in name:
            with pytest.raises(GenerationFailed, match=name):
                await engine.start()
        else:
            await engine.start()
            assert engine.card().name == name
        await engine.stop()


@pytest.mark.parametrize(("path", "asked"), [("", "/v1"), ("/", "/v1"), ("/v1/", "/v1"), ("/api/v3", "/api/v3")])
async def test_the_url_may_name_a_path(path: str, asked: str):
    upstream = ScriptedUpstream()
    async with upstream.on() as url:
        engine = engine_at(url + path)
        await engine.start()
        await answer(engine)
        await engine.stop()
    assert [call.path for call in upstream.calls] == [f"{asked}/models", f"{asked}/chat/completions"]
    assert all("authorization" not in call.headers for call in upstream.calls)


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8000",
        "ftp://host",
        "http://",
        "https://me:sk-4711@host/v1",
        "http://host?key=sk-4711",
        "http://h\x00",
    ],
)
def test_a_url_that_cannot_be_used_is_refused(url: str):
    with pytest.raises(ValueError, match=r"model\.upstream_url") as caught:
        engine_at(url)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"sk-4711 two", b"sk-4711\nsk-2", b"sk-4711\x7f", b"\xff\xfe", "schlüssel".encode()]
)
def test_a_key_that_cannot_be_one_is_refused(content: bytes, tmp_path: Path):
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.upstream_api_key_file") as caught:
        engine_at("http://localhost", upstream_api_key_file=str(tmp_path / "key"))
    assert KEY not in str(caught.value)


def test_a_key_file_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match=r"cannot read .*nowhere"):
        engine_at("http://localhost", upstream_api_key_file=str(tmp_path / "nowhere"))
