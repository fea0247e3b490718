"""What can go wrong with a call to X, and how long to wait then. Knows no network.

The pauses are those of docs.x.com, "Handling disconnections". The first reconnection is at once.
"""

from typing import Literal

Kind = Literal["network", "http", "rate", "ended"]

NETWORK_STEP_S, NETWORK_MOST_S = 0.25, 16.0
HTTP_FIRST_S, HTTP_MOST_S = 5.0, 320.0
RATE_FIRST_S, RATE_MOST_S = 60.0, 900.0  # X counts calls in windows of 15 minutes


class XFault(RuntimeError):
    """`reason` is a label that may be logged. `resets_at_s`: when X takes calls again (epoch), if it said so.

    `may_be_billed`: X may have answered with posts that did not arrive.
    """

    def __init__(self, kind: Kind, reason: str, resets_at_s: float | None = None, may_be_billed: bool = False) -> None:
        super().__init__(kind, reason, resets_at_s, may_be_billed)
        self.kind, self.reason, self.resets_at_s, self.may_be_billed = kind, reason, resets_at_s, may_be_billed

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"


class Backoff:
    def __init__(self) -> None:
        self._failures = 0
        self._kind: Kind = "network"

    def reset(self) -> None:
        self._failures = 0

    def pause_s(self, fault: XFault, now_s: float) -> float:
        """Grows while the same kind of fault goes on."""
        if fault.kind != self._kind:
            self._failures, self._kind = 0, fault.kind
        failures, self._failures = self._failures, self._failures + 1
        if fault.kind == "network":
            return min(failures * NETWORK_STEP_S, NETWORK_MOST_S)
        doublings = min(failures, 10)
        if fault.kind == "http":
            return min(HTTP_FIRST_S * 2.0**doublings, HTTP_MOST_S)
        until_reset_s = 0.0 if fault.resets_at_s is None else fault.resets_at_s - now_s
        return min(max(until_reset_s, RATE_FIRST_S * 2.0**doublings), RATE_MOST_S)
