"""The engine's figures, in parts: beside its peers, upcycled beside dense, over two shards, with prompt look-up, one
layer of experts, and a rank that dies.

    python -m bench.engine [--quick] [--only peers|upcycled|shards|lookup|moe|failover] [--peers FOLDER]

`make peers` builds the environment with llama.cpp; without it that peer is left out.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bench.figures import hardware, say
from bench.line_up import LineUp
from bench.lookup import measure_lookup
from bench.moe import measure_layer
from bench.peers import measure_peers, measure_upcycled
from bench.shards import measure_shards
from services.settings import Settings


def measure_failover(line_up: LineUp, quick: bool) -> None:
    """In a process of its own: Ray reads how it authenticates when it is imported, and writes where figures go."""
    command = [sys.executable, "-m", "bench.failover", str(line_up.model), *["--quick"] * quick]
    environment = os.environ | {"RAY_AUTH_MODE": "disabled"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", file=sys.stdout if line.startswith("{") else sys.stderr, flush=True)
    if process.returncode:
        raise SystemExit("bench.failover failed")


PARTS: dict[str, Callable[[LineUp, bool], None]] = {
    "peers": measure_peers,
    "upcycled": measure_upcycled,
    "shards": measure_shards,
    "lookup": measure_lookup,
    "moe": lambda _, quick: measure_layer(quick),
    "failover": measure_failover,
}


def main() -> None:
    settings = Settings()
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=list(PARTS))
    parser.add_argument("--peers", type=Path, default=settings.data_dir / "peers")
    given = parser.parse_args()
    say(f"on {hardware()}")
    with LineUp(settings.model_file, given.peers) as line_up:
        for name, measure in PARTS.items():
            if given.only in (None, name):
                measure(line_up, given.quick)


if __name__ == "__main__":
    main()
