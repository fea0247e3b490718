"""A whole service of one's own: free ports, temp folders, a private Ray; what it started is ended by process id."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import openai

from services.launch import adopt_orphans, descendants, end_descendants

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 180.0
T = TypeVar("T")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def eventually(look: Callable[[], T], timeout_s: float = 30.0, what: str = "") -> T:
    """What `look` gives once it is true. Fails after the time-out, which only a broken service reaches."""
    deadline = time.monotonic() + timeout_s
    while not (seen := look()):
        assert time.monotonic() < deadline, f"still not after {timeout_s:.0f} s: {what or look}"
        time.sleep(0.1)
    return seen


@dataclass
class Service:
    """A running service, as its users see it, and its processes."""

    process: subprocess.Popen[bytes]
    others: list[int]  # processes of this test run that are not this service's
    port: int
    broker_port: int
    data_dir: Path
    log: Path
    topic: str = "posts"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def brokers(self) -> str:
        return f"127.0.0.1:{self.broker_port}"

    def ray_address(self) -> str:
        """Of the service's private cluster, for ray.init."""
        (raylet,) = self.pids("--raylet_socket_name=")
        flags = Path(f"/proc/{raylet}/cmdline").read_text().split("\0")
        return next(flag.partition("=")[2] for flag in flags if flag.startswith("--gcs-address="))

    def client(self, **options: Any) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="unused", max_retries=0, **options)

    def status(self) -> dict[str, Any]:
        body: dict[str, Any] = httpx.get(f"{self.url}/status", timeout=10, trust_env=False).json()
        return body

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/ready", timeout=10, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    def pids(self, title: str) -> list[int]:
        """The processes of this service whose command line holds `title`, e.g. "ray::ShardWorker"."""
        found = []
        for pid in set(descendants()) - set(self.others):
            with suppress(OSError):
                if title.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def wait_until_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        def look() -> bool:
            assert self.process.poll() is None, f"the service ended: {self.log.read_text(errors='replace')[-3000:]}"
            return self.is_ready()

        eventually(look, timeout_s, f"ready; {self.log.read_text(errors='replace')[-1500:]}")


@contextmanager
def service(data_dir: Path, command: list[str] | None = None, **settings: str) -> Iterator[Service]:
    """Starts `serve run services.app` (or another command) and ends it."""
    port, broker_port = free_port(), free_port()
    adopt_orphans()
    others = descendants()
    data_dir.mkdir(exist_ok=True)
    ready_made = Path(os.environ.get("GROUNDSWELL_DATA_DIR", Path.home() / ".local/share/groundswell"))
    for name in ("models", "bin"):
        if not (data_dir / name).exists():
            (data_dir / name).symlink_to(ready_made / name)
    log = data_dir / "serve.log"
    with tempfile.TemporaryDirectory(prefix="gst", dir="/tmp", ignore_cleanup_errors=True) as ray_dir:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("GROUNDSWELL_")},
            "RAY_ADDRESS": "local",
            "RAY_TMPDIR": ray_dir,
            "RAY_USAGE_STATS_ENABLED": "0",
            "GROUNDSWELL_DATA_DIR": str(data_dir),
            "GROUNDSWELL_HTTP__PORT": str(port),
            "GROUNDSWELL_FEED__BROKER_PORT": str(broker_port),
            "PYTHONPATH": str(ROOT),
            **settings,
        }
        command = command or [sys.executable, "-m", "ray.serve.scripts", "run", "services.app"]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, env=environment, cwd=ROOT, stdout=output, stderr=output, start_new_session=True
            )
        try:
            yield Service(process, others, port, broker_port, data_dir, log)
        finally:
            end(process, others)


def end(process: subprocess.Popen[bytes], others: list[int]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
    end_descendants(but=others)
    process.wait(10)
