import asyncio
import json
import logging
from typing import Any

import httpx
import pytest
from openai.types import Model
from openai.types.chat import ChatCompletion
from scripted_chat import KEY, ONE, TEXT, TWO, ScriptedStatus, ask, client, scripted_app
from starlette.routing import Route
from test_body import MALFORMED

from services.events import Delta, Done, Failed, Marked, Notice, Sources

CHAT = "/v1/chat/completions"
BEARER = {"authorization": f"Bearer {KEY}"}


def is_error(response: httpx.Response, status: int, code: str | None) -> bool:
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"} and isinstance(error["message"], str)
    return (response.status_code, error["code"]) == (status, code)


async def test_the_whole_answer():
    app, chat = scripted_app()
    async with client(app) as http:
        response = await http.post(CHAT, json=ask())
    assert response.status_code == 200 and response.headers["content-type"] == "application/json"
    body = response.json()
    ChatCompletion.model_validate(body, strict=True)
    choice = body["choices"][0]
    assert choice["finish_reason"] == "stop" and choice["logprobs"] is None and choice["index"] == 0
    assert choice["message"]["content"] == TEXT and choice["message"]["refusal"] is None
    (note,) = choice["message"]["annotations"]
    place = note["url_citation"]
    assert TEXT[place["start_index"] : place["end_index"]] == place["marker"] == "[1]" and place["url"] == ONE.url
    assert body["citations"] == [ONE.url, TWO.url]
    assert [result["number"] for result in body["search_results"]] == [1, 2]
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + body["usage"]["completion_tokens"] == 38
    assert body["groundswell"]["newest_age_ms"] == 42_000 and body["groundswell"]["searched_posts"] == 1204
    assert chat.requests[0].id == body["id"]


async def test_whole_and_streamed_say_the_same():
    app, _ = scripted_app()
    async with client(app) as http:
        whole = (await http.post(CHAT, json=ask())).json()
        lines = (await http.post(CHAT, json=ask(stream=True), headers={"accept": "application/json"})).text.split("\n")
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    pieces = [chunk["choices"][0]["delta"] for chunk in chunks]
    message = whole["choices"][0]["message"]
    assert "".join(piece.get("content", "") for piece in pieces) == message["content"]
    assert [note for piece in pieces for note in piece.get("annotations", [])] == message["annotations"]
    assert chunks[-1]["citations"] == whole["citations"]


async def test_the_whole_answer_drops_the_marks_of_a_removed_post_and_tells_notices():
    marks = (Marked(ONE, 2, 5), Marked(TWO, 8, 11))
    notice = Notice("post_removed", "No longer available: [1].")
    done = Done("length", 3, 2, (TWO,), removed=(1,))
    app, _ = scripted_app([Sources((ONE, TWO), 1), Delta("a [1] b [2]", marks), notice, done])
    async with client(app) as http:
        body = (await http.post(CHAT, json=ask())).json()
    assert [note["url_citation"]["marker"] for note in body["choices"][0]["message"]["annotations"]] == ["[2]"]
    assert body["citations"] == ["", TWO.url] and body["groundswell"]["removed"] == [1]
    assert body["groundswell"]["notices"] == [{"code": "post_removed", "message": notice.message}]
    assert body["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("words", [[], [Delta("half an ans")]])
async def test_a_failed_whole_answer_has_its_status(words: list[Any]):
    app, _ = scripted_app([*words, Failed(429, "requests", "rate_limit_exceeded", "slow down", retry_after_s=7)])
    async with client(app) as http:
        response = await http.post(CHAT, json=ask())
    assert is_error(response, 429, "rate_limit_exceeded") and response.headers["retry-after"] == "7"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_bug_in_the_chat_is_a_500_without_internals(stream: bool, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    app, _ = scripted_app([RuntimeError("my secret is 4711")])
    async with client(app) as http:
        response = await http.post(CHAT, json=ask("my name is Zoe", stream=stream))
    assert is_error(response, 500, "internal_error")
    assert "4711" not in response.text + caplog.text and "Zoe" not in caplog.text and "RuntimeError" in caplog.text


async def test_a_bug_in_a_handler_is_a_500_with_its_request_id_in_the_log(caplog: pytest.LogCaptureFixture):
    secret = "my secret is 4711"

    class Broken(ScriptedStatus):
        async def status(self) -> dict[str, Any]:
            raise RuntimeError(secret)

    app, _ = scripted_app(status=Broken())
    async with client(app) as http:
        response = await http.get("/status", headers={"x-request-id": "trace-7"})
    assert is_error(response, 500, "internal_error") and response.headers["x-request-id"] == "trace-7"
    assert "trace-7" in caplog.text and "RuntimeError" in caplog.text and "4711" not in caplog.text


@pytest.mark.parametrize("name", MALFORMED)
async def test_malformed_requests_are_told_why_and_the_next_one_is_answered(name: str):
    app, chat = scripted_app()
    async with client(app) as http:
        response = await http.post(CHAT, content=MALFORMED[name][0], headers={"content-type": "application/json"})
        assert is_error(response, 400, "invalid_json")
        assert chat.requests == []
        assert (await http.post(CHAT, json=ask())).status_code == 200


async def test_limits_on_body_headers_and_messages():
    app, _ = scripted_app(body_bytes=1000, header_bytes=1000, messages=2)
    async with client(app) as http:
        assert is_error(await http.post(CHAT, json=ask("x" * 1000)), 413, "request_too_large")
        assert is_error(await http.get("/health", headers={"x-long": "y" * 1000}), 431, "headers_too_large")
        many = ask() | {"messages": [{"role": "user", "content": "a"}] * 3}
        assert is_error(await http.post(CHAT, json=many), 400, "array_above_max_length")


async def test_other_paths_and_methods_are_refused_in_json():
    app, _ = scripted_app()
    async with client(app) as http:
        assert is_error(await http.get("/nowhere"), 404, "unknown_url")
        assert is_error(await http.get("/status/"), 404, "unknown_url"), "no redirect"
        wrong = await http.get(CHAT)
        assert is_error(wrong, 405, "method_not_allowed") and wrong.headers["allow"] == "POST"
        assert "POST /v1/completions" in (await http.post("/v1/completions", json={})).json()["error"]["message"]
        assert "chat/completions" in (await http.post("/v1/responses", json={})).json()["error"]["message"]
        assert is_error(await http.post(CHAT, content=b"a=b", headers={"content-type": "text/plain"}), 415, None)


async def test_models():
    app, _ = scripted_app()
    async with client(app) as http:
        listed = (await http.get("/v1/models")).json()
        assert listed["object"] == "list" and (await http.get("/v1/models/")).json() == listed
        (model,) = listed["data"]
        Model.model_validate(model, strict=True)
        assert model["id"] == "groundswell" and model["context_length"] == 2048
        assert (await http.get("/v1/models/groundswell")).json() == model
        assert (await http.get("/v1/models/groundswell/")).json() == model
        assert (await http.head("/v1/models")).status_code == 200
        for other in ("gpt-4o", "meta/llama-3"):
            assert is_error(await http.get(f"/v1/models/{other}"), 404, "model_not_found")
        assert (await http.post(f"{CHAT}/", json=ask())).status_code == 200


async def test_probes():
    app, _ = scripted_app(status=ScriptedStatus(["the index does not answer"]))
    async with client(app) as http:
        assert (await http.get("/health")).json() == {"status": "ok"}
        response = await http.get("/ready")
        assert response.status_code == 503 and response.json()["reasons"] == ["the index does not answer"]
    app, _ = scripted_app()
    async with client(app) as http:
        assert (await http.get("/ready")).status_code == 200
    app, _ = scripted_app(status=ScriptedStatus(delay_s=3600), probe_s=0.01)
    async with client(app) as http:
        response = await http.get("/ready")
        assert response.status_code == 503 and "no answer" in response.json()["reasons"][0]


async def test_the_status_line_counts():
    app, _ = scripted_app()
    async with client(app) as http:
        assert (await http.get("/status")).json() == {"posts": 1204, "newest_age_ms": 900, "lag": 0}


@pytest.mark.parametrize("given", ["trace-7", "a/b:c=+._-"])
async def test_a_request_id_is_echoed(given: str):
    app, _ = scripted_app()
    async with client(app) as http:
        assert (await http.get("/health", headers={"x-request-id": given})).headers.get_list("x-request-id") == [given]


@pytest.mark.parametrize("given", [None, "", "a b", "x" * 129, '"><script>'])
async def test_a_request_id_is_made_where_none_can_be_used(given: str | None):
    app, _ = scripted_app()
    async with client(app) as http:
        headers = {} if given is None else {"x-request-id": given}
        ids = [(await http.get("/nowhere", headers=headers)).headers["x-request-id"] for _ in range(2)]
    assert ids[0] != ids[1] and all(id.startswith("req_") for id in ids)


async def test_logs_hold_ids_and_no_words(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG, logger="services")
    app, chat = scripted_app(keys=True)
    async with client(app, headers=BEARER) as http:
        await http.post(CHAT, json=ask("my name is Zoe", zoe=1), headers={"x-request-id": "trace-7"})
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("services")]
    assert any("trace-7" in line and chat.requests[0].id in line and "unknown fields=1" in line for line in lines)
    assert not any(word in line for line in lines for word in ("Zoe", "zoe", KEY, "bridge"))


def paths(app: Any) -> list[tuple[str, str]]:
    found = []
    for route in app.routes:
        assert isinstance(route, Route), "a mount would need its own walk"
        found += [(method, route.path.replace("{id:path}", "groundswell")) for method in sorted(route.methods or ())]
    return found


@pytest.mark.parametrize("header", [{}, {"authorization": "Bearer sk-wrong"}, {"authorization": f"Basic {KEY}"}])
async def test_every_route_but_the_page_and_the_probes_asks_for_a_key(header: dict[str, str]):
    app, chat = scripted_app(keys=True)
    open_without = set()
    async with client(app, headers=header) as http:
        for method, path in [*paths(app), ("GET", "/nowhere"), ("OPTIONS", CHAT), ("DELETE", "/"), ("GET", "/docs")]:
            response = await http.request(method, path)
            if response.status_code == 401:
                assert method == "HEAD" or is_error(response, 401, "invalid_api_key")
                assert response.headers["www-authenticate"] == "Bearer" and "sk-wrong" not in response.text
            else:
                assert method in ("GET", "HEAD"), path
                open_without.add(path)
    web = {"/app.js", "/answer.js", "/stream.js", "/style.css", "/icon.svg"}
    assert open_without == {"/", "/health", "/ready", *web}
    assert chat.requests == []


async def test_a_key_opens_every_route():
    app, _ = scripted_app(keys=True)
    async with client(app, headers={"Authorization": f"bearer {KEY}"}) as http:
        for method, path in paths(app):
            assert (await http.request(method, path, json=ask())).status_code not in (401, 403, 405), path


async def test_tricks_with_paths_do_not_open_a_route():
    app, _ = scripted_app(keys=True)
    async with client(app) as http:
        for path in (
            "/health/../status",
            "//status",
            "/%2e/status",
            "/health/",
            "/status?/health",
            "/ready%2f..%2fstatus",
        ):
            assert (await http.get(f"http://localhost:8000{path}")).status_code == 401, path


async def test_a_prefix_in_front_does_not_open_or_close_anything():
    app, _ = scripted_app(keys=True)
    transport = httpx.ASGITransport(app=app, root_path="/live")
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        assert (await http.get("/live/health")).status_code == 200
        assert (await http.get("/live/status")).status_code == 401


PREFLIGHT = {
    "origin": "https://app.example",
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization, content-type, x-stainless-lang, x-stainless-new-one",
}


async def test_browsers_may_call_from_anywhere_when_keys_are_set():
    app, _ = scripted_app(keys=True)
    async with client(app) as http:
        response = await http.options(CHAT, headers=PREFLIGHT)
        assert response.status_code == 204 and response.headers["access-control-allow-origin"] == "*"
        assert response.headers["access-control-allow-headers"] == PREFLIGHT["access-control-request-headers"]
        assert "POST" in response.headers["access-control-allow-methods"]
        for answered in (
            await http.post(CHAT, json=ask(), headers={"origin": "https://app.example"}),
            await http.post(CHAT, json=ask(), headers={"origin": "https://app.example", **BEARER}),
            await http.post(CHAT, json={}, headers={"origin": "https://app.example", **BEARER}),
        ):
            assert answered.headers["access-control-allow-origin"] == "*"
            assert "access-control-allow-credentials" not in answered.headers
            exposed = answered.headers["access-control-expose-headers"]
            assert "x-request-id" in exposed and "x-ratelimit-remaining-tokens" in exposed
        assert [answered.status_code] == [400]


async def test_without_keys_a_browser_page_from_elsewhere_gets_nothing():
    app, chat = scripted_app()
    async with client(app) as http:
        for origin in (
            "https://evil.example",
            "null",
            "http://localhost.evil.example",
            "http://[::1",
            "file://localhost",
        ):
            sneaky = {"origin": origin, "content-type": "application/json"}
            response = await http.post(CHAT, content=json.dumps(ask()), headers=sneaky)
            assert is_error(response, 403, "origin_not_allowed")
            assert "access-control-allow-origin" not in response.headers
            assert (await http.options(CHAT, headers={**PREFLIGHT, "origin": origin})).status_code == 403
        for origin in ("http://localhost:8000", "http://127.0.0.1:3000", "http://[::1]:5173", "https://x.localhost"):
            response = await http.post(CHAT, json=ask(), headers={"origin": origin})
            assert response.status_code == 200 and response.headers["access-control-allow-origin"] == origin
            assert response.headers["vary"] == "Origin"
    assert len(chat.requests) == 4


async def test_without_keys_only_a_loopback_host_is_answered():
    """DNS rebinding: evil.example resolves to 127.0.0.1, and the browser calls it same-origin."""
    app, chat = scripted_app()
    async with client(app) as http:
        for host in (
            "evil.example",
            "evil.example:8000",
            "192.168.1.2:8000",
            "0.0.0.0:8000",
            "localhost.evil.example",
            "",
        ):
            response = await http.post(CHAT, json=ask(), headers={"host": host})
            assert is_error(response, 403, "host_not_allowed"), host
        for host in ("localhost", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST:80"):
            assert (await http.get("/health", headers={"host": host})).status_code == 200, host
    assert chat.requests == []


async def test_without_keys_only_this_machine_is_answered():
    app, _ = scripted_app()
    for peer, status in (("203.0.113.9", 403), ("127.0.0.1", 200), ("::1", 200)):
        transport = httpx.ASGITransport(app=app, client=(peer, 5000))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            assert (await http.get("/status")).status_code == status
    app, _ = scripted_app(keys=True)
    transport = httpx.ASGITransport(app=app, client=("203.0.113.9", 5000))
    async with httpx.AsyncClient(transport=transport, base_url="http://groundswell.example") as http:
        assert (await http.get("/status", headers=BEARER)).status_code == 200


async def test_websockets_are_refused():
    app, _ = scripted_app(keys=True)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    await app({"type": "websocket", "path": "/", "headers": []}, receive, send)
    assert [message["type"] for message in sent] == ["websocket.close"]


async def test_many_at_once_do_not_mix():
    app, chat = scripted_app()
    async with client(app) as http:
        answers = await asyncio.gather(*(http.post(CHAT, json=ask(f"q{n}", stream=bool(n % 2))) for n in range(32)))
    assert all(answer.status_code == 200 for answer in answers)
    assert len({request.id for request in chat.requests}) == 32
