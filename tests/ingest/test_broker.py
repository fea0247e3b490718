"""The embedded broker as a process: it answers, it says why it cannot, and it never outlives its parent."""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import pytest
from ingest_parts import until

from ingest.broker import BrokerFailed, EmbeddedBroker

PARENT = """
import asyncio, sys
from pathlib import Path
from ingest.broker import EmbeddedBroker

async def main():
    broker = EmbeddedBroker(Path(sys.argv[1]), int(sys.argv[2]))
    await broker.start()
    print(broker.pid, flush=True)
    await broker.wait()

asyncio.run(main())
"""


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_starts_answers_and_stops(tansu_path: Path, port: int, tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    broker = EmbeddedBroker(tansu_path, port, log)
    await broker.start()
    assert answers(port) and broker.returncode is None and broker.address == f"127.0.0.1:{port}"
    assert f"tcp://127.0.0.1:{port}" in log.read_text()
    await broker.stop()
    assert broker.returncode is not None and not answers(port)
    await broker.stop()


async def test_its_death_is_seen(tansu_path: Path, port: int) -> None:
    broker = EmbeddedBroker(tansu_path, port)
    await broker.start()
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGKILL)
    assert await asyncio.wait_for(broker.wait(), 10) == -signal.SIGKILL == broker.returncode


async def test_dies_with_a_parent_that_is_killed(tansu_path: Path, port: int) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(tansu_path), str(port), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    assert int(await asyncio.wait_for(parent.stdout.readline(), 30)) != parent.pid
    assert answers(port)
    parent.kill()
    await parent.wait()
    await until(lambda: not answers(port))


async def test_a_taken_port_is_named(tansu_path: Path, port: int) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with pytest.raises(BrokerFailed, match=f"port {port} on 127.0.0.1 is taken"):
            await EmbeddedBroker(tansu_path, port).start()


async def test_a_missing_binary_is_named(tmp_path: Path, port: int) -> None:
    with pytest.raises(BrokerFailed, match=r"no-broker is not there.*groundswell fetch"):
        await EmbeddedBroker(tmp_path / "no-broker", port).start()


async def test_a_binary_that_ends_at_once_is_no_broker(tmp_path: Path, port: int) -> None:
    binary = tmp_path / "broken"
    binary.write_text("#!/bin/sh\nexit 3\n")
    binary.chmod(0o755)
    with pytest.raises(BrokerFailed, match="ended at once with status 3"):
        await EmbeddedBroker(binary, port).start()


async def test_its_environment_is_ours(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tansu takes settings from the environment: LISTENER_URL, STORAGE_ENGINE, OTEL_EXPORTER_OTLP_ENDPOINT ..."""
    monkeypatch.setenv("STORAGE_ENGINE", "s3://elsewhere/")
    binary, seen = tmp_path / "prints", tmp_path / "log"
    binary.write_text("#!/bin/sh\nenv\n")
    binary.chmod(0o755)
    with pytest.raises(BrokerFailed):
        await EmbeddedBroker(binary, port, seen).start()
    assert "RUST_LOG=warn" in seen.read_text() and "STORAGE_ENGINE" not in seen.read_text()
