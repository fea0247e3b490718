"""A dense checkpoint -> a mixture of experts that gives the same answers (DESIGN.md section 5). The experts are equal
until they are trained apart. Virtual-group initialisation: He et al., "Upcycling Large Language Models into Mixture of
Experts", 2024."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial

import torch
from torch import Tensor

from model_runtime.weights import Checkpoint, Part, Weight

GROUPS = 2  # halves of an FFN
COPIES = 4  # of each half
_SEED = 2024
_SPLIT = {"gate": 0, "up": 0, "down": 1}  # the dimension along which the neurons of an FFN lie


def upcycle_dense(checkpoint: Checkpoint) -> Checkpoint:
    """Eight experts, top-2. Experts 0-3 are copies of the first half of each FFN's neurons, 4-7 of the second, so that
    two shards hold one half each and a token costs each of them one expert.

    Raises ValueError if the FFN cannot be halved."""
    config, weights = checkpoint.config, dict(checkpoint.weights)
    assert config.num_experts == 0, "already a mixture of experts"
    if config.ffn % GROUPS:
        raise ValueError(f"an FFN of {config.ffn} neurons cannot be split into {GROUPS} equal parts")
    inner = config.ffn // GROUPS

    @lru_cache(maxsize=len(_SPLIT))  # the copies of a half, read expert by expert, take one reading
    def half(parameter: str, group: int) -> Tensor:
        dim = _SPLIT[parameter.split(".")[-2]]
        return checkpoint.weights[parameter].read(Part(dim, ((group * inner, (group + 1) * inner),)))

    generator = torch.Generator().manual_seed(_SEED)
    for layer in range(config.layers):
        ffn = f"layers.{layer}.ffn"
        for name, dim in _SPLIT.items():
            parameter = f"{ffn}.{name}.weight"
            shape = list(weights.pop(parameter).shape)
            shape[dim] = inner
            for expert in range(GROUPS * COPIES):
                copied = partial(half, parameter, expert // COPIES)
                weights[f"{ffn}.experts.{expert}.{name}.weight"] = _weight(tuple(shape), copied)
        router = torch.randn(COPIES, config.hidden, generator=generator)
        weights[f"{ffn}.router.score.weight"] = _weight(tuple(router.shape), router.clone)
    upcycled = replace(
        config,
        expert_ffn=inner,
        num_experts=GROUPS * COPIES,
        active_experts=GROUPS,
        virtual_groups=GROUPS,
        routed_scaling=float(GROUPS),
    )
    return Checkpoint(upcycled, weights)


def _weight(shape: tuple[int, ...], whole: Callable[[], Tensor]) -> Weight:
    return Weight(shape, lambda part: whole() if part is None else part.of(whole()))
