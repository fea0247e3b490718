"""One embedded broker for every test of this folder that needs Kafka; each test takes a topic of its own."""

import itertools
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.ingest.index_parts import quick_folder

settings.register_profile("ingest", deadline=None)  # other work may share the cores
settings.load_profile("ingest")
_NUMBERS = itertools.count()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def brokers(tansu_path: Path) -> Iterator[str]:
    """Bootstrap servers. Started without EmbeddedBroker, whose own tests are in test_broker.py."""
    address = f"127.0.0.1:{free_port()}"
    url = f"tcp://{address}"
    command = [tansu_path, "broker", "--listener-url", url, "--advertised-listener-url", url]
    process = subprocess.Popen([*command, "--storage-engine", "memory://tansu/"], stdout=subprocess.DEVNULL)
    try:
        for _ in range(500):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", int(address.rpartition(":")[2]))) == 0:
                    break
            time.sleep(0.02)
        yield address
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def index_folder() -> Iterator[Path]:
    with quick_folder() as path:
        yield path / "index"


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def topic() -> str:
    return f"posts-{next(_NUMBERS)}"
