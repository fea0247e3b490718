"""How long answers stall when a rank dies: SIGKILL to each rank in turn in the middle of four streams, on a Ray of our
own. The gap is the longest time any of the four waited for its next token; all four must end complete.

    python -m bench.failover MODEL [--quick]
"""

import argparse
import asyncio
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

import ray

from bench.figures import figure, say
from model_runtime.group import WorkerGroup
from model_runtime.request import Finished, GenerationRequest, Sampling, Token
from model_runtime.settings import ModelSettings

STREAMS, TOKENS, KILL_AFTER = 4, 96, 24
QUESTIONS = ("Tell me about rivers.", "Tell me about birds.", "Tell me about bread.", "Tell me about the moon.")


async def stalled_by(group: WorkerGroup, rank: int) -> float:
    """Seconds."""
    tokenizer = group.card().tokenizer
    never = tuple((token_id, -100.0) for token_id in sorted(tokenizer.eos_ids))
    sampling = Sampling(max_tokens=TOKENS, logit_bias=never)
    reached = asyncio.Event()

    async def follow(question: str) -> float:
        ids = tuple(tokenizer.render([("user", question)]))
        gap, last, count = 0.0, time.perf_counter(), 0
        async for items in group.generate(GenerationRequest(question, ids, sampling)):
            now = time.perf_counter()
            gap, last = max(gap, now - last), now
            count += sum(isinstance(item, Token) for item in items)
            if count >= KILL_AFTER:
                reached.set()
        assert isinstance(items[-1], Finished) and count == TOKENS, f"{count} tokens of {TOKENS}"
        return gap

    async def kill() -> None:
        await reached.wait()
        os.kill(group.places()[rank].pid, signal.SIGKILL)

    gaps, _ = await asyncio.gather(asyncio.gather(*map(follow, QUESTIONS[:STREAMS])), kill())
    return max(gaps)


async def run(path: Path, runs: int, quick: bool) -> None:
    settings = ModelSettings()
    group = WorkerGroup(settings, path)
    await group.start()
    try:
        for rank in range(settings.shards - 1 if quick else 0, settings.shards):  # quick: only the last
            gaps = []
            for number in range(runs):
                say(f"failover: rank {rank}, run {number + 1} of {runs}")
                gaps.append(await stalled_by(group, rank))
            more = {"rank": rank, "streams": STREAMS, "shards": settings.shards}
            figure("engine.failover_stall", max(gaps), "s", runs=runs, quick=quick, **more)
    finally:
        await group.stop()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="gsb", dir="/tmp")  # a short path: unix sockets live below it
    ray.init(address="local", num_cpus=2, include_dashboard=False, _temp_dir=folder, log_to_driver=False)
    try:
        asyncio.run(run(given.path, 1 if given.quick else 2, given.quick))
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
