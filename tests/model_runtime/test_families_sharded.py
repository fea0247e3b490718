"""Every family on two and four shards, real processes that read their own parts, over shared memory and over gloo."""

import multiprocessing
import os
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from grok_checkpoint import save_families
from tiny_checkpoint import run_in_pieces

from model_runtime.collectives import Meeting, Rendezvous, join
from model_runtime.load import load_model

CPU = torch.device("cpu")
FAMILIES = [
    "llama-biased-tied",
    "qwen2-windows",
    "qwen3",
    "mixtral",
    "olmoe",
    "qwen2_moe",
    "qwen3_moe",
    "granitemoe",
    "gpt_oss",
    "grok",
]
SIZES = (2, 4)
IDS = torch.randint(3, 64, (20,), generator=torch.Generator().manual_seed(2)).tolist()
PIECES = (0, 9, 17, 18, 19, 20)

Meetings = dict[tuple[int, bool], Rendezvous]  # by the number of shards, and whether they share memory


def logits_of(folder: Path, collective: Any = None) -> np.ndarray:
    model = load_model(folder, dtype=torch.float32, device="cpu", upcycle=False, collective=collective)
    return run_in_pieces(model, IDS, PIECES).numpy()


def one_rank(rank: int, folders: dict[str, Path], meetings: Meetings, results: "Queue[Any]") -> None:
    torch.set_num_threads(1)
    found = {}
    # torch.distributed has one default group per process: gloo for all four, at last.
    for (size, near), rendezvous in meetings.items():
        if rank < size:
            collective = join(rendezvous, rank, CPU, timeout_s=60)
            for name, folder in folders.items():
                found[name, size, near] = logits_of(folder, collective)
    results.put((rank, found))
    results.close()
    results.join_thread()
    os._exit(0)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    return save_families(FAMILIES, tmp_path_factory.mktemp)


@pytest.fixture(scope="module")
def by_rank(folders) -> dict[int, dict[Any, np.ndarray]]:
    context = multiprocessing.get_context("spawn")
    results: Queue[Any] = context.Queue()
    kinds = [(2, True), (4, True), (4, False)]
    held = {(size, near): Meeting(size, one_node=near, device=CPU, host="127.0.0.1") for size, near in kinds}
    meetings = {kind: meeting.rendezvous for kind, meeting in held.items()}
    processes = [
        context.Process(target=one_rank, args=(rank, folders, meetings, results), daemon=True) for rank in range(4)
    ]
    for process in processes:
        process.start()
    found = dict(results.get(timeout=240) for _ in processes)
    for process in processes:
        process.join(timeout=30)
    for meeting in held.values():
        meeting.close()
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_shards_compute_what_one_computes(folders, by_rank, name):
    alone = torch.from_numpy(logits_of(folders[name]))
    for size, near in ((2, True), (4, True), (4, False)):
        for rank in range(size):
            sharded = torch.from_numpy(by_rank[rank][name, size, near])
            torch.testing.assert_close(sharded, alone, rtol=0, atol=1e-4)
            assert torch.equal(sharded, torch.from_numpy(by_rank[0][name, size, near])), "ranks must agree to the bit"
