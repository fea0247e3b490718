"""The model on GPUs computes what it computes on a CPU: one device, and several over nccl. Skipped loudly elsewhere."""

import multiprocessing
import os
import sys
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "model_runtime"))
from grok_checkpoint import save_families
from tiny_checkpoint import run_in_pieces

from model_runtime.collectives import Meeting, Rendezvous, join
from model_runtime.load import load_model

FAMILIES = ["llama-biased-tied", "qwen3", "mixtral", "olmoe", "qwen2_moe", "granitemoe", "gpt_oss", "grok"]
IDS = torch.randint(3, 64, (20,), generator=torch.Generator().manual_seed(2)).tolist()
CUTS = (0, 9, 17, 18, 19, 20)

pytestmark = pytest.mark.gpu
one_gpu = pytest.mark.skipif(torch.cuda.device_count() < 1, reason="needs a GPU: the model on CUDA is NOT tested here")
two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs 2 GPUs: nccl is NOT tested here")


def logits_of(folder: Path, device: str, dtype: torch.dtype, collective: Any = None) -> torch.Tensor:
    model = load_model(folder, dtype=dtype, device=device, upcycle=False, collective=collective)
    return run_in_pieces(model, IDS, CUTS).cpu()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return save_families(FAMILIES, tmp_path_factory.mktemp)


@one_gpu
@pytest.mark.parametrize("name", FAMILIES)
def test_a_gpu_computes_what_a_cpu_computes(folders, name):
    exact = logits_of(folders[name], "cpu", torch.float32)
    torch.testing.assert_close(logits_of(folders[name], "cuda", torch.float32), exact, rtol=0, atol=1e-3)
    rounded = logits_of(folders[name], "cuda", torch.bfloat16)
    assert (rounded - exact).abs().mean() < 0.05 * exact.std()


def one_rank(rank: int, folders: dict[str, Path], rendezvous: Rendezvous, results: "Queue[Any]") -> None:
    torch.cuda.set_device(rank)
    collective = join(rendezvous, rank, torch.device("cuda", rank), timeout_s=60)
    found = {
        name: logits_of(folder, f"cuda:{rank}", torch.bfloat16, collective).numpy() for name, folder in folders.items()
    }
    results.put((rank, found))
    results.close()
    results.join_thread()
    os._exit(0)


@two_gpus
def test_two_gpus_compute_what_one_computes(folders):
    context = multiprocessing.get_context("spawn")
    results: Queue[Any] = context.Queue()
    meeting = Meeting(2, one_node=True, device=torch.device("cuda"), host="127.0.0.1")
    processes = [
        context.Process(target=one_rank, args=(rank, folders, meeting.rendezvous, results), daemon=True)
        for rank in range(2)
    ]
    for process in processes:
        process.start()
    by_rank = dict(results.get(timeout=240) for _ in processes)
    for process in processes:
        process.join(timeout=30)
    meeting.close()
    for name, folder in folders.items():
        alone = logits_of(folder, "cuda", torch.bfloat16)
        for rank in range(2):
            sharded = torch.from_numpy(by_rank[rank][name])
            assert (sharded - alone).abs().mean() < 0.05 * alone.std(), name
            assert torch.equal(sharded, torch.from_numpy(by_rank[0][name])), "ranks must agree to the bit"
