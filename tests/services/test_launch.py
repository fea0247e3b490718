"""Processes that hide from their parent are found all the same, and ended."""

import os
import signal
import subprocess
import sys
import time

import pytest

from services.launch import _last_error, adopt_orphans, descendants, end_descendants

# Starts a grandchild in a session of its own that ignores SIGTERM, tells its process id, and ends.
ESCAPE = """
import subprocess, sys
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
command = [sys.executable, "-c", code]
child = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
child.stdout.readline()
print(child.pid, flush=True)
"""


def test_an_orphan_in_its_own_session_is_still_below_us_and_can_be_ended() -> None:
    adopt_orphans()
    before = descendants()
    done = subprocess.run([sys.executable, "-c", ESCAPE], capture_output=True, text=True, check=True)
    orphan = int(done.stdout)
    assert orphan in descendants()
    os.kill(orphan, signal.SIGTERM)
    time.sleep(0.1)
    assert orphan in descendants(), "it does not end when asked"
    end_descendants(but=before)
    assert orphan not in descendants()


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (
            "(ServeController pid=1)     raise IndexUnusable(path)\n"
            "(ServeController pid=1) ingest.index_tier.IndexUnusable: index /x: move it away\n"
            "(ServeReplica:default:Index pid=2) AttributeError: no such thing\n"
            "RuntimeError: Deploying application default failed.\n"
            "(raylet) Task ServeController.graceful_shutdown failed. It will be retried. Error: The actor is dead.\n",
            "index /x: move it away",
        ),
        (
            "all well\nRuntimeError: Deploying failed.\n(raylet) Task failed. Error: dead.\n",
            "RuntimeError: Deploying failed.",
        ),
        ("Value error, there is no setting model.shard\nbye\n", "Value error, there is no setting model.shard"),
        ("only this\n", "only this"),
        ("", "no output"),
    ],
)
def test_a_service_that_ends_while_starting_says_why(tmp_path, log, said):
    path = tmp_path / "serve.log"
    path.write_text(log)
    assert _last_error(path) == said
