"""Bytes in pieces of any size -> lines. Half a line at the end of a connection is dropped: it comes again."""

from collections.abc import Iterator

MAX_LINE = 1_000_000


class Lines:
    """One for each connection. A line without a newline in it is JSON; an empty one is a keep-alive."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The lines that this piece ends, without line ends. Of one over MAX_LINE only the beginning, just over it."""
        *ended, rest = piece.split(b"\n")
        for part in ended:
            self._keep(part)
            yield b"".join(self._begun).rstrip(b"\r")
            self._begun, self._size = [], 0
        self._keep(rest)

    def _keep(self, part: bytes) -> None:
        room = MAX_LINE + 1 - self._size
        if part and room > 0:
            self._begun.append(part[:room])
            self._size += min(len(part), room)
