"""One JSON line a figure, as DESIGN.md section 10 has it."""

import json
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1))]


def figure(name: str, ours: float, unit: str, *, runs: int, quick: bool, **more: Any) -> None:
    line: dict[str, Any] = {"figure": name, "ours": round(ours, 3), "unit": unit, **more, "runs": runs, "quick": quick}
    if "theirs" in more:
        line["theirs"] = round(more["theirs"], 3)
        line["ratio"] = round(ours / more["theirs"], 3)
    print(json.dumps(line), flush=True)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def hardware() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    return f"{len(os.sched_getaffinity(0))} cores of {model}"
