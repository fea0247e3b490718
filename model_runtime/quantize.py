"""Four-bit copies of weights that lie on a four-bit grid already, so that nothing is lost. For steps of few tokens on
CPUs: their time goes into reading weights, and this reads a third of the bytes. With many tokens it would be slower."""

from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 32  # inputs that share a scale and a zero point, as in GGUF's Q4_1
_OFF_GRID = 0.15  # of a step; bfloat16 rounding moves a weight by up to 0.06, a weight of no grid lies up to 0.5 off


@dataclass(frozen=True, slots=True)
class FourBit:
    packed: Tensor
    scales: Tensor  # [inputs / BLOCK, outputs, 2]: scale, zero point

    def product(self, x: Tensor) -> Tensor:
        """x [T, inputs] bfloat16 -> [T, outputs]"""
        return torch.ops.aten._weight_int4pack_mm_for_cpu(x, self.packed, BLOCK, self.scales)  # type: ignore[no-any-return]


def four_bit(weight: Tensor) -> FourBit | None:
    """None if the weight [outputs, inputs] is not bfloat16 or not on a grid of 16 levels from the lowest to the highest
    value of each block, which is how Q4_1 lays it out."""
    outputs, inputs = weight.shape
    if weight.dtype != torch.bfloat16 or inputs % BLOCK or outputs % 16:
        return None
    blocks = weight.float().view(outputs, -1, BLOCK)
    low, high = blocks.amin(-1, keepdim=True), blocks.amax(-1, keepdim=True)  # aminmax takes four times as long
    step = ((high - low) / 15).clamp_min_(torch.finfo(torch.float32).tiny)
    exact = blocks.sub_(low).div_(step)
    levels = exact.round()
    if exact.sub_(levels).abs_().max() > _OFF_GRID:
        return None
    packed = torch._convert_weight_to_int4pack_for_cpu(levels.view(outputs, inputs).to(torch.int32), 1)
    scales = torch.cat([step, low + 8 * step], dim=-1).transpose(0, 1)  # the kernel's levels count from 8
    return FourBit(packed, scales.contiguous().bfloat16())
