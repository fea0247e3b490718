"""MXFP4: 32 values of four bits share one power of two. OCP Microscaling Formats (MX) Specification 1.0."""

import torch
from torch import Tensor

from model_runtime.tensor_view import Box, View
from model_runtime.weights import CheckpointError

BLOCK = 32  # values that share a scale
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
_NOT_A_NUMBER = 255  # as a scale


def dequantised(blocks: View, scales: View, damaged: CheckpointError) -> View:
    """`blocks` [rows, columns / 32, 16] bytes, the earlier value in the low half of each; `scales` [rows, columns / 32]
    exponents, biased by 127 -> [rows, columns] bfloat16, which holds every value exactly."""

    def read(box: Box) -> Tensor:
        rows, columns = box
        groups = slice(columns.start // BLOCK, -(-columns.stop // BLOCK))
        packed, exponents = blocks.read((rows, groups, slice(0, BLOCK // 2))), scales.read((rows, groups))
        halves = torch.stack((packed & 15, packed >> 4), -1).flatten(2)  # [rows, groups, 32]
        values = torch.tensor(_E2M1)[halves.int()]
        values = torch.ldexp(values, exponents.int()[..., None] - 127).to(torch.bfloat16).flatten(1)
        if (exponents == _NOT_A_NUMBER).any() or not values.isfinite().all():
            raise damaged
        first = groups.start * BLOCK
        return values[:, columns.start - first : columns.stop - first]

    return View((blocks.shape[0], blocks.shape[1] * BLOCK), read)
