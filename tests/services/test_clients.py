"""The real openai package, and raw sockets, against the app behind uvicorn."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionChunk
from scripted_chat import KEY, ONE, SCRIPT, TEXT, ask, scripted_app, served

from services.events import Delta, Failed, Searching, Sources

QUESTION: Any = [{"role": "user", "content": "Is the bridge open?"}]
ENDLESS = [Searching(3), Sources((ONE,), 5), Delta("It is "), 3600]


@contextlib.asynccontextmanager
async def openai_client(app: Any, key: str = "unused", retries: int = 0) -> AsyncIterator[openai.AsyncOpenAI]:
    async with (
        served(app) as port,
        openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key, max_retries=retries) as ours,
    ):
        yield ours


async def test_a_whole_answer():
    app, _ = scripted_app()
    async with openai_client(app) as ours:
        answer = await ours.chat.completions.create(model="groundswell", messages=QUESTION)
    message = answer.choices[0].message
    assert message.content == TEXT and answer._request_id
    assert message.annotations and message.annotations[0].url_citation.url == ONE.url
    assert answer.usage and answer.usage.total_tokens == 38


async def test_a_streamed_answer():
    app, _ = scripted_app()
    async with openai_client(app) as ours:
        stream = await ours.chat.completions.create(
            model="groundswell", messages=QUESTION, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    *spoken, usage = chunks
    assert "".join(chunk.choices[0].delta.content or "" for chunk in spoken) == TEXT
    notes = [note for chunk in spoken for note in getattr(chunk.choices[0].delta, "annotations", None) or []]
    assert [note["url_citation"]["url"] for note in notes] == [ONE.url]
    assert spoken[0].citations[0] == ONE.url and spoken[-1].citations[0] == ONE.url  # type: ignore[attr-defined]
    assert [chunk.choices[0].finish_reason for chunk in spoken if chunk.choices[0].finish_reason] == ["stop"]
    assert usage.usage and usage.usage.total_tokens == 38


async def test_the_stream_helper_reads_it():
    app, _ = scripted_app()
    async with (
        openai_client(app) as ours,
        ours.chat.completions.stream(model="groundswell", messages=QUESTION) as stream,
    ):
        answer = await stream.get_final_completion()
    assert answer.choices[0].message.content == TEXT and answer.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, openai.BadRequestError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
        (503, openai.InternalServerError),
    ],
)
async def test_failures_map_to_its_exceptions(status: int, kind: type[openai.APIStatusError], stream: bool):
    app, _ = scripted_app([Searching(1), Failed(status, "some_type", "some_code", "why")])
    async with openai_client(app) as ours:
        with pytest.raises(kind) as caught:
            await ours.chat.completions.create(model="groundswell", messages=QUESTION, stream=stream)
    assert caught.value.status_code == status and (caught.value.code, caught.value.type) == ("some_code", "some_type")
    assert caught.value.request_id and "why" in caught.value.message


async def test_faults_of_the_request_map_to_its_exceptions():
    app, _ = scripted_app()
    async with openai_client(app) as ours:
        create = ours.chat.completions.create
        with pytest.raises(openai.BadRequestError) as caught:
            await create(model="groundswell", messages=QUESTION, n=3)
        assert caught.value.param == "n" and caught.value.code == "unsupported_value"
        with pytest.raises(openai.NotFoundError):
            await create(model="gpt-4o", messages=QUESTION)
        with pytest.raises(openai.NotFoundError):
            await ours.models.retrieve("gpt-4o")
        assert [model.id async for model in ours.models.list()] == ["groundswell"]


async def test_keys():
    app, _ = scripted_app(keys=True)
    async with openai_client(app, key="sk-wrong") as ours:
        with pytest.raises(openai.AuthenticationError) as caught:
            await ours.models.list()
        assert caught.value.code == "invalid_api_key"
    app, _ = scripted_app(keys=True)
    async with openai_client(app, key=KEY) as ours:
        assert (await ours.models.retrieve("groundswell")).id == "groundswell"


async def test_a_failure_mid_stream_raises_after_the_words_before_it():
    app, _ = scripted_app([*SCRIPT[:3], Failed(500, "server_error", "generation_failed", "a shard died")])
    words = ""
    async with openai_client(app) as ours:
        with pytest.raises(openai.APIError) as caught:
            async for chunk in await ours.chat.completions.create(model="groundswell", messages=QUESTION, stream=True):
                assert isinstance(chunk, ChatCompletionChunk)
                words += chunk.choices[0].delta.content or ""
    assert words == "\N{ROCKET} The bridge is " and "a shard died" in caught.value.message
    assert caught.value.code == "generation_failed"


async def test_keep_alives_do_not_disturb_it():
    app, _ = scripted_app([0.2, *SCRIPT[:3], 0.1, *SCRIPT[3:]], hold_s=0.02, keep_alive_s=0.02)
    async with openai_client(app) as ours:
        stream = await ours.chat.completions.create(model="groundswell", messages=QUESTION, stream=True)
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == TEXT


async def test_closing_a_stream_ends_the_chat():
    app, chat = scripted_app(ENDLESS)
    async with openai_client(app) as ours:
        stream = await ours.chat.completions.create(model="groundswell", messages=QUESTION, stream=True)
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
        assert not chat.closed.is_set()
        await stream.close()
        async with asyncio.timeout(5):
            await chat.closed.wait()
    assert not chat.completed


def http_request(body: bytes, length: int | None = None) -> bytes:
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {length or len(body)}\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize("script", [ENDLESS, [Searching(1), 3600]], ids=["answering", "before the first word"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_cut_connection_ends_the_chat(stream: bool, script: list[Any], caplog: pytest.LogCaptureFixture):
    app, chat = scripted_app(script)
    async with served(app) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(http_request(json.dumps(ask(stream=stream)).encode()))
        await chat.started.wait()
        writer.transport.abort()
        async with asyncio.timeout(5):
            await chat.closed.wait()
    assert not chat.completed and not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_connection_cut_inside_the_body_starts_no_chat(caplog: pytest.LogCaptureFixture):
    app, chat = scripted_app()
    async with served(app) as port:
        for _ in range(3):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(http_request(b'{"model": "groundswell", "mess', length=500))
            await writer.drain()
            writer.transport.abort()
        async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="unused") as ours:
            await ours.chat.completions.create(model="groundswell", messages=QUESTION)
    assert len(chat.requests) == 1 and not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_body_that_never_ends_is_given_up():
    app, chat = scripted_app(body_timeout_s=0.05)
    async with served(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(http_request(b"{", length=500))
        answer = await reader.readuntil(b"}}")
        writer.close()
    assert answer.startswith(b"HTTP/1.1 408") and b"request_timeout" in answer and not chat.requests


async def test_a_reader_that_stops_reading_does_not_stop_the_chat():
    """A slow client must not hold a slot of the engine: what it cannot take yet waits here."""
    app, chat = scripted_app([Delta("x" * 100_000), *[0.0, Delta("y" * 100_000)] * 100, SCRIPT[-1]])
    async with served(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(http_request(json.dumps(ask(stream=True)).encode()))
        async with asyncio.timeout(5):
            await chat.closed.wait()
        assert chat.completed
        received = b""
        while b"[DONE]" not in received[-100:]:
            received += await reader.read(1 << 16)
        writer.close()
    assert received.count(b"y") >= 10_000_000
