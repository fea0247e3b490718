"""The same sums whichever way the ranks meet, in real processes; and an error, never a hang, without a peer."""

import multiprocessing
import os
import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.queues import Queue
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model_runtime.collectives import (
    SLOT_BYTES,
    CollectiveTimeout,
    Meeting,
    Rendezvous,
    SharedMemoryCollective,
    TorchCollective,
    join,
)

CPU = torch.device("cpu")
RANKS = 3
LENGTHS = [1, 7, 576, 577, SLOT_BYTES // 4, SLOT_BYTES // 4 + 1, SLOT_BYTES + 3]
BIG = bytes(range(256)) * 10_000  # several slots


def contribution(rank: int, length: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * rank + length)
    return torch.randn(length, generator=generator).to(dtype)


def compute(ranks: SharedMemoryCollective | TorchCollective) -> dict[str, Any]:
    """What one rank does: every length, many turns of small sums that reuse the slots, gathers, broadcasts."""
    found: dict[str, Any] = {"kind": type(ranks).__name__}
    for dtype in (torch.float32, torch.bfloat16):
        for length in LENGTHS:
            total = ranks.all_reduce(contribution(ranks.rank, length, dtype))
            found[f"sum {dtype} {length}"] = total.float().numpy().tobytes()
    turns = random.Random(5)
    found["turns"] = [
        ranks.all_reduce(torch.full((turns.randrange(1, 50),), float(turn * (ranks.rank + 1)))).tolist()
        for turn in range(300)
    ]
    rows = torch.arange(6.0).view(2, 3).t() + ranks.rank  # not contiguous
    found["gathered"] = [part.tolist() for part in ranks.all_gather(rows)]
    found["rows summed"] = ranks.all_reduce(rows).tolist()
    long = ranks.all_gather(contribution(ranks.rank, SLOT_BYTES, torch.bfloat16))
    found["long gathered"] = [part.float().numpy().tobytes() for part in long]
    objects = ({"a": (1, 2)}, BIG, None)
    found["objects"] = [ranks.broadcast_object(value if ranks.rank == 0 else None) for value in objects]
    return found


def one_rank(rank: int, meetings: list[Rendezvous], results: "Queue[Any]") -> None:
    """Both ways one after the other; at last the last rank dies, and the others go on over gloo."""
    torch.set_num_threads(1)
    near, far = [join(rendezvous, rank, CPU, timeout_s=60) for rendezvous in meetings]
    found: dict[str, Any] = {"near": compute(near), "far": compute(far)}
    if rank < RANKS - 1:
        try:
            for _ in range(3):
                far.all_reduce(torch.ones(4))
        except CollectiveTimeout as error:
            found["after a death"] = str(error)
    results.put((rank, found))
    results.close()
    results.join_thread()
    os._exit(0)


@pytest.fixture(scope="module")
def by_rank() -> list[dict[str, Any]]:
    context = multiprocessing.get_context("spawn")
    results: Queue[Any] = context.Queue()
    meetings = [Meeting(RANKS, one_node=one_node, device=CPU, host="127.0.0.1") for one_node in (True, False)]
    rendezvous = [meeting.rendezvous for meeting in meetings]
    ranks = [context.Process(target=one_rank, args=(rank, rendezvous, results)) for rank in range(RANKS)]
    for process in ranks:
        process.start()
    try:
        found = dict(results.get(timeout=120) for _ in ranks)
    finally:
        for process in ranks:
            process.kill()
            process.join()
    for meeting in meetings:
        meeting.close()
    return [found[rank] for rank in range(RANKS)]


def test_one_node_meets_in_shared_memory_and_several_over_gloo(by_rank):
    assert [found["near"]["kind"] for found in by_rank] == ["SharedMemoryCollective"] * RANKS
    assert [found["far"]["kind"] for found in by_rank] == ["TorchCollective"] * RANKS


@pytest.mark.parametrize("way", ["near", "far"])
def test_every_rank_holds_the_same_bits_of_the_right_sum(by_rank, way):
    first, *others = [found[way] for found in by_rank]
    assert all(other == first for other in others)
    for dtype in (torch.float32, torch.bfloat16):
        for length in LENGTHS:
            exact = sum(contribution(rank, length, dtype).double() for rank in range(RANKS))
            total = torch.frombuffer(bytearray(first[f"sum {dtype} {length}"]), dtype=torch.float32)
            torch.testing.assert_close(
                total.double(), exact, rtol=0, atol=1e-5 if dtype == torch.float32 else 0.08, msg=f"{dtype} {length}"
            )


def test_both_ways_give_the_same(by_rank):
    near, far = by_rank[0]["near"], by_rank[0]["far"]
    for exact in ("turns", "gathered", "rows summed", "long gathered", "objects"):
        assert near[exact] == far[exact], exact
    assert near["objects"] == [{"a": (1, 2)}, BIG, None]
    assert near["gathered"][2] == (torch.arange(6.0).view(2, 3).t() + 2).tolist()
    turns = random.Random(5)
    assert near["turns"] == [[6.0 * turn] * turns.randrange(1, 50) for turn in range(300)]


def test_a_dead_peer_over_gloo_is_an_error_and_not_a_hang(by_rank):
    for rank in range(RANKS - 1):
        assert by_rank[rank]["after a death"].startswith(f"all_reduce on rank {rank}")


@pytest.fixture(scope="module")
def pair():
    """Two ranks in two threads of this process."""
    meeting = Meeting(2, one_node=True, device=CPU, host="127.0.0.1")
    with ThreadPoolExecutor(2) as threads:
        both = list(threads.map(lambda rank: join(meeting.rendezvous, rank, CPU, timeout_s=30), range(2)))
        yield threads, both
    meeting.close()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(*[st.floats(width=32, allow_nan=False)] * 2), min_size=1, max_size=40),
    st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_any_values_add_up_as_torch_adds_them(pair, values, dtype):
    threads, both = pair
    parts = [torch.tensor([value[rank] for value in values]).to(dtype) for rank in range(2)]
    wanted = parts[0] + parts[1]
    sums = list(threads.map(lambda rank: both[rank].all_reduce(parts[rank].clone()), range(2)))
    for total in sums:
        torch.testing.assert_close(total, wanted, rtol=0, atol=0, equal_nan=True)


@given(st.binary(max_size=300))
@settings(max_examples=30, deadline=None)
def test_any_object_arrives(pair, value):
    threads, both = pair
    sent = list(threads.map(lambda rank: both[rank].broadcast_object(value if rank == 0 else None), range(2)))
    assert sent == [value, value]


def alone(operation: str) -> None:
    """Joins as rank 0 with a rank 1 that takes no further part."""
    meeting = Meeting(2, one_node=True, device=CPU, host="127.0.0.1")
    with ThreadPoolExecutor(2) as threads:
        first, _ = threads.map(lambda rank: join(meeting.rendezvous, rank, CPU, timeout_s=0.2), range(2))
    meeting.close()
    assert isinstance(first, SharedMemoryCollective)
    for _ in range(3):  # the second slot may still be filled without the peer, the third may not
        getattr(first, operation)(torch.ones(5))


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "broadcast_object"])
def test_a_silent_peer_is_an_error_and_not_a_hang(operation):
    with pytest.raises(CollectiveTimeout, match="rank 1 did not take part within 0.2 s"):
        alone(operation)


def test_a_peer_that_never_joins_is_an_error():
    meeting = Meeting(2, one_node=True, device=CPU, host="127.0.0.1")
    with pytest.raises(CollectiveTimeout, match="join on rank 0"):
        join(meeting.rendezvous, 0, CPU, timeout_s=1, join_timeout_s=0.1)
    meeting.close()


def test_a_rank_cannot_join_after_the_meeting_is_over():
    meeting = Meeting(2, one_node=True, device=CPU, host="127.0.0.1")
    rendezvous = meeting.rendezvous
    meeting.close()
    with pytest.raises(OSError):
        join(rendezvous, 1, CPU, timeout_s=1, join_timeout_s=0.1)


def test_the_error_crosses_process_borders():
    error = CollectiveTimeout("all_reduce", 1, "rank 0 is gone")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.rank) == ("all_reduce on rank 1: rank 0 is gone", 1)
