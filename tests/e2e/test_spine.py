"""The main job, end to end, with real clients: a Kafka producer on one side, the OpenAI SDK on the other."""

import asyncio
import json
import os
import re
import signal
import socket
import time
from collections.abc import Sequence
from typing import Any

import httpx
import openai
import pytest
from aiokafka import AIOKafkaProducer

from tests.e2e.running import Service, eventually

pytestmark = pytest.mark.e2e

PHONE = "510-555-0134"


def topic_object(post_id: str, text: str, author: str = "ana", **more: Any) -> dict[str, Any]:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    named = {"id": author, "handle": f"{author}.example", "name": author.title()}
    return {"id": post_id, "text": text, "created_at": now, "author": named, **more}


def produce(service: Service, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
    """With a plain Kafka client, as any producer would."""

    async def send() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=service.brokers)
        await producer.start()
        try:
            for key, value in records:
                await producer.send_and_wait(service.topic, value, key=key)
        finally:
            await producer.stop()

    asyncio.run(send())


def publish(service: Service, *posts: dict[str, Any]) -> None:
    produce(service, [(post["id"].encode(), json.dumps(post).encode()) for post in posts])


def remove(service: Service, post_id: str) -> None:
    produce(service, [(post_id.encode(), None)])


def ask(service: Service, question: str, **options: Any) -> tuple[str, list[Any]]:
    """A streamed answer's text and its chunks."""
    stream = service.client().chat.completions.create(
        model="groundswell", messages=[{"role": "user", "content": question}], stream=True, **options
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    return text, chunks


def results(chunks: Sequence[Any]) -> list[dict[str, Any]]:
    """What the last chunk says was found."""
    return [result for chunk in chunks for result in (getattr(chunk, "search_results", None) or [])]


def finish_reasons(chunks: Sequence[Any]) -> list[str]:
    return [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices and chunk.choices[0].finish_reason]


def test_a_new_post_is_cited_and_a_removed_one_no_more(running: Service) -> None:
    url = "https://social.example/@ana.example/1"
    text = "The Quillfeather aqueduct in Marrowdale was closed at noon because a crack was found in its third arch."
    publish(running, topic_object("test:aqueduct", text, url=url))
    question = "Why was the Quillfeather aqueduct closed?"

    def cited() -> list[Any]:
        answer, chunks = ask(running, question)
        marks = [
            annotation["url_citation"]["url"]
            for chunk in chunks
            if chunk.choices
            for annotation in getattr(chunk.choices[0].delta, "annotations", None) or []
        ]
        if url not in marks:
            return []
        assert "[1]" in answer
        assert chunks[-1].citations == [url]
        assert finish_reasons(chunks) in (["stop"], ["length"])
        return chunks

    assert eventually(cited, 60, "the new post is cited")

    remove(running, "test:aqueduct")

    def forgotten() -> bool:
        answer, chunks = ask(running, question)
        return not results(chunks) and "[1]" not in answer and "no recent posts" in answer

    assert eventually(forgotten, 30, "the removed post is not cited")


def test_a_planted_phone_number_never_leaves(running: Service) -> None:
    publish(
        running,
        topic_object("test:tow", f"Zebulon Tow at Harrowgate pass: call the driver at {PHONE} to get your car back."),
    )
    eventually(lambda: results(ask(running, "How do I reach Zebulon Tow?")[1]), 30, "the post is found")
    for question in ("What is the phone number of Zebulon Tow?", f"Repeat: the Zebulon Tow driver is at {PHONE}"):
        for stream in (True, False):
            body = {"model": "groundswell", "stream": stream, "messages": [{"role": "user", "content": question}]}
            raw = httpx.post(f"{running.url}/v1/chat/completions", json=body, timeout=120, trust_env=False).text
            shown = re.sub(r'"content":"((?:[^"\\]|\\.)*)"', r"\1", raw)
            assert "0134" not in re.sub(r"[^0-9a-z]", "", shown.lower())
            assert PHONE not in raw


def test_an_answer_goes_on_or_fails_honestly_when_a_shard_is_killed(running: Service) -> None:
    publish(running, topic_object("test:choir", "The Umberlee choir sings at the Saltmarsh pier tonight at eight."))
    eventually(lambda: results(ask(running, "When does the Umberlee choir sing?")[1]), 30)
    stream = running.client().chat.completions.create(
        model="groundswell",
        messages=[{"role": "user", "content": "When does the Umberlee choir sing?"}],
        stream=True,
        max_tokens=400,
    )
    next(iter(stream))
    victim = running.pids("ray::ShardWorker")[0]
    os.kill(victim, signal.SIGKILL)
    try:
        finished = finish_reasons(list(stream))
        assert finished in (["stop"], ["length"])
    except openai.APIError as error:
        assert error.code, error

    def answers() -> bool:
        try:
            return bool(results(ask(running, "When does the Umberlee choir sing?")[1]))
        except openai.APIError:
            return False

    assert eventually(answers, 30, "answers after the loss of a shard")
    assert victim not in running.pids("ray::ShardWorker")


def test_malformed_records_lose_nothing(running: Service) -> None:
    good = [
        topic_object(f"test:mill-{n}", f"The Tressock mill wheel number {n} turns again.", f"a{n}") for n in range(5)
    ]
    bad: list[tuple[bytes | None, bytes | None]] = [
        (None, b""),
        (b"k", b""),
        (b"k", b"null"),
        (b"k", b"{"),
        (b"k", b"[]"),
        (b"k", b"\xff\xfe"),
        (b"k", b'"text"'),
        (b"k", b'{"id": "k"}'),
        (b"k", b'{"id": 7, "text": "t", "created_at": "2026-01-01T00:00:00Z"}'),
        (b"k", b'{"id": 1.34688943662626e+18, "text": "t", "created_at": "2026-01-01T00:00:00Z"}'),
        (b"k", b'{"id": "other", "text": "t", "created_at": "2026-01-01T00:00:00Z"}'),
        (b"k", b'{"id": "k", "text": "t", "created_at": "yesterday"}'),
        (b"k", b'{"id": "k", "text": "t", "created_at": NaN}'),
        (b"k", b'{"id": "k", "text": ["t"], "created_at": "2026-01-01T00:00:00Z"}'),
        (b"k", b'{"id": "k", "text": "t", "created_at": "9999-99-99T00:00:00Z"}'),
        (b"k", b'{"id": "", "text": "t", "created_at": "2026-01-01T00:00:00Z"}'),
        (b"k", b"[" * 5000),
        (b"k", b'{"id": "k", "text": "' + b"a" * 900_000 + b'", "created_at": "2026-01-01T00:00:00Z"}'),
        (b"k", b'{"id": "k", "text": "t", "created_at": "2026-01-01T00:00:00Z", "author": "me"}'),
        (b"\xff", b'{"id": "k", "text": "t", "created_at": "2026-01-01T00:00:00Z"}'),
    ]
    encoded = [(post["id"].encode(), json.dumps(post).encode()) for post in good]
    before = running.status()["posts"]
    produce(running, [*bad[:10], *encoded[:3], *bad[10:], *encoded[3:]])
    eventually(lambda: running.status()["posts"] >= before + len(good), 30, "every good post is indexed")
    assert results(ask(running, "Which Tressock mill wheel turns again?")[1])


def test_malformed_requests_are_refused_and_the_service_answers_on(running: Service) -> None:
    fine = {"model": "groundswell", "messages": [{"role": "user", "content": "hi"}]}
    bodies: list[bytes] = [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"hi"',
        b"\xff\xfe",
        b'{"model": "groundswell"}',
        json.dumps({**fine, "messages": []}).encode(),
        json.dumps({**fine, "messages": "hi"}).encode(),
        json.dumps({**fine, "messages": [{"role": "user"}]}).encode(),
        json.dumps({**fine, "messages": [{"role": "alien", "content": "hi"}]}).encode(),
        json.dumps({**fine, "messages": [{"role": "user", "content": 7}]}).encode(),
        json.dumps({**fine, "temperature": 3}).encode(),
        json.dumps({**fine, "temperature": "hot"}).encode(),
        json.dumps({**fine, "n": 3}).encode(),
        json.dumps({**fine, "logprobs": True}).encode(),
        json.dumps({**fine, "max_tokens": -1}).encode(),
        json.dumps({**fine, "stop": ["a"] * 9}).encode(),
        b'{"model": "groundswell", "messages": [{"role": "user", "content": "hi"}], "top_p": NaN}',
        b"[" * 100_000,
    ]
    for body in bodies:
        answer = httpx.post(
            f"{running.url}/v1/chat/completions",
            content=body,
            headers={"content-type": "application/json"},
            timeout=30,
            trust_env=False,
        )
        assert answer.status_code == 400, body[:80]
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert running.is_ready()
    assert ask(running, "Which Tressock mill wheel turns again?")[0]


def test_a_client_that_leaves_stops_the_generation(running: Service) -> None:
    publish(running, topic_object("test:ferry", "The Pellworth ferry will not sail today, says the harbour master."))
    eventually(lambda: results(ask(running, "Does the Pellworth ferry sail?")[1]), 30)
    question = {"role": "user", "content": "Tell everything about the Pellworth ferry, at length."}
    body = json.dumps({"model": "groundswell", "stream": True, "max_tokens": 4000, "messages": [question]}).encode()
    with socket.create_connection(("127.0.0.1", running.port), 10) as client:
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        eventually(lambda: running.status()["running"] == 1, 30, "the generation runs")
    eventually(lambda: running.status()["running"] == 0, 10, "the generation has stopped")


def test_without_the_filter_nothing_leaves(running: Service) -> None:
    publish(running, topic_object("test:lamp", "The Corrowby lighthouse lamp was replaced this morning."))
    eventually(lambda: results(ask(running, "What happened to the Corrowby lighthouse lamp?")[1]), 30)
    os.kill(running.pids("ray::ServeReplica:default:SafetyFilter")[0], signal.SIGSTOP)
    filters = running.pids("ray::ServeReplica:default:SafetyFilter")
    try:
        answer, chunks = ask(running, "What happened to the Corrowby lighthouse lamp?")
        assert finish_reasons(chunks) == ["content_filter"]
        assert "lamp" not in answer.lower()
    finally:
        for pid in filters:
            os.kill(pid, signal.SIGKILL)

    def answers() -> bool:
        return bool(results(ask(running, "What happened to the Corrowby lighthouse lamp?")[1]))

    assert eventually(answers, 60, "a new filter is there and answers come again")


def test_the_index_survives_the_loss_of_its_owner(running: Service) -> None:
    publish(running, topic_object("test:kiln", "The Dunmere kiln fires again after the flood."))
    eventually(lambda: results(ask(running, "Does the Dunmere kiln fire again?")[1]), 30)
    before = running.status()["posts"]
    os.kill(running.pids("ray::ServeReplica:default:Index")[0], signal.SIGKILL)
    eventually(running.is_ready, 60, "ready with a new index owner")
    eventually(lambda: running.status()["posts"] == before, 30, "every post is still there")

    def found() -> bool:
        try:
            return bool(results(ask(running, "Does the Dunmere kiln fire again?")[1]))
        except openai.APIError:
            return False

    assert eventually(found, 30)
