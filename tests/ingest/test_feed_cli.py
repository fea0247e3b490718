"""`groundswell dlq` and `groundswell publish SOURCE`, on the real embedded broker."""

import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from test_transfer import arrived
from typer.testing import CliRunner, Result
from websockets.asyncio.server import ServerConnection, serve

from ingest.cursor import CursorFile
from ingest.dead_letters import DeadLetterWriter
from ingest.feed_batch import FeedRecord
from ingest.kafka import ensure_topic
from ingest.outbox import Transferred
from ingest.post import Post
from ingest.publish import Publisher
from ingest.sources.arrival import SourceStats
from services.feed_cli import _status_line, dlq_cli

PUBLISH = "import sys; from services.feed_cli import publish_source; from services.settings import Settings; "
SECRET = b"what somebody wrote"


def dlq(*words: object) -> Result:
    return CliRunner().invoke(dlq_cli, [*map(str, words)])


def letter(topic: str, offset: int, **rest: Any) -> FeedRecord:
    return FeedRecord(topic, 2, offset, 1_783_175_888_090, b"key", SECRET, **rest)


@pytest.fixture
def letters(brokers: str, topic: str) -> list[object]:
    """Three of them, the last after a replay; the options that point at them."""

    async def write() -> None:
        await ensure_topic([brokers], topic)
        writer = DeadLetterWriter(brokers, topic)
        await writer.add(letter(topic, 7, headers=(("x", b"\xff"),)), "json", "")
        await writer.add(letter(topic, 8), "field", "author.id: string_type")
        await writer.add(letter(topic, 9, headers=(("replays", b"1"),)), "json", "")
        await writer.close()

    asyncio.run(write())
    return ["--brokers", brokers, "--topic", topic]


def test_they_are_listed_without_what_they_say(letters: list[object]) -> None:
    done = dlq("list", *letters)
    assert done.exit_code == 0, done.output
    assert [line.split("  ")[1:] for line in done.stdout.splitlines()] == [
        ["2:7", "json", "-", "19 bytes"],
        ["2:8", "field", "author.id: string_type", "19 bytes"],
        ["2:9", "json", "-", "19 bytes", "replayed 1 times"],
    ]
    assert SECRET.decode() not in done.output
    assert done.stderr == "3 records were set aside: 2 json, 1 field\n"
    of_reason = dlq("list", "--reason", "json", "--limit", 1, *letters)
    assert [line.split("  ")[1] for line in of_reason.stdout.splitlines()] == ["2:9"]
    later = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
    assert dlq("list", "--since", later, *letters).output == "0 records were set aside\n"


def test_json_tells_everything(letters: list[object]) -> None:
    first = json.loads(dlq("list", "--json", *letters).stdout.splitlines()[0])
    assert first.pop("set_aside_at").startswith("20")
    assert first == {
        "reason": "json", "detail": "", "bytes": 19, "replays": 0, "is_whole": True,
        "topic": letters[3], "partition": 2, "offset": 7, "timestamp_ms": 1_783_175_888_090,
        "key": "key", "value": SECRET.decode(), "headers": [["x", "\\xff"]],
    }  # fmt: skip


def test_a_replay_sends_each_once(letters: list[object]) -> None:
    assert json.loads(dlq("replay", "--dry-run", *letters).stdout) == {"would_send": 2}
    assert json.loads(dlq("replay", "--reason", "json", *letters).stdout) == {"sent": 1, "cut": 0}
    assert json.loads(dlq("replay", "--reason", "json", *letters).stdout) == {"sent": 0, "cut": 0}
    assert json.loads(dlq("replay", *letters).stdout) == {"sent": 1, "cut": 0}
    assert json.loads(dlq("replay", "--again", *letters).stdout) == {"sent": 1, "cut": 0}
    assert dlq("list", *letters).stdout == ""


def test_one_can_be_sent_with_another_value(letters: list[object], tmp_path: Path) -> None:
    mended = {"id": "key", "text": "mended", "created_at": "2026-07-04T10:00:00Z"}
    file = tmp_path / "mended.json"
    file.write_text(json.dumps(mended))
    done = dlq("replay", "--offset", "2:9", "--value", file, *letters)
    assert json.loads(done.stdout) == {"sent": 1, "cut": 0}
    (record,) = asyncio.run(arrived(str(letters[1]), str(letters[3]), 1))
    assert isinstance(record, Post) and record.text == "mended"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["replay", "--offset", "two"], "--offset two: write PARTITION:OFFSET, as in the log"),
        (["replay", "--value", "x.json"], "--value goes with exactly one --offset"),
        (["list", "--since", "yesterday"], "--since yesterday: no RFC 3339 time; write 2026-07-04T10:00:00Z"),
    ],
)
def test_wrong_use_is_told(words: list[str], said: str) -> None:
    done = dlq(*words)
    assert (done.exit_code, done.stderr, done.stdout) == (2, f"{said}\n", "")


def test_a_broker_that_is_away_is_one_line(port: int) -> None:
    for word in ("list", "replay"):
        done = dlq(word, "--brokers", f"127.0.0.1:{port}")
        assert done.exit_code == 1
        assert done.stderr.startswith(f"no acknowledgement from the Kafka broker at 127.0.0.1:{port}")


def test_a_value_that_is_not_there_is_one_line(letters: list[object], tmp_path: Path) -> None:
    done = dlq("replay", "--offset", 7, "--value", tmp_path / "none.json", *letters)
    assert done.exit_code == 1 and "No such file" in done.stderr and len(done.stderr.splitlines()) == 1


def test_the_status_line() -> None:
    stats, counts = SourceStats(gaps=1, lag_ms=1234, fault=""), Transferred(5, 2, fault="")
    stats.malformed["json"], counts.refused["created_at"] = 2, 1
    line = "bluesky: 5 posts, 2 removals, 3.1/s, lag 1.2 s, 1 gaps, 3 malformed"
    assert _status_line("bluesky", stats, counts, 3.14) == line
    stats.fault, counts.fault = "connecting", "away"
    assert _status_line("bluesky", stats, counts, 3.14) == f"{line}; waits for bluesky: connecting; broker: away"


async def test_a_network_is_published_until_it_is_interrupted(brokers: str, topic: str, tmp_path: Path) -> None:
    event = {
        "did": "did:plc:x", "time_us": time.time_ns() // 1000, "kind": "commit",
        "commit": {
            "rev": "3mptbypcq372f", "operation": "create", "collection": "app.bsky.feed.post", "rkey": "3k", "cid": "c",
            "record": {
                "$type": "app.bsky.feed.post", "text": "hello",
                "createdAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            },
        },
    }  # fmt: skip

    async def stream(connection: ServerConnection) -> None:
        await connection.send(json.dumps(event))
        await connection.wait_closed()

    async with Publisher(brokers, topic), serve(stream, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        environment = {name: content for name, content in os.environ.items() if not name.startswith("GROUNDSWELL_")}
        environment |= {
            "GROUNDSWELL_DATA_DIR": str(tmp_path),
            "GROUNDSWELL_BLUESKY__URL": f"ws://127.0.0.1:{port}/subscribe",
        }
        arguments = f"sys.exit(publish_source('bluesky', Settings(), {brokers!r}, {topic!r}))"
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PUBLISH + arguments, env=environment, cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            (record,) = await arrived(brokers, topic, 1)
            assert isinstance(record, Post) and record.id == "bluesky:at://did:plc:x/app.bsky.feed.post/3k"
            await asyncio.sleep(0.2)  # for the acknowledgement to reach it
            child.send_signal(signal.SIGINT)
            out, errors = await asyncio.wait_for(child.communicate(), 20)
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
    assert (child.returncode, errors) == (130, b"")
    summary = json.loads(out)
    assert Counter(summary["malformed"]) == Counter() and (summary["posts"], summary["events"]) == (1, 1)
    assert CursorFile(tmp_path / "cursors" / "bluesky").load() is not None


@pytest.mark.parametrize(
    ("name", "environment", "said"),
    [("bluesky", {"BLUESKY__URL": "http://x"}, "ws://"), ("usenet", {}, "there is no source 'usenet'")],
)
def test_a_source_that_cannot_be_is_one_line(
    name: str,
    environment: dict[str, str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from services.feed_cli import publish_source
    from services.settings import Settings

    monkeypatch.setenv("GROUNDSWELL_DATA_DIR", str(tmp_path))
    for setting, content in environment.items():
        monkeypatch.setenv(f"GROUNDSWELL_{setting}", content)
    assert publish_source(name, Settings()) == 2
    assert said in capsys.readouterr().err
