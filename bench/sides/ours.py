"""Our engine in one process, loaded as the service loads it, without Ray. With two shards this process is rank 0 and
starts the other rank itself.

A job may say `may_end` (else no end is ever chosen) and `lookup` (else nothing is guessed). Each job has an engine of
its own, so that none finds what another left in the cache.

    python -m bench.sides.ours MODEL [--dense] [--shards 2]
"""

import argparse
import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bench.side import THREADS, Stopwatch, serve
from model_runtime.cache_size import affordable_blocks
from model_runtime.collectives import Meeting, Rendezvous, join
from model_runtime.engine import Engine, Submit, follow
from model_runtime.kv_cache import PagedCache
from model_runtime.load import load_model
from model_runtime.model import Model
from model_runtime.request import Finished, GenerationRequest, Sampling, Token
from model_runtime.scheduler import CPU_LIMITS
from model_runtime.tokenizer import Tokenizer

CPU = torch.device("cpu")
TIMEOUT_S = 3600.0  # between two jobs the other rank waits


def load_rank(path: Path, upcycle: bool, rendezvous: Rendezvous, rank: int) -> tuple[Model, PagedCache, Any]:
    torch.set_num_threads(THREADS // rendezvous.size)
    ranks = join(rendezvous, rank, CPU, TIMEOUT_S)
    model = load_model(path, dtype=torch.bfloat16, device=CPU, upcycle=upcycle, collective=ranks)
    blocks = affordable_blocks(model.config, torch.bfloat16, CPU, rendezvous.size)
    return model, PagedCache(model.config, blocks, torch.bfloat16, CPU), ranks


def other_rank(path: Path, upcycle: bool, rendezvous: Rendezvous, rank: int) -> None:
    follow(*load_rank(path, upcycle, rendezvous, rank))


def run(engine: Engine, prompts: Sequence[Sequence[int]], sampling: Sampling) -> Stopwatch:
    watch = Stopwatch(len(prompts))
    for number, prompt in enumerate(prompts):
        engine.submit(Submit(GenerationRequest(str(number), tuple(prompt), sampling)))
    running = len(prompts)
    while running:
        outputs = engine.step()
        now = time.perf_counter()
        for request_id, item in outputs:
            if isinstance(item, Token):
                watch.note(int(request_id), item.id, now)
            else:
                assert isinstance(item, Finished), f"request {request_id}: {item}"
                running -= 1
    return watch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("--dense", action="store_true")
    parser.add_argument("--shards", type=int, default=1)
    given = parser.parse_args()

    def load() -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
        meeting = Meeting(given.shards, one_node=True, device=CPU, host="127.0.0.1")
        for rank in range(1, given.shards):
            arguments = (given.path, not given.dense, meeting.rendezvous, rank)
            multiprocessing.get_context("spawn").Process(target=other_rank, args=arguments, daemon=True).start()
        started = time.perf_counter()
        model, cache, ranks = load_rank(given.path, not given.dense, meeting.rendezvous, 0)
        meeting.close()
        tokenizer = Tokenizer.from_checkpoint(given.path)
        never = tuple((token_id, -100.0) for token_id in sorted(tokenizer.eos_ids))

        def work(job: dict[str, Any]) -> dict[str, Any]:
            limits = CPU_LIMITS if job.get("lookup") else replace(CPU_LIMITS, draft_rows=1)
            engine = Engine(model, cache, tokenizer, ranks, model.config.context_tokens, limits)
            sampling = Sampling(max_tokens=job["tokens"], logit_bias=() if job.get("may_end") else never)
            watch = run(engine, job["prompts"], sampling)
            return {"times": watch.times, "tokens": watch.tokens}

        return {"name": "ours", "load_s": time.perf_counter() - started}, work

    serve(load)


if __name__ == "__main__":
    main()
