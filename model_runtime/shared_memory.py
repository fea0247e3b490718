"""One block of memory that the ranks of one node share, and counters in it to wait on. Knows no tensors and no sums.

The block is an anonymous file (memfd) that peers open through /proc: it has no name, so there is nothing to unlink and
nothing can be left behind, whoever is killed when. Counters are 64-bit, one cache line each, written by one process.
A writer's stores become visible in order only because x86 promises it: see `usable`.
"""

import ctypes
import mmap
import os
import platform
import secrets
import sys
import time
from dataclasses import dataclass

TOKEN_BYTES = 16
LINE_BYTES = 64
SPINS = 300  # about 15 us: most waits of a running step end within it
YIELD_S = 0.001  # then give the core away, as peers may need it; then sleep in the kernel, which costs nothing
SLEEP_S = 0.05

_SYS_FUTEX, _FUTEX_WAIT, _FUTEX_WAKE, _EVERYONE = 202, 0, 1, 2**31 - 1  # x86-64; not the private kind: across processes
_syscall = ctypes.CDLL(None, use_errno=True).syscall


def usable() -> bool:
    return sys.platform == "linux" and platform.machine() == "x86_64"


class _Timespec(ctypes.Structure):
    _fields_ = [("s", ctypes.c_long), ("ns", ctypes.c_long)]


@dataclass(frozen=True, slots=True)
class MemoryAddress:
    """Where a process of the same node and user finds the block. `token` tells it from another that took its place."""

    pid: int
    fd: int
    token: bytes


class SharedMemory:
    """`data` is the shared part; `counters` counters come before it, all 0 at first."""

    def __init__(self, fd: int, counters: int, token: bytes) -> None:
        self.fd = fd
        self.token = token
        self._map = mmap.mmap(fd, os.fstat(fd).st_size)
        self.data_offset = -(-(1 + counters) * LINE_BYTES // mmap.PAGESIZE) * mmap.PAGESIZE
        self._words = memoryview(self._map)[: self.data_offset].cast("Q")
        anchor = ctypes.c_char.from_buffer(self._map)
        self._base = ctypes.addressof(anchor)

    @classmethod
    def create(cls, data_bytes: int, counters: int) -> "SharedMemory":
        token = secrets.token_bytes(TOKEN_BYTES)
        fd = os.memfd_create("groundswell", os.MFD_CLOEXEC)
        header = -(-(1 + counters) * LINE_BYTES // mmap.PAGESIZE) * mmap.PAGESIZE
        os.ftruncate(fd, header + data_bytes)
        os.pwrite(fd, token, 0)
        return cls(fd, counters, token)

    @classmethod
    def attach(cls, address: MemoryAddress, counters: int) -> "SharedMemory":
        """Raises OSError if the block's owner is gone."""
        fd = os.open(f"/proc/{address.pid}/fd/{address.fd}", os.O_RDWR | os.O_CLOEXEC)
        if os.pread(fd, TOKEN_BYTES, 0) != address.token:
            os.close(fd)
            raise OSError(f"process {address.pid} no longer holds the shared memory of this group")
        return cls(fd, counters, address.token)

    @property
    def address(self) -> MemoryAddress:
        return MemoryAddress(os.getpid(), self.fd, self.token)

    @property
    def buffer(self) -> mmap.mmap:
        return self._map

    def close(self) -> None:
        """Peers can no longer attach; those that did, and this mapping itself, keep the memory until they end."""
        os.close(self.fd)

    def read(self, counter: int) -> int:
        return self._words[(1 + counter) * LINE_BYTES // 8]

    def publish(self, counter: int, value: int) -> None:
        """Everything stored before this call is visible to whoever sees `value`. Wakes the sleepers."""
        self._words[(1 + counter) * LINE_BYTES // 8] = value
        word = ctypes.c_void_p(self._base + (1 + counter) * LINE_BYTES)
        _syscall(_SYS_FUTEX, word, _FUTEX_WAKE, _EVERYONE, None, None, 0)

    def wait(self, counter: int, value: int, timeout_s: float) -> bool:
        """Waits until the counter is at least `value`; False if that takes longer than `timeout_s`."""
        words, index = self._words, (1 + counter) * LINE_BYTES // 8
        for _ in range(SPINS):
            if words[index] >= value:
                return True
        now = time.monotonic()
        deadline, sleep_from = now + timeout_s, now + YIELD_S
        while (seen := words[index]) < value:
            if now < sleep_from:
                os.sched_yield()
            else:
                self._sleep(index, seen, min(SLEEP_S, deadline - now))
            now = time.monotonic()
            if now >= deadline:
                return words[index] >= value
        return True

    def _sleep(self, index: int, seen: int, seconds: float) -> None:
        """Sleeps until the counter is no longer `seen` or the time is over. The kernel compares before it sleeps, so
        that no wake-up is lost; it compares the low half, which is first in memory."""
        word = ctypes.c_void_p(self._base + index * 8)
        span = _Timespec(0, max(1, int(seconds * 1e9)))
        _syscall(_SYS_FUTEX, word, _FUTEX_WAIT, ctypes.c_uint32(seen & 0xFFFFFFFF), ctypes.byref(span), None, 0)
