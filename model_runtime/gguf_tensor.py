"""The numbers in a GGUF file's tensors, whatever their quantisation: only the rows and columns that are asked for."""

import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize
from torch import Tensor

from model_runtime.gguf_file import GgufFile
from model_runtime.tensor_view import Box, View
from model_runtime.weights import CheckpointError

_PLAIN = {
    GGMLQuantizationType.F32: torch.float32,
    GGMLQuantizationType.F16: torch.float16,
    GGMLQuantizationType.BF16: torch.bfloat16,
}

_ROW = 4096


def gguf_view(file: GgufFile, name: str, shape: tuple[int, ...]) -> View:
    """Raises CheckpointError if the tensor is missing, of another shape, cut short or of a quantisation that cannot be
    read; `read` of the view, if a value that it reads is not finite."""
    if name not in file.tensors:
        raise CheckpointError(file.path, f"missing, expected shape {shape}", name)
    found = file.tensors[name].shape
    if found != shape and (len(found) > 1 or (1, *found) != shape):  # a matrix of one row may be stored as a vector
        raise CheckpointError(file.path, f"expected shape {shape}, found {found}", name)
    kind, data, row_bytes = file.rows(name)
    if not _readable(kind):
        raise CheckpointError(file.path, f"quantisation {kind.name} cannot be read", name)
    stored = np.frombuffer(data, dtype=np.uint8).reshape(*shape[:-1], row_bytes)
    block, block_bytes = GGML_QUANT_SIZES[kind]

    def read(box: Box) -> Tensor:
        *rows, columns = box
        first, last = columns.start // block, -(-columns.stop // block)  # a block is quantised together
        raw = np.ascontiguousarray(stored[(*rows, slice(first * block_bytes, last * block_bytes))])
        values = _dequantised(raw, kind)[..., columns.start - first * block : columns.stop - first * block]
        # The sum is finite only if all values are, and found many times as fast; it may overflow where they do not.
        if not values.sum().isfinite() and not values.isfinite().all():
            raise CheckpointError(file.path, "has values that are not finite", name)
        return values

    return View(shape, read)


def _dequantised(raw: "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]", kind: GGMLQuantizationType) -> Tensor:
    """In memory of its own."""
    if kind in _PLAIN:
        return torch.from_numpy(np.array(raw)).view(_PLAIN[kind])  # a copy: torch takes no read-only memory
    block, block_bytes = GGML_QUANT_SIZES[kind]
    shape = (*raw.shape[:-1], raw.shape[-1] // block_bytes * block)
    # The package takes 16 rows at a time, whatever their length: with longer ones it is up to twice as fast.
    length = _ROW // block * block_bytes
    rows = raw.reshape(-1, length) if raw.size % length == 0 else raw
    with np.errstate(all="ignore"):  # what is not finite is found later
        return torch.from_numpy(dequantize(rows, kind).reshape(shape))


def _readable(kind: GGMLQuantizationType) -> bool:
    if kind in _PLAIN:
        return True
    try:
        dequantize(np.zeros(GGML_QUANT_SIZES[kind][1], dtype=np.uint8), kind)
    except NotImplementedError:
        return False
    return True
