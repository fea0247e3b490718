"""Sums and gathers between the ranks of a group, and the plan of each step from rank 0 to the others.

Ranks of one node on CPUs meet in shared memory (one token's 576 floats between two ranks: tens of microseconds; gloo
takes 0.7 ms); all others meet through torch.distributed, nccl for tensors on GPUs and gloo for the rest. Every wait has
an end: a peer that is dead or hung shows as CollectiveTimeout, never as a hang. Knows no model and no Ray.
"""

import pickle
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from model_runtime.shared_memory import MemoryAddress, SharedMemory, usable

SLOT_BYTES = 1 << 20  # larger tensors go in pieces
LENGTH_BYTES = 8


class CollectiveTimeout(RuntimeError):
    """A peer did not take part in time, or its connection broke. The group cannot go on."""

    def __init__(self, operation: str, rank: int, detail: str) -> None:
        super().__init__(operation, rank, detail)
        self.operation, self.rank, self.detail = operation, rank, detail

    def __str__(self) -> str:
        return f"{self.operation} on rank {self.rank}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where the ranks of a group meet; travels to each of them. Either `memory`, or a store at `host:port`."""

    size: int
    memory: MemoryAddress | None = None
    host: str = ""
    port: int = 0


class Meeting:
    """The open end of a rendezvous, held by rank 0's process until every rank has joined."""

    def __init__(self, size: int, *, one_node: bool, device: torch.device, host: str) -> None:
        self._memory: SharedMemory | None = None
        self._store: TCPStore | None = None
        if size == 1 or (one_node and device.type == "cpu"):
            self._memory = SharedMemory.create(2 * size * SLOT_BYTES, 3 * size) if usable() else None
        if self._memory is not None:
            self.rendezvous = Rendezvous(size, self._memory.address)
        else:
            self._store = TCPStore(host, 0, is_master=True, wait_for_workers=False)
            self.rendezvous = Rendezvous(size, None, host, self._store.port)

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()
        self._memory = self._store = None


def join(
    rendezvous: Rendezvous, rank: int, device: torch.device, timeout_s: float, join_timeout_s: float = 60.0
) -> "SharedMemoryCollective | TorchCollective":
    """Blocks until every rank has joined. Raises CollectiveTimeout, or OSError if rank 0 is gone."""
    if rendezvous.memory is not None:
        return SharedMemoryCollective(rendezvous.memory, rank, rendezvous.size, timeout_s, join_timeout_s)
    return TorchCollective(rendezvous, rank, device, timeout_s, join_timeout_s)


class SharedMemoryCollective:
    """Two slots per rank, used in turn, and three counters per rank: `joined`, `written`, `read`.

    Operation k uses slot k mod 2. A rank writes its slot, sets written = k, waits until the others' written >= k, reads
    them all and sets read = k. It overwrites a slot only when every peer's read >= k - 2: no peer still reads it. All
    ranks add in the order of the ranks, so that all of them hold the same bits. Tensors must be on the CPU.
    """

    def __init__(
        self, address: MemoryAddress, rank: int, size: int, timeout_s: float, join_timeout_s: float = 60.0
    ) -> None:
        self.rank, self.size = rank, size
        self._timeout_s = timeout_s
        self._memory = SharedMemory.attach(address, 3 * size)
        self._memory.close()
        self._peers = [peer for peer in range(size) if peer != rank]
        self._count = 0
        self._views: dict[tuple[torch.dtype, int], tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
        self._memory.publish(rank, 1)
        for peer in self._peers:
            self._await("join", peer, peer, 1, join_timeout_s)

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of every rank's `x`, in place when `x` is contiguous. Each addition rounds to the type of `x`."""
        if self.size == 1:
            return x
        flat = x.contiguous().view(-1)
        for piece in self._pieces(flat):
            first, *others = self._exchange("all_reduce", piece)
            torch.add(first, others[0], out=piece)
            for other in others[1:]:
                piece.add_(other)
            self._done_reading()
        return flat.view(x.shape)

    def all_gather(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Every rank's `x`, in the order of the ranks; all must have the same shape and type."""
        flat = x.contiguous().view(-1)
        gathered = [torch.empty_like(flat) for _ in range(self.size)]
        start = 0
        for piece in self._pieces(flat):
            contributions = self._exchange("all_gather", piece)
            for whole, contribution in zip(gathered, contributions, strict=True):
                whole[start : start + len(piece)].copy_(contribution)
            self._done_reading()
            start += len(piece)
        return [whole.view(x.shape) for whole in gathered]

    def broadcast_object(self, value: Any = None) -> Any:
        """Rank 0's `value` on every rank. A rank that waits long sleeps in the kernel."""
        if self.rank == 0:
            self._send(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
            return value
        return pickle.loads(self._receive())

    def _send(self, data: bytes) -> None:
        data = len(data).to_bytes(LENGTH_BYTES, "little") + data
        for start in range(0, len(data), SLOT_BYTES):
            offset = self._begin("broadcast")
            piece = data[start : start + SLOT_BYTES]
            self._memory.buffer[offset : offset + len(piece)] = piece
            self._memory.publish(self.size + self.rank, self._count)
            self._done_reading()

    def _receive(self) -> bytearray:
        received, wanted = bytearray(), LENGTH_BYTES
        while len(received) < wanted:
            self._begin("broadcast")
            self._await("broadcast", 0, self.size, self._count, self._timeout_s)
            offset = self._slot_offset(self._count & 1, 0)
            if not received:
                header = self._memory.buffer[offset : offset + LENGTH_BYTES]
                wanted = LENGTH_BYTES + int.from_bytes(header, "little")
            received += self._memory.buffer[offset : offset + min(SLOT_BYTES, wanted - len(received))]
            self._done_reading()
        return received[LENGTH_BYTES:]

    def _pieces(self, flat: torch.Tensor) -> tuple[torch.Tensor, ...]:
        length = SLOT_BYTES // flat.element_size()
        return (flat,) if len(flat) <= length else torch.split(flat, length)

    def _exchange(self, operation: str, piece: torch.Tensor) -> list[torch.Tensor]:
        """Every rank's `piece`: views of the slots, good until `_done_reading`."""
        self._begin(operation)
        contributions = self._slots_like(piece)[self._count & 1]
        contributions[self.rank].copy_(piece)
        self._memory.publish(self.size + self.rank, self._count)
        for peer in self._peers:
            self._await(operation, peer, self.size + peer, self._count, self._timeout_s)
        return contributions

    def _slots_like(self, piece: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """The even and the odd slot of every rank, as tensors like `piece`. Kept: a view costs more than a wait."""
        key = (piece.dtype, len(piece))
        if key not in self._views:
            if len(self._views) >= 64:  # prompts have many lengths, decoding few
                self._views.clear()
            even, odd = (
                [
                    torch.frombuffer(
                        self._memory.buffer, dtype=key[0], count=key[1], offset=self._slot_offset(turn, rank)
                    )
                    for rank in range(self.size)
                ]
                for turn in (0, 1)
            )
            self._views[key] = (even, odd)
        return self._views[key]

    def _begin(self, operation: str) -> int:
        """Starts the next operation: its slots are free on return. The offset is that of this rank's own slot."""
        self._count += 1
        for peer in self._peers:
            self._await(operation, peer, 2 * self.size + peer, self._count - 2, self._timeout_s)
        return self._slot_offset(self._count & 1, self.rank)

    def _slot_offset(self, turn: int, rank: int) -> int:
        return self._memory.data_offset + (turn * self.size + rank) * SLOT_BYTES

    def _done_reading(self) -> None:
        self._memory.publish(2 * self.size + self.rank, self._count)

    def _await(self, operation: str, peer: int, counter: int, value: int, timeout_s: float) -> None:
        if not self._memory.wait(counter, value, timeout_s):
            raise CollectiveTimeout(operation, self.rank, f"rank {peer} did not take part within {timeout_s} s")


class TorchCollective:
    """torch.distributed: nccl for tensors on GPUs, gloo for tensors on CPUs and for objects. One per process."""

    def __init__(
        self, rendezvous: Rendezvous, rank: int, device: torch.device, timeout_s: float, join_timeout_s: float = 60.0
    ) -> None:
        self.rank, self.size = rank, rendezvous.size
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        try:
            limit = timedelta(seconds=join_timeout_s)
            store = TCPStore(rendezvous.host, rendezvous.port, is_master=False, timeout=limit)
            dist.init_process_group(
                backend, store=store, rank=rank, world_size=self.size, timeout=timedelta(seconds=timeout_s)
            )
        except (RuntimeError, ValueError) as error:  # DistStoreError, DistNetworkError are RuntimeErrors
            raise CollectiveTimeout("join", rank, _first_line(error)) from error

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of every rank's `x`, in place when `x` is contiguous."""
        x = x.contiguous()
        try:
            dist.all_reduce(x)
        except RuntimeError as error:
            raise CollectiveTimeout("all_reduce", self.rank, _first_line(error)) from error
        return x

    def all_gather(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Every rank's `x`, in the order of the ranks; all must have the same shape and type."""
        gathered = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(self.size)]
        try:
            dist.all_gather(gathered, x.contiguous())
        except RuntimeError as error:
            raise CollectiveTimeout("all_gather", self.rank, _first_line(error)) from error
        return gathered

    def broadcast_object(self, value: Any = None) -> Any:
        """Rank 0's `value` on every rank."""
        box = [value]
        try:
            dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
        except RuntimeError as error:
            raise CollectiveTimeout("broadcast", self.rank, _first_line(error)) from error
        return box[0]


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
