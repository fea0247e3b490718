"""`groundswell run`: starts `serve run services.app` on a private local Ray, says when it is ready, ends it all.

Every process it starts carries one marker in its environment. Ray's daemons detach from their parent; by the marker
they are found and ended whatever became of the processes between.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import httpx

from services.settings import Settings

MARKER = "GROUNDSWELLRUN"  # not a setting: no underscore after the name
START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 20.0
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class LaunchError(RuntimeError):
    """One line that says what failed and what to do."""


def check_ports(settings: Settings) -> None:
    """Raises LaunchError when an address that the service needs is taken."""
    wanted = [(settings.http.host, settings.http.port, "GROUNDSWELL_HTTP__PORT")]
    if settings.has_embedded_broker:
        wanted.append(("127.0.0.1", settings.feed.broker_port, "GROUNDSWELL_FEED__BROKER_PORT"))
    for host, port, setting in wanted:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                reason = error.strerror or str(error)
                raise LaunchError(f"cannot listen on {host}:{port}: {reason}. Set {setting} to a free port.") from error


def run(settings: Settings, environment: Mapping[str, str], say: Callable[[str], None]) -> int:
    """Runs the service until it ends or is interrupted. Returns the exit code."""
    check_ports(settings)
    marker = uuid.uuid4().hex
    log_path = settings.data_dir / "logs" / "serve.log"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    # Ray's sockets live in its temp folder, and a unix socket's path has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="gsw", dir="/tmp", ignore_cleanup_errors=True) as ray_dir:
        with log_path.open("wb") as log:
            command = [sys.executable, "-m", "ray.serve.scripts", "run", "services.app"]
            service = subprocess.Popen(
                command,
                env=_environment(environment, settings, marker, ray_dir),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            with _signals_as_interrupt():
                _wait_until_ready(service, settings, log_path, say)
                for line in _ready_lines(settings):
                    say(line)
                code = service.wait()
                say(f"the service ended with code {code}; its log is {log_path}")
                return code or 1
        except KeyboardInterrupt:
            say("stopping ...")
            return 130
        finally:
            _stop(service, marker)


def _environment(inherited: Mapping[str, str], settings: Settings, marker: str, ray_dir: str) -> dict[str, str]:
    return {
        **inherited,
        MARKER: marker,
        "RAY_ADDRESS": "local",
        "RAY_TMPDIR": ray_dir,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_COLOR_PREFIX": "0",
        "GROUNDSWELL_DATA_DIR": str(settings.data_dir),
    }


def _wait_until_ready(
    service: subprocess.Popen[bytes], settings: Settings, log_path: Path, say: Callable[[str], None]
) -> None:
    url, shown, started = f"{_base_url(settings)}/ready", "", time.monotonic()
    while time.monotonic() - started < START_TIMEOUT_S:
        if service.poll() is not None:
            raise LaunchError(f"the service ended while starting: {_last_error(log_path)} (log: {log_path})")
        state = _readiness(url)
        if state == "ready":
            say(f"ready after {time.monotonic() - started:.0f} s")
            return
        if state != shown:
            shown = state
            say(f"  {time.monotonic() - started:3.0f} s  {state}")
        time.sleep(0.25)
    raise LaunchError(f"not ready after {START_TIMEOUT_S:.0f} s: {shown} (log: {log_path})")


def _readiness(url: str) -> str:
    try:
        answer = httpx.get(url, timeout=5.0, trust_env=False)
    except httpx.HTTPError:
        return "starting Ray"
    if answer.status_code == 200:
        return "ready"
    try:
        return "waiting for " + ", ".join(answer.json()["reasons"])
    except (ValueError, KeyError, TypeError):
        return "starting the deployments"


def _last_error(log_path: Path) -> str:
    """The last line of the log that names an exception, else the last line."""
    lines = [line.strip() for line in log_path.read_text(errors="replace").splitlines() if line.strip()]
    named = [line for line in lines if "Error" in line.split(":", 1)[0] or line.startswith("Value error,")]
    return (named or lines or ["no output"])[-1]


def _ready_lines(settings: Settings) -> Iterator[str]:
    base = _base_url(settings)
    yield f"page    {base}/"
    yield f'API     {base}/v1   (any OpenAI client; model "groundswell")'
    yield f"broker  {settings.brokers}   topic {settings.feed.topic}   (any Kafka client)"
    for stand_in in settings.stand_ins():
        yield f"stand-in in use: {stand_in}"
    body = '{"model": "groundswell", "stream": true, "messages": [{"role": "user", "content": "Is the bridge open?"}]}'
    yield f"try     curl -N {base}/v1/chat/completions -H 'content-type: application/json' -d '{body}'"
    yield "Ctrl-C stops everything."


def _base_url(settings: Settings) -> str:
    host = settings.http.host
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{reachable}:{settings.http.port}"


@contextlib.contextmanager
def _signals_as_interrupt() -> Iterator[None]:
    """SIGTERM and SIGHUP (a closed terminal) stop the service as Ctrl-C does, which a shell may have had ignored."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(service: subprocess.Popen[bytes], marker: str) -> None:
    """SIGINT lets Serve and Ray shut down in order; whatever is left after that is killed."""
    if service.poll() is None:
        service.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            service.wait(STOP_TIMEOUT_S)
    deadline = time.monotonic() + 5.0
    while (left := list(marked_processes(marker))) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in left:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        service.wait(5.0)


def marked_processes(marker: str) -> Iterator[int]:
    wanted = f"{MARKER}={marker}".encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)
