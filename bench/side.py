"""One side of a comparison: a process of its own that holds a model, and answers one job a line with one line.

Sides take turns, so that whatever else the machine does hits all of them. A job is {"prompts": [[id, ...], ...],
"tokens": n}: all prompts are handed over at once, n tokens are generated for each, and the answer says when each token
came and what it was. What else a job may say is the business of the side (bench/sides).
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.figures import median

ROOT = Path(__file__).resolve().parent.parent
THREADS = 2


@dataclass(frozen=True, slots=True)
class Answer:
    """`times[i]`: seconds from the start of the job to each token of stream i."""

    times: list[list[float]]
    tokens: list[list[int]]
    memory_mb: float

    @property
    def ttft_ms(self) -> float:
        return median([times[0] for times in self.times]) * 1000

    @property
    def tpot_ms(self) -> float:
        return median([(times[-1] - times[0]) / (len(times) - 1) for times in self.times]) * 1000

    @property
    def seconds(self) -> float:
        return max(times[-1] for times in self.times)

    @property
    def tokens_per_s(self) -> float:
        return sum(map(len, self.times)) / self.seconds


class SideFailed(RuntimeError):
    """The process ended, or never said that it is ready. Ends with the last lines it wrote."""


class Side:
    """Starts at once; `ready` waits until the model is loaded. Leaving the context ends the process."""

    def __init__(self, name: str, python: Path, module: str, *options: str) -> None:
        self.name = name  # what the side says of itself, once it is ready
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._process = subprocess.Popen(
            [str(python), "-m", module, *options],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": str(THREADS), "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def ready(self) -> dict[str, Any]:
        """What the side says of itself: its name with the version, and what it took to load."""
        said = self._receive()
        self.name = said["name"]
        return said

    def answer(self, prompts: Sequence[Sequence[int]], tokens: int, **more: Any) -> Answer:
        """Every stream has `tokens` tokens, unless the job says that it may end before."""
        answer = Answer(**self.ask(prompts=prompts, tokens=tokens, **more))
        lengths = {len(times) for times in answer.times} | {len(ids) for ids in answer.tokens}
        if len(answer.times) != len(prompts) or (lengths != {tokens} and not more.get("may_end")):
            raise SideFailed(f"{self.name} gave {len(answer.times)} streams of {sorted(lengths)} tokens")
        return answer

    def ask(self, **job: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return self._receive()

    def __enter__(self) -> "Side":
        return self

    def __exit__(self, *_: object) -> None:
        """The process ends when its input ends; one that stays is killed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            last = self._log.read().decode(errors="replace").splitlines()[-12:]
            raise SideFailed("\n".join([f"{self.name} ended:", *last]))
        received: dict[str, Any] = json.loads(line)
        return received


class Stopwatch:
    """Notes when each token of each stream comes."""

    def __init__(self, streams: int) -> None:
        self.times: list[list[float]] = [[] for _ in range(streams)]
        self.tokens: list[list[int]] = [[] for _ in range(streams)]
        self.started = time.perf_counter()

    def note(self, stream: int, token_id: int, now: float) -> None:
        self.times[stream].append(now - self.started)
        self.tokens[stream].append(int(token_id))


def serve(load: Callable[[], tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]]) -> None:
    """The other end. `load` gives what the side says of itself, and what answers a job. Runs until the input ends. The
    memory of an answer is the job's own peak, loading left out. What a library prints goes to the log."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    ready, work = load()
    print(json.dumps(ready | {"memory_mb": peak_memory_mb()}), file=answers)
    for line in sys.stdin:
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again from what is held now
        answer = work(json.loads(line))
        print(json.dumps(answer | {"memory_mb": peak_memory_mb()}), file=answers)


def peak_memory_mb() -> float:
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024
