"""Where a subscription to a Jetstream server is, and where to ask it to go on. Knows no connection.

A cursor is `v1:TIME_US` or `v2:SEQ@HOST`. A v1 time may be asked of any server that speaks v1; a v2 number means
something on its own server only (feeds.md 2.1, jetstream#349). The servers themselves tell the two apart at 10^15.
"""

import re

from ingest.sources.bluesky_frame import Frame

_CURSOR = re.compile(r"v1:([0-9]{1,16})|v2:([0-9]{1,15})@(\S{1,300})", re.ASCII)
_TIMESTAMPS = 10**15  # a cursor from here on is a time; this one lies before anything that a server can still have
_STEP_BACK_US = 600 * 1_000_000


class JetstreamPosition:
    """Moves with the frames of one subscription. `host` is the server's; `is_v2` what it speaks."""

    def __init__(self, is_v2: bool, host: str, overlap_s: float, settle_s: float) -> None:
        self._is_v2, self._host = is_v2, host
        self._overlap_us, self._settle_us = round(overlap_s * 1e6), round(settle_s * 1e6)
        self._time_us: int | None = None
        self._seq: int | None = None
        self._asked: int | None = None  # of this connection, until its first event
        self._heard_s: float | None = None  # when the position was reached, by our own monotonic clock
        self._opened_us: int | None = None  # the server's time when this connection opened, as far as it is known

    def resume(self, cursor: str) -> bool:
        """False: it is of another kind or another server, and the stream begins now."""
        found = _CURSOR.fullmatch(cursor)
        if found is None or self._is_v2 != (found[1] is None) or (self._is_v2 and found[3] != self._host):
            return False
        if self._is_v2:
            self._seq = int(found[2])
        else:
            self._time_us = int(found[1])
        return True

    def forget(self) -> None:
        """Go on with what comes now."""
        self._time_us = self._seq = self._heard_s = None

    def forget_too_old(self) -> None:
        """Go on with the oldest that a v2 server still has: it moves a time from long ago up to that."""
        self.forget()
        self._seq = _TIMESTAMPS

    @property
    def is_oldest(self) -> bool:
        return self._seq == _TIMESTAMPS

    @property
    def cursor(self) -> str | None:
        if self._is_v2:
            return None if self._seq is None or self.is_oldest else f"v2:{self._seq}@{self._host}"
        return None if self._time_us is None else f"v1:{self._time_us}"

    def ask(self, now_s: float, longest_quiet_s: float) -> int | None:
        """The cursor for a connection that opens at `now_s` (monotonic): v1 goes back a little, as its switch from
        replay to live can drop events (jetstream-legacy#42); v2 needs not."""
        if self._is_v2:
            return self._seq
        self._asked = None if self._time_us is None else max(0, self._time_us - self._overlap_us)
        self._opened_us = None
        if self._time_us is not None and self._heard_s is not None and now_s - self._heard_s <= longest_quiet_s:
            self._opened_us = self._time_us + round((now_s - self._heard_s) * 1e6)
        return self._asked

    def missed_us(self, frame: Frame) -> int:
        """How much later than asked the first event of a v1 connection is: a v1 server does not say that a cursor is
        older than what it has. 0 for the other events."""
        if self._asked is None or frame.time_us is None:
            return 0
        missed_us, self._asked = max(0, frame.time_us - self._asked), None
        return missed_us

    def move(self, frame: Frame, now_s: float) -> None:
        """The event that came last is the position, a little out of order or not: what a v1 server replays can be
        overtaken by what is live. A time from long before (imported) does not move it back. Not for repeated events."""
        if frame.seq is not None:
            self._seq = frame.seq if self._seq is None or self.is_oldest else max(self._seq, frame.seq)
        if frame.time_us is not None:
            latest = frame.time_us if self._time_us is None else max(frame.time_us, self._time_us - _STEP_BACK_US)
            self._time_us, self._heard_s, self._opened_us = latest, now_s, None

    def settle(self, now_s: float) -> bool:
        """After a connection that asked from a known place and stayed quiet: nothing happened before it opened, so
        the position moves there. Never past it: a server may answer pings and still send nothing (T17)."""
        if self._opened_us is None or self._time_us is None:
            return False
        reached_us, self._opened_us = self._opened_us - self._settle_us, None
        if reached_us <= self._time_us:
            return False
        assert self._heard_s is not None
        self._heard_s += (reached_us - self._time_us) / 1e6
        self._time_us = reached_us
        return True
