"""Takes an expert that keeps giving NaN or infinity out of routing, and lets it back when it has recovered."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor

from model_runtime.families import ModelConfig

logger = logging.getLogger(__name__)

FAILURES = 10  # in a row, of tokens
FIRST_PROBE_STEPS = 64  # engine steps before a probe; each that fails doubles it
LAST_PROBE_STEPS = 4096
_PATIENCE_STEPS = 16  # guarded steps that wait for a token to be routed to an expert in question

Expert = tuple[int, int]  # the model's layer (dense ones count, too), the expert


@dataclass(frozen=True, slots=True)
class BreakerSummary:
    """Counts since the start. `failures`: how often an expert was left out of a token's mix. `trips`: experts taken out
    of routing; `returns`: let back by a probe. `kept`: failing experts that stay, for want of others in the layer."""

    failures: int
    trips: int
    returns: int
    left_out: tuple[Expert, ...]
    kept: tuple[Expert, ...]


@dataclass(slots=True)
class _Suspect:
    """An expert that failed and is still routed to. `unseen`: guarded steps since without a token of its own."""

    failures: int = 0
    unseen: int = 0


@dataclass(slots=True)
class _Outcast:
    wait: int = FIRST_PROBE_STEPS
    steps_left: int = FIRST_PROBE_STEPS
    probing: bool = False
    unseen: int = 0


class Breaker:
    """Rank 0 keeps it, one per engine. Before each step ask `guard_next`, then plan with `left_out`; after a guarded
    step tell `saw`. A guarded step costs time, so one is asked for only while an expert is in question: after it
    failed, until it succeeds or trips, and for probes. With virtual groups a choice fails as a whole, with all its
    experts."""

    def __init__(self, config: ModelConfig) -> None:
        self._layers = [layer for layer in range(config.layers) if config.has_experts(layer)]
        self._choices = config.num_experts // config.virtual_groups
        self._least = config.active_experts // config.virtual_groups
        self._suspects: dict[Expert, _Suspect] = {}
        self._outcasts: dict[Expert, _Outcast] = {}
        self._kept: set[Expert] = set()
        self._failures = self._trips = self._returns = 0

    @property
    def left_out(self) -> tuple[Expert, ...]:
        """Whom the next step routes nobody to. An expert that is probed is not among them."""
        return tuple(sorted(expert for expert, outcast in self._outcasts.items() if not outcast.probing))

    def guard_next(self) -> bool:
        """Call it once before each step, and before `left_out`: it may begin a probe. Whether the step is to be
        guarded."""
        for outcast in self._outcasts.values():
            outcast.steps_left -= 1
            outcast.probing = outcast.probing or outcast.steps_left <= 0
        return bool(self._suspects) or any(outcast.probing for outcast in self._outcasts.values())

    def saw(self, faults: Sequence[Expert], routes: Sequence[Tensor]) -> None:
        """After a guarded step: its `Model.faults`, with repetition per token, and `Model.routes`."""
        faulty = Counter(faults)
        self._failures += faulty.total()
        routed = self._routed(faulty, routes)
        new = sorted(faulty.keys() - self._outcasts.keys() - self._suspects.keys())
        for expert in [expert for expert, outcast in self._outcasts.items() if outcast.probing]:
            self._judge_probe(expert, faulty[expert], routed[expert])
        self._suspects.update((expert, _Suspect()) for expert in new)
        for expert in list(self._suspects):
            self._judge(expert, faulty[expert], routed[expert])
        for expert in [expert for expert, suspect in self._suspects.items() if suspect.failures >= FAILURES]:
            self._trip(expert)

    def summary(self) -> BreakerSummary:
        left_out = tuple(sorted(self._outcasts))
        return BreakerSummary(self._failures, self._trips, self._returns, left_out, tuple(sorted(self._kept)))

    def _routed(self, faulty: Iterable[Expert], routes: Sequence[Tensor]) -> dict[Expert, int]:
        """Tokens of the step by expert, for those in question."""
        by_layer = dict(zip(self._layers, routes, strict=True))
        probed = {expert for expert, outcast in self._outcasts.items() if outcast.probing}
        in_question = probed.union(faulty, self._suspects)
        return {(layer, expert): int((by_layer[layer] == expert).sum()) for layer, expert in in_question}

    def _judge(self, expert: Expert, failed: int, routed: int) -> None:
        """A step has no order among its tokens: one success in it ends the row of failures. Without a failure it ends
        the suspicion, too."""
        suspect = self._suspects[expert]
        if failed:
            suspect.failures = suspect.failures + failed if failed >= routed else 0
            suspect.unseen = 0
        else:
            suspect.unseen += 1
            if routed or suspect.unseen >= _PATIENCE_STEPS:
                self._clear(expert)

    def _clear(self, expert: Expert) -> None:
        del self._suspects[expert]
        self._kept.discard(expert)

    def _trip(self, expert: Expert) -> None:
        layer, number = expert
        if not self._can_lose(expert):
            if expert not in self._kept:
                self._kept.add(expert)
                logger.error("ALERT expert %d of layer %d keeps failing, but the layer has no others", number, layer)
            return
        del self._suspects[expert]
        self._kept.discard(expert)
        self._outcasts[expert] = _Outcast()
        self._trips += 1
        logger.error(
            "ALERT expert %d of layer %d is out of routing after %d failures in a row; %d experts are out",
            *(number, layer, FAILURES, len(self._outcasts)),
        )

    def _can_lose(self, expert: Expert) -> bool:
        """Whether the layer's router still finds as many choices as it takes."""
        layer, number = expert
        lost = {other % self._choices for at, other in self._outcasts if at == layer} | {number % self._choices}
        return self._choices - len(lost) >= self._least

    def _judge_probe(self, expert: Expert, failed: int, routed: int) -> None:
        (layer, number), outcast = expert, self._outcasts[expert]
        if failed:
            outcast.wait = min(2 * outcast.wait, LAST_PROBE_STEPS)
        elif routed:
            del self._outcasts[expert]
            self._returns += 1
            logger.warning("expert %d of layer %d is back in routing; %d are out", number, layer, len(self._outcasts))
            return
        else:
            outcast.unseen += 1
            if outcast.unseen < _PATIENCE_STEPS:
                return
        outcast.probing, outcast.unseen, outcast.steps_left = False, 0, outcast.wait
