"""The embedded broker for laptops and tests: a Tansu process on loopback, in memory, that dies with its parent."""

import asyncio
import os
import signal
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

START_TIMEOUT_S = 20.0

# Runs between fork and exec, in a process of its own: code between the two is unsafe in a process with threads, and the
# kernel's request to die with the parent has to come from the child. Its environment is emptied: Tansu reads settings
# there. argv: the parent's process id, the binary, its arguments.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)
os.execve(sys.argv[2], sys.argv[2:], {"RUST_LOG": "warn"})
"""
# ApiVersions, version 0, no client id: the one question that every Kafka broker answers.
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class BrokerFailed(RuntimeError):
    """The embedded broker could not be started, or has died."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class EmbeddedBroker:
    """`port` on 127.0.0.1. Everything on it is lost when it stops. Never restarts by itself: watch `wait`.

    The kernel ends it when the thread that called `start` ends, so start it from one that lives as long as the process.
    """

    def __init__(self, binary: Path, port: int, log_path: Path | None = None) -> None:
        self._binary, self._port, self._log_path = binary, port, log_path
        self._process: asyncio.subprocess.Process | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def returncode(self) -> int | None:
        return self._process.returncode if self._process else None

    async def start(self) -> None:
        """Returns when the broker answers. Raises BrokerFailed: no binary, the port is taken, it died, it is silent."""
        if not os.access(self._binary, os.X_OK):
            raise BrokerFailed(f"{self._binary} is not there or may not be run: fetch it with `groundswell fetch`")
        _claim(self._port)
        url = f"tcp://{self.address}"
        arguments = ["broker", "--listener-url", url, "--advertised-listener-url", url]
        arguments += ["--storage-engine", "memory://tansu/"]
        command = [sys.executable, "-ISc", _DIE_WITH_PARENT, str(os.getpid()), str(self._binary), *arguments]
        output: Any = self._log_path.open("ab") if self._log_path else asyncio.subprocess.DEVNULL
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # a Ctrl-C in the terminal is the parent's to handle
            )
        finally:
            if self._log_path:
                output.close()
        is_up = False
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._until_it_answers()
            is_up = True
        except TimeoutError:
            raise BrokerFailed(f"the broker did not answer on {self.address} in {START_TIMEOUT_S:.0f} s") from None
        finally:
            if not is_up:
                await self.stop()

    async def wait(self) -> int:
        """The exit status, when the broker has ended by itself or by `stop`."""
        assert self._process is not None, "not started"
        return await self._process.wait()

    async def stop(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        # It holds nothing that is worth saving. Not process.kill(): that may reap the child before asyncio does.
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        await process.wait()

    async def _until_it_answers(self) -> None:
        assert self._process is not None
        while not await _answers(self._port):
            if self._process.returncode is not None:
                where = f", see {self._log_path}" if self._log_path else ""
                raise BrokerFailed(f"the broker ended at once with status {self._process.returncode}{where}")
            await asyncio.sleep(0.02)


def _claim(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the broker does: TIME_WAIT is no obstacle
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise BrokerFailed(
                f"port {port} on 127.0.0.1 is taken ({error.strerror}): set GROUNDSWELL_FEED__BROKER_PORT to a free one"
            ) from None


async def _answers(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    try:
        writer.write(_API_VERSIONS)
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        (correlation,) = struct.unpack(">i", (await reader.readexactly(length))[:4])
        return bool(correlation == 1)
    except (OSError, EOFError):  # an early end of the stream is an EOFError
        return False
    finally:
        writer.close()
