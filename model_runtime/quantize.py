"""Weights in eight or four bits. Four bits lose nothing where the weights lie on such a grid already (four_bit); else a
little is lost for less memory (quantize)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Mode = Literal["none", "int8", "int4"]
BLOCK = 32  # inputs that share a scale and a zero point, as in GGUF's Q4_0 and Q4_1
_OFF_GRID = 0.15  # of a step; bfloat16 rounding moves a weight by up to 0.06, a weight of no grid lies up to 0.5 off
_ROWS = 1024  # converted at once: a float32 copy of a whole head would be the peak of a load
_TOKENS = 128  # computed at once: what lies between stays in the cache, and 512 take 1.5 times as long
_DOUBLED, _SHARE = 32, 4  # see IntegerProduct
_TINY = torch.finfo(torch.float32).tiny


@dataclass(frozen=True, slots=True)
class FourBit:
    """weight = (level - 8) * scale + zero, with a scale and a zero for each BLOCK inputs of an output."""

    packed: Tensor
    scales: Tensor  # [inputs / BLOCK, outputs, 2]: scale, zero
    kernel: Callable[[Tensor, Tensor, int, Tensor], Tensor]

    def product(self, x: Tensor) -> Tensor:
        """x [T, inputs] in the weights' dtype -> [T, outputs]"""
        return self.kernel(x, self.packed, BLOCK, self.scales)


@dataclass(frozen=True, slots=True)
class EightBit:
    """weight = level * scale, with a scale for each output."""

    levels: Tensor  # [outputs, inputs] int8
    scales: Tensor  # [outputs], the weights' dtype

    def product(self, x: Tensor) -> Tensor:
        """x [T, inputs] in the weights' dtype -> [T, outputs]"""
        if x.device.type == "cpu":
            return torch._weight_int8pack_mm(x, self.levels, self.scales)
        return F.linear(x, self.levels.to(x.dtype)).mul_(self.scales)  # CUDA's own kernel computes element by element


class IntegerProduct:
    """An int8 weight with a scale for each output, in oneDNN's layout for CPUs that multiply int8 (VNNI, AMX).

    x becomes two digits in base 254, both int8, relative to its row's largest value: 16 bits. Twice the rows cost
    little, as the time goes into reading weights, and one digit is not enough (docs/performance.md). The sums are
    integers, so a row's result does not depend on what else is in the batch.

    Some inputs have much larger weights than others, which would make the scales coarse for all. These weights are
    divided by _SHARE and get a second digit, as if x had the inputs twice: `sources` says which, `factors` times what.
    """

    def __init__(self, levels: Tensor, scales: Tensor, sources: Tensor, factors: Tensor) -> None:
        """levels [outputs, inputs and second digits] int8, scales [outputs] float32; sources, factors: one a column"""
        self._levels = torch.ops.onednn.qlinear_prepack(levels, None)
        self._scales = scales
        self._zeros = torch.zeros(len(scales), dtype=torch.int64)
        self._sources, self._factors = sources, factors

    def product(self, x: Tensor) -> Tensor:
        """x [T, inputs] -> [T, outputs] in x's dtype"""
        if x.shape[0] > _TOKENS:
            return torch.cat([self.product(part) for part in torch.split(x, _TOKENS)])
        return self.exact(x).to(x.dtype)

    def exact(self, x: Tensor) -> Tensor:
        """x [T, inputs] -> [T, outputs] float32"""
        rows = x.shape[0]
        exact = x.index_select(1, self._sources) * self._factors
        step = exact.abs().amax(-1, keepdim=True).mul_(1 / 127).clamp_min_(_TINY)  # vector_norm takes twice as long
        low = exact / step
        high = low.round()
        low.sub_(high).mul_(254)
        digits = torch.cat([high, low]).add_(128.5).to(torch.uint8)  # truncates; oneDNN is slow or wrong with signed x
        both: Tensor = _integer_linear(
            digits, 1.0, 128, self._levels, self._scales, self._zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        return both[:rows].add_(both[rows:], alpha=1 / 254).mul_(step)


Quantized = FourBit | EightBit | IntegerProduct


def quantize(weight: Tensor, mode: Literal["int8", "int4"]) -> Quantized | None:
    """int8: symmetric, 255 levels for each output. int4: 16 levels from the lowest to the highest value of each BLOCK.
    None if the weight [outputs, inputs] has a shape or a dtype that the device's kernel does not take."""
    if mode == "int8":
        return eight_bit(weight)
    if not _fits_four_bit(weight):
        return None
    levels, step, zero = _between(weight)
    return _packed(levels.round_(), step, zero, weight)


def eight_bit(weight: Tensor) -> EightBit | IntegerProduct | None:
    """See quantize."""
    on_cpu = weight.device.type == "cpu"
    if on_cpu and multiplies_integers():
        return _integer_product(weight)
    if on_cpu and weight.shape[1] % BLOCK:
        return None  # the kernel would read beyond the end
    scales = weight.abs().amax(-1).float().div_(127).clamp_min_(_TINY)
    return EightBit((weight / scales.unsqueeze(1)).round_().to(torch.int8), scales.to(weight.dtype))


def four_bit(weight: Tensor) -> FourBit | None:
    """None if the weight [outputs, inputs] is not bfloat16 or does not lie on the grid of Q4_1 or Q4_0."""
    if weight.dtype != torch.bfloat16 or not _fits_four_bit(weight):
        return None
    for grid in (_between, _around_zero):
        exact, step, zero = grid(weight)
        levels = exact.round()
        inside = levels.amin() >= 0 and levels.amax() <= 15
        if inside and exact.sub_(levels).abs_().max() <= _OFF_GRID:
            return _packed(levels, step, zero, weight)
    return None


def on_eight_bit_grid(weight: Tensor) -> bool:
    """Whether the weight [outputs, inputs] looks like one read from Q8_0: 255 levels for each BLOCK."""
    outputs, inputs = weight.shape
    if inputs % BLOCK:
        return False
    blocks = weight[:: max(1, outputs // 256)].float().view(-1, BLOCK)  # a sample is enough
    exact = blocks / (blocks.abs().amax(-1, keepdim=True) / 127).clamp_min_(_TINY)
    # Off the grid it would be 0.25; bfloat16 rounding of a level around 40 makes it 0.05.
    return float((exact - exact.round()).abs_().mean()) < 0.12


def multiplies_integers() -> bool:
    """Whether this CPU has instructions for int8 and oneDNN uses them: without, IntegerProduct is slow or wrong."""
    return torch.cpu._is_vnni_supported() and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]


def _integer_product(weight: Tensor) -> IntegerProduct:
    outputs, inputs = weight.shape
    energy = torch.stack([part.float().square().sum(0) for part in torch.split(weight, _ROWS)]).sum(0)
    doubled = energy.topk(min(_DOUBLED, inputs // 8)).indices
    sources = torch.cat([torch.arange(inputs), doubled])
    factors = torch.ones(len(sources))
    factors[doubled], factors[inputs:] = _SHARE, _SHARE / 254
    scales = torch.empty(outputs)
    levels = torch.empty(outputs, len(sources), dtype=torch.int8)
    for first in range(0, outputs, _ROWS):
        rows = slice(first, first + _ROWS)
        exact = weight[rows] / factors[:inputs]
        scales[rows] = exact.abs().amax(-1).div_(127).clamp_min_(_TINY)
        high = exact.div_(scales[rows].unsqueeze(1)).round()
        levels[rows, :inputs] = high
        levels[rows, inputs:] = exact.sub_(high)[:, doubled].mul_(254).round_()
    return IntegerProduct(levels, scales, sources, factors)


def _between(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Exact levels [outputs, blocks, BLOCK], step and zero [outputs, blocks, 1] of a grid as in Q4_1: its ends are the
    lowest and the highest value of each block."""
    blocks = weight.float().view(len(weight), -1, BLOCK)
    low, high = blocks.amin(-1, keepdim=True), blocks.amax(-1, keepdim=True)  # aminmax takes four times as long
    step = ((high - low) / 15).clamp_min_(_TINY)
    return (blocks - low).div_(step), step, low + 8 * step


def _around_zero(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """As in Q4_0: level 8 is zero, and level 0 is the value farthest from zero, so that the step may be negative."""
    blocks = weight.float().view(len(weight), -1, BLOCK)
    step = blocks.gather(-1, blocks.abs().argmax(-1, keepdim=True)).div_(-8)
    step = torch.where(step == 0, _TINY, step)
    return (blocks / step).add_(8), step, torch.zeros_like(step)


def _fits_four_bit(weight: Tensor) -> bool:
    outputs, inputs = weight.shape
    if weight.device.type == "cpu":
        return not inputs % BLOCK and not outputs % 16
    return not inputs % BLOCK and not outputs % 8 and weight.dtype == torch.bfloat16


def _packed(levels: Tensor, step: Tensor, zero: Tensor, weight: Tensor) -> FourBit:
    """levels [outputs, blocks, BLOCK], whole numbers from 0 to 15"""
    whole = levels.view(weight.shape).to(torch.int32)
    scales = torch.cat([step, zero], dim=-1).transpose(0, 1).contiguous().to(weight.dtype)
    if weight.device.type == "cpu":
        packed = torch._convert_weight_to_int4pack_for_cpu(whole, 1)
        return FourBit(packed, scales, torch._weight_int4pack_mm_for_cpu)
    tiles = next(count for count in (8, 4, 2) if weight.shape[1] % (count * 16) == 0)  # the widest that divide it
    pairs = (whole[:, ::2] << 4 | whole[:, 1::2]).to(torch.uint8)
    return FourBit(torch._convert_weight_to_int4pack(pairs, tiles), scales, torch._weight_int4pack_mm)


_integer_linear = torch.ops.onednn.qlinear_pointwise.default
