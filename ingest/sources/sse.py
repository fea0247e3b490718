"""Bytes of a `text/event-stream` -> events, cut anywhere (WHATWG HTML, server-sent events). Knows no network.

By bytes, because only "\\n", "\\r" and "\\r\\n" end a line here: `str.splitlines` also cuts at U+2028 inside a post.
"""

import re
from dataclasses import dataclass, field

_LINE_END = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class SentEvent:
    name: str
    data: bytes = field(repr=False)


class EventLines:
    """`feed` what arrives; it returns the events that are complete. What is half there when the connection ends is
    dropped with this object. Of data over `most_bytes`, one byte more is kept, so that its reader refuses it."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._partial = bytearray()
        self._is_start, self._after_cr = True, False
        self._name, self._data = "message", bytearray()

    def feed(self, received: bytes) -> list[SentEvent]:
        if self._after_cr and received.startswith(b"\n"):
            received = received[1:]
            self._after_cr = False
        if not received:
            return []
        self._after_cr = received.endswith(b"\r")
        first, *others = _LINE_END.split(received)
        self._keep(first)
        events = []
        for piece in others:
            if (event := self._line(bytes(self._partial))) is not None:
                events.append(event)
            self._partial.clear()
            self._keep(piece)
        return events

    def _keep(self, piece: bytes) -> None:
        longest = self._most_bytes + len(b"data: ") + 1
        self._partial += piece[: longest - len(self._partial)]

    def _line(self, line: bytes) -> SentEvent | None:
        if self._is_start:
            line, self._is_start = line.removeprefix(b"\xef\xbb\xbf"), False
        if not line:
            event = SentEvent(self._name or "message", bytes(self._data[:-1])) if self._data else None
            self._name, self._data = "message", bytearray()
            return event
        name, _, content = line.partition(b":")
        content = content.removeprefix(b" ")
        if name == b"event":
            self._name = content.decode("utf-8", "replace")
        elif name == b"data":
            self._data += (content + b"\n")[: self._most_bytes + 2 - len(self._data)]
        return None
