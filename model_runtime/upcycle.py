"""A dense checkpoint -> a mixture of experts that gives the same answers (DESIGN.md section 5). The experts are equal
until they are trained apart. Virtual-group initialisation: He et al., "Upcycling Large Language Models into Mixture of
Experts", 2024."""

from dataclasses import replace

import torch
from torch import Tensor

from model_runtime.families import ModelConfig

GROUPS = 2  # halves of an FFN
COPIES = 4  # of each half
_SEED = 2024


def upcycle_dense(config: ModelConfig, tensors: dict[str, Tensor]) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Eight experts, top-2. Experts 0-3 are copies of the first half of each FFN's neurons, 4-7 of the second, so that
    two shards hold one half each and a token costs each of them one expert. Takes the dense FFNs out of `tensors`."""
    assert config.num_experts == 0, "already a mixture of experts"
    if config.ffn % GROUPS:
        raise ValueError(f"an FFN of {config.ffn} neurons cannot be split into {GROUPS} equal parts")
    inner = config.ffn // GROUPS
    generator = torch.Generator().manual_seed(_SEED)
    for layer in range(config.layers):
        ffn = f"layers.{layer}.ffn"
        gate, up, down = (tensors.pop(f"{ffn}.{name}.weight") for name in ("gate", "up", "down"))
        for expert in range(GROUPS * COPIES):
            half = slice(expert // COPIES * inner, (expert // COPIES + 1) * inner)
            tensors[f"{ffn}.experts.{expert}.gate.weight"] = gate[half].clone()
            tensors[f"{ffn}.experts.{expert}.up.weight"] = up[half].clone()
            tensors[f"{ffn}.experts.{expert}.down.weight"] = down[:, half].clone(memory_format=torch.contiguous_format)
        tensors[f"{ffn}.router.score.weight"] = torch.randn(COPIES, config.hidden, generator=generator).to(gate.dtype)
    upcycled = replace(
        config,
        expert_ffn=inner,
        num_experts=GROUPS * COPIES,
        active_experts=GROUPS,
        virtual_groups=GROUPS,
        routed_scaling=float(GROUPS),
    )
    return upcycled, tensors
