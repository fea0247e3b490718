"""What it costs to spread the model over two ranks of one machine: the same upcycled model as one shard of two threads
and as two shards of one thread each; a step that computes nothing; and one sum beside gloo's."""

import multiprocessing
import os
import time
from collections.abc import Callable
from typing import Any

import torch

from bench.figures import figure, median, say
from bench.line_up import TWO_SHARDS, UPCYCLED, LineUp
from bench.prompts import distinct_prompts
from model_runtime.collectives import Meeting, Rendezvous, join
from model_runtime.kv_cache import Step

PROMPT_TOKENS = 512
ROUND_TRIPS = 300
CPU = torch.device("cpu")


def measure_shards(line_up: LineUp, quick: bool) -> None:
    ranks_alone(quick)
    sides = line_up.get(TWO_SHARDS, UPCYCLED)
    tokens, runs = (8, 1) if quick else (64, 5)
    for streams in (1,) if quick else (1, 4):
        pairs = []
        for run in range(runs):
            say(f"shards: {streams} streams, run {run + 1} of {runs}")
            prompts = distinct_prompts(line_up.tokenizer, streams, PROMPT_TOKENS, seed=1000 * streams + run)
            pairs.append([side.answer(prompts, tokens) for side in sides])
        for of in ("ttft", "tpot"):
            ours, theirs = (median([getattr(pair[k], f"{of}_ms") for pair in pairs]) for k in (0, 1))
            more: dict[str, Any] = {"of": of, "streams": streams, "peer": "one shard, two threads", "theirs": theirs}
            figure("shard.overhead", ours, "ms", runs=runs, quick=quick, **more)


def ranks_alone(quick: bool) -> None:
    """Two processes that do nothing but meet."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    meetings = [Meeting(2, one_node=one_node, device=CPU, host="127.0.0.1") for one_node in (True, False)]
    rendezvous = [meeting.rendezvous for meeting in meetings]
    ranks = [context.Process(target=one_rank, args=(rank, rendezvous, results)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    try:
        ours, gloo = results.get(timeout=120)
    finally:
        for rank in ranks:
            rank.join(timeout=10)
            rank.kill()
        for meeting in meetings:
            meeting.close()
    for name, unit in (("shard.empty_step", "us"), ("shard.all_reduce", "us")):
        more = {"peer": "gloo", "theirs": gloo[name]}
        figure(name, ours[name], unit, runs=ROUND_TRIPS, quick=quick, **more)


def one_rank(rank: int, meetings: list[Rendezvous], results: Any) -> None:
    torch.set_num_threads(1)
    found = [_collective(join(meeting, rank, CPU, timeout_s=60)) for meeting in meetings]
    if rank == 0:
        results.put(found)
        results.close()
        results.join_thread()
    os._exit(0)  # gloo's threads have no end


def _collective(ranks: Any) -> dict[str, float]:
    """Microseconds, medians. An empty step: its plan, and every rank has seen it."""
    activations, seen = torch.zeros(576), torch.zeros(1)

    def empty_step() -> None:
        ranks.broadcast_object(Step((), ()))
        ranks.all_reduce(seen)

    return {
        "shard.empty_step": _median_us(empty_step),
        "shard.all_reduce": _median_us(lambda: ranks.all_reduce(activations)),
    }


def _median_us(work: Callable[[], Any]) -> float:
    times = []
    for _ in range(ROUND_TRIPS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return median(times) * 1e6
