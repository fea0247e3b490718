"""`groundswell run`: starts `serve run services.app` on a private local Ray, says when it is ready, ends it all.

Ray's daemons detach from their parent. This process adopts orphans (prctl(2), PR_SET_CHILD_SUBREAPER), so that whatever
it has started, at whatever remove, stays below it, is found, and is ended.
"""

import contextlib
import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import httpx

from services.settings import Settings

PR_SET_CHILD_SUBREAPER = 36
START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 20.0
GRACE_S = 5.0
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Of what a deployment raised in its constructor, Serve logs the traceback.
_OUR_FAULT = re.compile(r"(?:\([^)]*\) )?(?:ingest|safety|services|model_runtime)\.[\w.]+: (.*)")
_EXCEPTION = re.compile(r"(?:\([^)]*\) )?[\w.]*Error\b")


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
    adopt_orphans()
    log_path = settings.data_dir / "logs" / "serve.log"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    # Ray's sockets live in its temp folder, and a unix socket's path has at most 107 bytes.
    with (
        tempfile.TemporaryDirectory(prefix="gsw", dir="/tmp", ignore_cleanup_errors=True) as ray_dir,
        log_path.open("wb") as log,
        _signals_as_interrupt(),
    ):
        command = [sys.executable, "-m", "ray.serve.scripts", "run", "services.app"]
        service = subprocess.Popen(
            command, env=_environment(environment, settings, ray_dir), stdout=log, stderr=log, start_new_session=True
        )
        try:
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
            for number in SIGNALS:  # a second Ctrl-C must not leave anything behind
                signal.signal(number, signal.SIG_IGN)
            stop(service)


def _environment(inherited: Mapping[str, str], settings: Settings, ray_dir: str) -> dict[str, str]:
    return {
        **inherited,
        "RAY_ADDRESS": "local",
        "RAY_TMPDIR": ray_dir,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_COLOR_PREFIX": "0",
        "GROUNDSWELL_DATA_DIR": str(settings.data_dir),
    }


def _wait_until_ready(
    service: subprocess.Popen[bytes], settings: Settings, log_path: Path, say: Callable[[str], None]
) -> None:
    url, shown, started = f"{settings.http.base_url}/ready", "", time.monotonic()
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
    """The last fault in the log that is one of ours, else the last line that names an exception, else the last line."""
    lines = [line.strip() for line in log_path.read_text(errors="replace").splitlines() if line.strip()]
    ours = [found[1] for line in lines if (found := _OUR_FAULT.match(line))]
    named = [line for line in lines if _EXCEPTION.match(line) or line.startswith("Value error,")]
    return (ours or named or lines or ["no output"])[-1]


def _ready_lines(settings: Settings) -> Iterator[str]:
    base = settings.http.base_url
    yield f"page    {base}/"
    yield f'API     {base}/v1   (any OpenAI client; model "groundswell")'
    yield f"broker  {settings.brokers}   topic {settings.feed.topic}   (any Kafka client)"
    for stand_in in settings.stand_ins():
        yield f"stand-in in use: {stand_in}"
    key = "" if settings.gateway.api_keys_file is None else " -H 'authorization: Bearer YOUR_KEY'"
    body = '{"model": "groundswell", "stream": true, "messages": [{"role": "user", "content": "Is the bridge open?"}]}'
    yield f"try     curl -N {base}/v1/chat/completions -H 'content-type: application/json'{key} -d '{body}'"
    yield "Ctrl-C stops everything."


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


def stop(service: subprocess.Popen[bytes]) -> None:
    """SIGINT lets Serve and Ray shut down in order; whatever is left below this process after that is killed."""
    if service.poll() is None:
        service.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            service.wait(STOP_TIMEOUT_S)
    end_descendants()
    with contextlib.suppress(subprocess.TimeoutExpired):
        service.wait(GRACE_S)


def end_descendants(but: Collection[int] = ()) -> None:
    """Waits a little for every process below this one to end, then kills those that have not. `but`: let these be."""
    patience = time.monotonic() + GRACE_S
    while (left := set(descendants()) - set(but)) and time.monotonic() < patience + GRACE_S:
        for pid in left if time.monotonic() > patience else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


def adopt_orphans() -> None:
    """From now on this process is the parent of every process below it whose own parent ends. Linux only."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise LaunchError(f"cannot watch over child processes: {os.strerror(ctypes.get_errno())}")


def descendants() -> list[int]:
    """Every process below this one that has not ended."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                children.setdefault(int(parent), []).append(int(folder.name))
    found, below = [], [os.getpid()]
    while below:
        below = [child for pid in below for child in children.get(pid, [])]
        found += below
    return found
