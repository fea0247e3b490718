"""Quantised weights as our own checkpoints store them: levels, and what they stand for. quantize.py has the layouts
that kernels want; these are for the disk, and can be read by rows and columns."""

from typing import Literal

import torch
from torch import Tensor

from model_runtime.quantize import BLOCK
from model_runtime.tensor_view import Box, View

# O outputs, I inputs

Kept = Literal["int8", "int4"]
LEVELS, SCALES = ".levels", ".scales"  # after the parameter's name


def can_quantize(shape: tuple[int, ...]) -> bool:
    """What the kernels take, too."""
    return len(shape) == 2 and shape[0] % 16 == 0 and shape[1] % BLOCK == 0


def stored_shapes(shape: tuple[int, ...], kept: Kept) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of the levels (uint8), and of the scales (bfloat16)."""
    outputs, inputs = shape
    if kept == "int8":
        return shape, (outputs, 1)
    return (outputs, inputs // 2), (outputs, inputs // BLOCK * 2)


def to_levels(weight: Tensor, kept: Kept) -> tuple[Tensor, Tensor]:
    """[O, I] -> levels and scales. int8: 1 to 255 around 128, a scale per output. int4: two levels a byte, the even
    input in the low half; per block of inputs a step and the lowest value, in turns."""
    if kept == "int8":
        scales = (weight.float().abs().amax(-1, keepdim=True) / 127).clamp_min_(_LEAST).bfloat16()
        levels = (weight.float() / scales.float()).round_().clamp_(-127, 127) + 128
        return levels.to(torch.uint8), scales
    blocks = weight.float().view(len(weight), -1, BLOCK)
    low = blocks.amin(-1, keepdim=True).bfloat16().float()
    step = ((blocks.amax(-1, keepdim=True) - low) / 15).clamp_min_(_LEAST).bfloat16().float()
    levels = ((blocks - low) / step).round_().clamp_(0, 15).to(torch.uint8).view(len(weight), -1)
    scales = torch.cat([step, low], dim=-1).view(len(weight), -1)
    return levels[:, ::2] | levels[:, 1::2] << 4, scales.bfloat16()


def levels_view(levels: View, scales: View, shape: tuple[int, ...], kept: Kept) -> View:
    """The weights that `to_levels` was given, in float32 and as exact as the levels are."""
    return View(shape, lambda box: _eight(levels, scales, box) if kept == "int8" else _four(levels, scales, box))


_LEAST = torch.finfo(torch.bfloat16).tiny


def _eight(levels: View, scales: View, box: Box) -> Tensor:
    return (levels.read(box).float() - 128) * scales.read((box[0], slice(0, 1))).float()


def _four(levels: View, scales: View, box: Box) -> Tensor:
    rows, columns = box
    first, last = columns.start // BLOCK, -(-columns.stop // BLOCK)  # whole blocks
    pairs = levels.read((rows, slice(first * BLOCK // 2, last * BLOCK // 2)))
    blocks = torch.stack([pairs & 15, pairs >> 4], dim=-1).float().view(len(pairs), -1, BLOCK)
    step, low = scales.read((rows, slice(2 * first, 2 * last))).float().view(len(pairs), -1, 2, 1).unbind(2)
    values = (blocks * step + low).view(len(pairs), -1)
    return values[:, columns.start - first * BLOCK : columns.stop - first * BLOCK]
