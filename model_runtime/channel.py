"""The line between the group and rank 0: requests one way, each step's outputs the other, in order, over TCP.

Beside Ray on purpose: handing over a step's outputs through a Ray streaming generator took 2.4 ms of processor time in
all and 4.6 ms to arrive with both cores busy; this took 0.3 ms and 0.24 ms (Ray 2.60, two cores). Ray carries the
address and the secret. Frames are pickles: whoever knows the secret is trusted, as with Ray itself.
"""

import asyncio
import hmac
import pickle
import secrets
import socket
import time
from dataclasses import dataclass, field
from typing import Any

SECRET_BYTES = 32
_LENGTH_BYTES = 4


class ChannelClosed(ConnectionError):
    """The other side is gone, or takes nothing any more."""


@dataclass(frozen=True, slots=True)
class ChannelAddress:
    host: str
    port: int
    secret: bytes = field(repr=False)


class Listener:
    """Rank 0's end before the group has come."""

    def __init__(self, host: str) -> None:
        self._socket = socket.create_server((host, 0))
        self.address = ChannelAddress(host, self._socket.getsockname()[1], secrets.token_bytes(SECRET_BYTES))

    def accept(self, timeout_s: float, send_timeout_s: float) -> "Channel":
        """The first caller that knows the secret. Raises ChannelClosed when none comes in time."""
        deadline = time.monotonic() + timeout_s
        with self._socket:
            while (left := deadline - time.monotonic()) > 0:
                self._socket.settimeout(left)
                try:
                    caller, _ = self._socket.accept()
                except TimeoutError:
                    break
                if self._knows_the_secret(caller):
                    return Channel(caller, send_timeout_s)
                caller.close()
        raise ChannelClosed(f"the group did not call within {timeout_s} s")

    def _knows_the_secret(self, caller: socket.socket) -> bool:
        caller.settimeout(1.0)
        try:
            return hmac.compare_digest(_exactly(caller, SECRET_BYTES), self.address.secret)
        except ChannelClosed:
            return False


class Channel:
    """Rank 0's end. One thread sends, another receives."""

    def __init__(self, connected: socket.socket, send_timeout_s: float) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._out = connected
        self._in = connected.dup()
        self._out.settimeout(send_timeout_s)
        self._in.settimeout(None)

    def send(self, value: Any) -> None:
        """Blocks while the group is too slow to take it. Raises ChannelClosed."""
        try:
            self._out.sendall(_frame(value))
        except OSError as error:
            raise ChannelClosed(str(error)) from error

    def receive(self) -> Any:
        """Raises ChannelClosed at the end."""
        return pickle.loads(_exactly(self._in, int.from_bytes(_exactly(self._in, _LENGTH_BYTES), "little")))

    def close(self) -> None:
        self._out.close()
        self._in.close()


class GroupChannel:
    """The group's end, for an event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, address: ChannelAddress) -> "GroupChannel":
        """Raises OSError when rank 0 does not listen any more."""
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        writer.write(address.secret)
        return cls(reader, writer)

    def send(self, value: Any) -> None:
        """Never blocks; what is lost with the connection is sent again after the restart."""
        if not self._writer.is_closing():
            self._writer.write(_frame(value))

    async def receive(self) -> Any:
        """Raises ChannelClosed at the end."""
        try:
            length = int.from_bytes(await self._reader.readexactly(_LENGTH_BYTES), "little")
            return pickle.loads(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError) as error:
            raise ChannelClosed("rank 0 closed the channel") from error

    def close(self) -> None:
        self._writer.close()


def _frame(value: Any) -> bytes:
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return len(data).to_bytes(_LENGTH_BYTES, "little") + data


def _exactly(connected: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        try:
            piece = connected.recv(count - len(data))
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        if not piece:
            raise ChannelClosed("the other side closed the channel")
        data += piece
    return bytes(data)
