"""The experts as the engine's loop sees them: steps that look at them closely when one is in question, and what each
answer's record says of them. Knows no requests but their ids."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from torch import Tensor

from model_runtime.breaker import Breaker, Expert
from model_runtime.experts import ExpertLog
from model_runtime.families import ModelConfig
from model_runtime.kv_cache import Step

SCORES_EVERY_STEPS = 8  # a sample is enough for a mean, and the scores of a step take as long as its counts


class Computed(Protocol):
    """What a model tells about its last step."""

    routes: list[Tensor]
    scores: list[Tensor]
    faults: list[Expert]


class ExpertWatch:
    """`lost`: the experts that the last step did without, wholly or for some token."""

    def __init__(self, config: ModelConfig) -> None:
        self.log = ExpertLog(sum(map(config.has_experts, range(config.layers))), config.num_experts)
        self.breaker = Breaker(config)
        self.lost: frozenset[Expert] = frozenset()
        self._steps = 0

    def plan(self, step: Step) -> Step:
        """Once for each step that is to be computed."""
        guarded = self.breaker.guard_next()
        left_out = self.breaker.left_out
        return replace(step, left_out=left_out, guarded=guarded) if guarded or left_out else step

    def saw(self, step: Step, model: Computed, request_ids: Sequence[str], kept: Iterable[int]) -> bool:
        """After it was computed; `kept` as in ExpertLog.record. Whether other experts are lost than in the step before:
        what was computed until now would come out differently."""
        self.log.record(model.routes, step.spans, request_ids, list(kept))
        if self._steps % SCORES_EVERY_STEPS == 0:
            self.log.record_scores(model.scores)
        self._steps += 1
        before, self.lost = self.lost, frozenset(step.left_out)
        if step.guarded:
            self.breaker.saw(model.faults, model.routes)
            self.lost |= frozenset(model.faults)
        return self.lost != before
