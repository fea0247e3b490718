"""Server-sent events out of bytes, as the WHATWG standard has them. Knows no HTTP and no JSON."""

import re

MOST_BYTES = 4 << 20  # of one event
_LINE_END = re.compile(rb"\r\n|\n|\r")


class EventTooLong(ValueError):
    """More than MOST_BYTES without an end."""


class EventStream:
    """Cuts by bytes, so that neither a code point in two pieces nor a U+2028 in a text is taken for an end."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._size = 0

    def push(self, piece: bytes) -> list[str]:
        """The data of every event that is complete now. Raises EventTooLong."""
        events = []
        for line in self._lines(piece):
            if not line:
                if self._data:
                    events.append(b"\n".join(self._data).decode(errors="replace"))
                self._data, self._size = [], 0
                continue
            field, _, value = line.partition(b":")  # a comment begins with the colon
            if field == b"data":
                self._data.append(value.removeprefix(b" "))
                self._size += len(value)
        if self._size + len(self._rest) > MOST_BYTES:
            raise EventTooLong(f"an event of more than {MOST_BYTES} bytes")
        return events

    def _lines(self, piece: bytes) -> list[bytes]:
        """Those that are complete. A carriage return at the end may be the first half of a line's end: it waits."""
        ends = self._rest.endswith(b"\r") or _LINE_END.search(piece)
        self._rest += piece
        if not ends:
            return []
        half = self._rest.endswith(b"\r")
        *lines, rest = _LINE_END.split(bytes(self._rest[: len(self._rest) - half]))
        self._rest = bytearray(rest + b"\r" * half)
        return lines
