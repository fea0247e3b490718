"""How it is started, and how it ends."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from services.launch import descendants
from tests.e2e.running import ROOT, eventually, free_port, service

pytestmark = pytest.mark.e2e

SERVE = [sys.executable, "-m", "ray.serve.scripts", "run"]


@pytest.mark.parametrize("form", ["services.app", "services.app:app", "services:app", "yaml"])
def test_every_import_form_starts_the_service(form: str, tmp_path: Path) -> None:
    command, settings = [*SERVE, form], {}
    if form == "yaml":
        port = free_port()
        config = tmp_path / "serve.yaml"
        config.write_text(
            f"http_options: {{host: 127.0.0.1, port: {port}}}\n"
            "applications:\n"
            "- name: default\n  route_prefix: /\n  import_path: services.app\n"
            "  args: {feed: {source: none}, model: {shards: 1}}\n"
        )
        command, settings = [*SERVE, str(config)], {"GROUNDSWELL_HTTP__PORT": str(port)}
    with service(tmp_path / "data", command, GROUNDSWELL_FEED__SOURCE="none", **settings) as started:
        started.port = int(settings.get("GROUNDSWELL_HTTP__PORT", started.port))
        started.wait_until_ready()
        assert [model.id for model in started.client().models.list()] == ["groundswell"]


def test_a_misspelt_setting_fails_at_once_and_names_the_right_one(tmp_path: Path) -> None:
    command = [*SERVE, "services.app", "model.shard=1"]
    environment = {**os.environ, "RAY_ADDRESS": "local", "GROUNDSWELL_DATA_DIR": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "did you mean model.shards" in done.stderr
    assert "Started a local Ray instance" not in done.stderr


def test_groundswell_run_says_what_is_there_and_ctrl_c_ends_every_process(tmp_path: Path) -> None:
    with service(tmp_path / "data", [sys.executable, "-m", "services.cli", "run"]) as started:
        started.wait_until_ready()
        said = eventually(lambda: "Ctrl-C" in started.log.read_text() and started.log.read_text(), 30)
        for part in (f"{started.url}/", f"{started.url}/v1", started.brokers, "topic posts", "stand-in", "curl -N"):
            assert part in said
        assert started.status()["posts"] > 1000, "the sample feed is searchable when the service is ready"
        started.process.send_signal(signal.SIGINT)
        assert started.process.wait(60) == 130
        eventually(lambda: not set(descendants()) - set(started.others), 10, "every process has ended")
        assert "Traceback" not in started.log.read_text()


def test_a_taken_port_is_one_clear_line(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        environment = {**os.environ, "GROUNDSWELL_HTTP__PORT": str(port)}
        command = [sys.executable, "-m", "services.cli", "run"]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 1
    lines = done.stderr.strip().splitlines()
    assert lines == [
        f"cannot listen on 127.0.0.1:{port}: Address already in use. Set GROUNDSWELL_HTTP__PORT to a free port."
    ]
