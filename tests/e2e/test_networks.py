"""A network's stream to a cited, hidden, restored and removed post, through the whole service, with real clients."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from aiokafka import AIOKafkaProducer
from typer.testing import CliRunner

from services.cli import cli
from tests.e2e.running import Service, eventually, service
from tests.ingest.sources.jetstream_server import JetstreamServer

pytestmark = pytest.mark.e2e
ANA, BO = "did:plc:anaanaanaanaanaanaanaana", "did:plc:bobobobobobobobobobobobo"
DIGITS = "234567abcdefghijklmnopqrstuvwxyz"


class Network:
    """A Jetstream server in a thread of its own."""

    def __init__(self, run: Callable[[Coroutine[Any, Any, Any]], Any], server: JetstreamServer) -> None:
        self._run, self._server = run, server
        self.url: str = server.url
        self._number = 0

    def say(self, did: str, rkey: str, operation: str, text: str = "", **fields: Any) -> None:
        us = self._next_us()
        commit: dict[str, Any] = {
            "rev": tid(us), "operation": operation, "collection": "app.bsky.feed.post", "rkey": rkey,
        }  # fmt: skip
        if operation != "delete":
            created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(us / 1_000_000))
            record = {"$type": "app.bsky.feed.post", "createdAt": created, "langs": ["en"], "text": text, **fields}
            commit |= {"cid": "bafyreiexample", "record": record}
        self._publish({"did": did, "time_us": us, "kind": "commit", "commit": commit})

    def account(self, did: str, active: bool, status: str = "") -> None:
        us = self._next_us()
        account = {"active": active, "did": did, "seq": us, "time": "2026-11-30T12:00:00.000Z"}
        account |= {"status": status} if status else {}
        self._publish({"did": did, "time_us": us, "kind": "account", "account": account})

    def _publish(self, event: dict[str, Any]) -> None:
        self._run(self._server.publish(event))

    def _next_us(self) -> int:
        self._number += 1
        return time.time_ns() // 1000 + self._number


def tid(us: int) -> str:
    number = us << 10
    return "".join(DIGITS[number >> shift & 31] for shift in range(60, -1, -5))


@contextmanager
def network() -> Iterator[Network]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(30)

    server = JetstreamServer()
    try:
        run(server.__aenter__())
        yield Network(run, server)
        run(server.__aexit__())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def bluesky() -> Iterator[Network]:
    with network() as server:
        yield server


@pytest.fixture(scope="module")
def running(bluesky: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("networks")
    with service(
        folder / "data",
        GROUNDSWELL_FEED__SOURCE="bluesky",
        GROUNDSWELL_BLUESKY__URL=bluesky.url,
        GROUNDSWELL_ARCHIVE__URL=str(folder / "archive"),
        GROUNDSWELL_ARCHIVE__FLUSH_S="1",
        GROUNDSWELL_INDEX__SHARDS="2",
    ) as started:
        started.wait_until_ready()
        yield started


def found(running: Service, query: str, **more: Any) -> dict[str, dict[str, Any]]:
    response = httpx.post(f"{running.url}/v1/search", json={"query": query, **more}, timeout=30, trust_env=False)
    assert response.status_code == 200, response.text
    return {match["post_id"]: match for match in response.json()["data"]}


def feed(running: Service) -> dict[str, Any]:
    body: dict[str, Any] = httpx.get(f"{running.url}/v1/feed", timeout=10, trust_env=False).json()
    return body


def at(did: str, rkey: str) -> str:
    return f"bluesky:at://{did}/app.bsky.feed.post/{rkey}"


def test_a_post_of_a_network_is_found_edited_cited_and_removed_with_a_receipt(running, bluesky):
    bluesky.say(ANA, "3aaaaaaaaaaa2", "create", "Zanzibar ferry terminal is closed until noon")
    first = at(ANA, "3aaaaaaaaaaa2")
    match = eventually(lambda: found(running, "Zanzibar ferry terminal").get(first))
    assert match["source"] == "bluesky" and match["author"]["id"] == ANA and match["lang"] == "en"
    assert match["url"] == f"https://bsky.app/profile/{ANA}/post/3aaaaaaaaaaa2" and match["clock"] == ""
    assert match["reasons"]

    bluesky.say(BO, "3bbbbbbbbbbb2", "create", "Zanzibar ferry: so no trip today?", reply={
        "root": {"cid": "bafyr", "uri": first.removeprefix("bluesky:")},
        "parent": {"cid": "bafyr", "uri": first.removeprefix("bluesky:")},
    })  # fmt: skip
    answer = at(BO, "3bbbbbbbbbbb2")
    reply = eventually(lambda: found(running, "Zanzibar ferry no trip today").get(answer))
    assert [post["post_id"] for post in reply["context"]] == [first]
    assert found(running, "Zanzibar ferry", conversation=first).keys() == {first, answer}
    assert found(running, "Zanzibar ferry", authors=[BO]).keys() == {answer}

    bluesky.say(ANA, "3aaaaaaaaaaa2", "update", "Zanzibar ferry terminal has reopened early")
    eventually(lambda: "reopened" in found(running, "Zanzibar ferry terminal")[first]["text"])
    stream = running.client().chat.completions.create(
        model="groundswell", messages=[{"role": "user", "content": "Has the Zanzibar ferry terminal reopened?"}]
    )
    assert first in [result["post_id"] for result in (stream.model_extra or {})["search_results"]]

    bluesky.say(ANA, "3aaaaaaaaaaa2", "delete")
    eventually(lambda: first not in found(running, "Zanzibar ferry terminal"))
    assert not found(running, "Zanzibar ferry no trip today").get(answer, {"context": []})["context"]
    receipt = httpx.get(f"{running.url}/v1/removals/{first}", timeout=10, trust_env=False).json()
    assert receipt["reason"] == "deleted" and receipt["removed_at"] <= receipt["purged_at"]


def test_an_account_that_is_taken_down_is_found_nowhere_until_it_is_back(running, bluesky):
    bluesky.say(ANA, "3ccccccccccc2", "create", "Kestrel observatory opens its dome tonight")
    post = at(ANA, "3ccccccccccc2")
    eventually(lambda: post in found(running, "Kestrel observatory dome"))
    bluesky.account(ANA, False, "takendown")
    eventually(lambda: post not in found(running, "Kestrel observatory dome"))
    bluesky.say(ANA, "3ddddddddddd2", "create", "Kestrel observatory dome is open now")
    bluesky.say(BO, "3eeeeeeeeeee2", "create", "Kestrel observatory dome looks great")
    eventually(lambda: at(BO, "3eeeeeeeeeee2") in found(running, "Kestrel observatory dome"))
    assert not {post, at(ANA, "3ddddddddddd2")} & found(running, "Kestrel observatory dome").keys()
    bluesky.account(ANA, True)
    eventually(lambda: {post, at(ANA, "3ddddddddddd2")} <= found(running, "Kestrel observatory dome").keys())
    bluesky.account(BO, False, "deleted")
    eventually(lambda: at(BO, "3eeeeeeeeeee2") not in found(running, "Kestrel observatory dome"))
    bluesky.account(BO, True)
    bluesky.say(ANA, "3fffffffffff2", "create", "Kestrel observatory dome has closed")
    eventually(lambda: at(ANA, "3fffffffffff2") in found(running, "Kestrel observatory dome closed"))
    assert at(BO, "3eeeeeeeeeee2") not in found(running, "Kestrel observatory dome")


def test_the_feed_tells_how_it_is(running, bluesky):
    bluesky.say(ANA, "3ggggggggggg2", "create", "Just checking in from the quay")
    eventually(lambda: (feed(running)["newest_age_ms"] or 10**9) < 20_000)
    body = eventually(lambda: (body := feed(running))["ingest"]["lag_records"] == 0 and body)
    assert body["object"] == "feed" and body["ingest"]["healthy"] and body["ingest"]["records"] > 0
    assert body["index"]["posts"] > 0 and body["source"]["fault"] == "" and body["source"]["events"] > 0


def test_what_is_no_post_is_set_aside_listed_mended_and_sent_again(running, tmp_path):
    async def produce() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=running.brokers)
        await producer.start()
        try:
            await producer.send_and_wait("posts", b'{"id": "t:poison", "text": "Osprey nest', key=b"t:poison")
        finally:
            await producer.stop()

    asyncio.run(produce())
    where = ["--brokers", running.brokers]

    def listed() -> list[Any]:
        output = CliRunner().invoke(cli, ["dlq", "list", "--json", *where]).stdout
        return [letter for line in output.splitlines() if (letter := json.loads(line))["reason"] == "json"]

    (letter,) = eventually(listed)
    mended = tmp_path / "mended.json"
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    mended.write_text(json.dumps({"id": "t:poison", "text": "Osprey nest seen on the mast", "created_at": now}))
    place = f"{letter['partition']}:{letter['offset']}"
    result = CliRunner().invoke(cli, ["dlq", "replay", "--offset", place, "--value", str(mended), *where])
    assert result.exit_code == 0, result.output
    eventually(lambda: "t:poison" in found(running, "Osprey nest on the mast"))


def test_the_archive_gives_back_what_was_not_removed(running, bluesky):
    bluesky.say(ANA, "3hhhhhhhhhhh2", "create", "Plover chicks hatched by the weir")
    bluesky.say(ANA, "3jjjjjjjjjjj2", "create", "Plover nest by the weir was a mistake")
    kept, removed = at(ANA, "3hhhhhhhhhhh2"), at(ANA, "3jjjjjjjjjjj2")
    eventually(lambda: {kept, removed} <= found(running, "Plover by the weir").keys())
    bluesky.say(ANA, "3jjjjjjjjjjj2", "delete")
    eventually(lambda: removed not in found(running, "Plover by the weir"))
    from ingest.archive import Archive

    folder = str(running.data_dir.parent / "archive")
    now_ms = time.time_ns() // 1_000_000

    def ids() -> set[str]:
        return {post.id for post in Archive(folder).restore(now_ms - 3_600_000, now_ms + 3_600_000)}

    eventually(lambda: kept in (archived := ids()) and removed not in archived, timeout_s=60)


def test_killing_the_publisher_resumes_where_it_was(running, bluesky):
    """The embedded broker dies with it: what was published is in the index; the stream goes on from its cursor."""
    import os
    import signal

    bluesky.say(ANA, "3kkkkkkkkkkk2", "create", "Heron on the lock gate")
    eventually(lambda: at(ANA, "3kkkkkkkkkkk2") in found(running, "Heron on the lock gate"))
    (pid,) = running.pids("ray::ServeReplica:default:Publisher")
    os.kill(pid, signal.SIGKILL)
    bluesky.say(ANA, "3mmmmmmmmmmm2", "create", "Heron has left the lock gate")
    eventually(lambda: at(ANA, "3mmmmmmmmmmm2") in found(running, "Heron left the lock gate"), timeout_s=90)
    assert at(ANA, "3kkkkkkkkkkk2") in found(running, "Heron on the lock gate")


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"query": 1e999}', b'{"query": "\\ud800"}', b"\xff"])
def test_a_search_that_cannot_be_read_is_a_clear_error(running, body):
    response = httpx.post(
        f"{running.url}/v1/search", content=body, headers={"content-type": "application/json"}, trust_env=False
    )
    assert response.status_code == 400 and response.json()["error"]["message"]
