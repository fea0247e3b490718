"""Safetensors: the header, checked against the file, and tensor data, memory-mapped. Nothing in it is executed or
unpickled. Format: https://github.com/huggingface/safetensors#format"""

import json
import math
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from model_runtime.tensor_view import View
from model_runtime.weights import CheckpointError

_MOST_HEADER_BYTES = 100_000_000  # the format's own limit
_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_STORED = {"F32": np.float32, "F16": np.float16, "BF16": np.int16, "U8": np.uint8}  # numpy has no bfloat16
FLOATS = ("F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class StoredTensor:
    file: "SafetensorsFile"
    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    def view(self, shape: tuple[int, ...], dtypes: tuple[str, ...] = FLOATS) -> View:
        """Raises CheckpointError if the tensor is not what is expected; the view's `read`, if a value that it reads is
        not finite."""
        if self.shape != shape:
            raise self.file.error(f"expected shape {shape}, found {self.shape}", self.name)
        if self.dtype not in dtypes:
            raise self.file.error(f"expected dtype {' or '.join(dtypes)}, found {self.dtype}", self.name)
        return View(shape, self._read)

    def _read(self, box: tuple[slice, ...]) -> Tensor:
        values = torch.from_numpy(self.file.array(self)[box].copy())
        if self.dtype == "U8":
            return values
        if self.dtype == "BF16":
            values = values.view(torch.bfloat16)
        if values.numel() and not all(torch.isfinite(end) for end in torch.aminmax(values)):  # NaN if there is a NaN
            raise self.file.error("has values that are not finite", self.name)
        return values


class SafetensorsFile:
    """Raises CheckpointError if the file is damaged or no safetensors, OSError if it cannot be opened."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            self._bytes = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b"")
        header = int.from_bytes(self._bytes[:8], "little")
        if size < 10 or header > min(size - 8, _MOST_HEADER_BYTES):
            raise self.error(f"cut short or no safetensors: a header of {header} bytes in a file of {size}")
        self._start = 8 + header
        self.tensors = self._tensors(self._header(header), size)

    def array(self, tensor: StoredTensor) -> np.ndarray[Any, Any]:
        """Mapped and read-only; bfloat16 as int16."""
        data = self._bytes[self._start + tensor.begin : self._start + tensor.end]
        return np.frombuffer(data, _STORED[tensor.dtype]).reshape(tensor.shape)

    def error(self, problem: str, tensor: str = "") -> CheckpointError:
        return CheckpointError(self.path, problem, tensor)

    def _header(self, length: int) -> dict[str, Any]:
        try:
            found = json.loads(bytes(self._bytes[8 : 8 + length]), object_pairs_hook=self._unique)
        except CheckpointError:
            raise
        except (ValueError, RecursionError) as error:
            raise self.error("damaged or no safetensors: its header is not JSON") from error
        if not isinstance(found, dict):
            raise self.error(f"damaged: its header is a {type(found).__name__}, not an object")
        return found

    def _unique(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise self.error("damaged: a name stands twice in its header")
        return found

    def _tensors(self, header: dict[str, Any], size: int) -> dict[str, StoredTensor]:
        header.pop("__metadata__", None)
        tensors = {name: self._tensor(name, entry) for name, entry in header.items()}
        at = 0
        for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.begin, tensor.end)):
            if tensor.begin != at:
                raise self.error(f"damaged: begins at byte {tensor.begin}, expected {at}", tensor.name)
            at = tensor.end
        if self._start + at != size:
            raise self.error(f"cut short or damaged: {size} bytes, its header describes {self._start + at}")
        return tensors

    def _tensor(self, name: str, entry: Any) -> StoredTensor:
        match entry:
            case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(begin), int(end)]} if all(
                type(length) is int and length >= 0 for length in shape
            ):
                kept = StoredTensor(self, name, dtype, tuple(shape), begin, end)
            case _:
                raise self.error("damaged: its entry in the header lacks dtype, shape or data_offsets", name)
        stored = _STORED.get(dtype)
        if not 0 <= begin <= end or (stored and end - begin != math.prod(shape) * np.dtype(stored).itemsize):
            raise self.error(f"damaged: {dtype} of shape {kept.shape} in bytes {begin} to {end}", name)
        return kept


def open_tensors(folder: Path) -> dict[str, StoredTensor]:
    """The tensors of model.safetensors, or of the files that model.safetensors.index.json lists. Raises CheckpointError
    if there are none, or the index and the files disagree."""
    if (folder / _SINGLE).exists():
        return SafetensorsFile(folder / _SINGLE).tensors
    if not (folder / _INDEX).exists():
        raise CheckpointError(str(folder), _why_not(folder))
    by_file = _index(folder / _INDEX)
    for file in by_file:
        if not (folder / file).exists():
            raise CheckpointError(str(folder / _INDEX), f"lists {file}, which is not there")
    found: dict[str, StoredTensor] = {}
    for file, names in by_file.items():
        tensors = SafetensorsFile(folder / file).tensors
        for name in names ^ tensors.keys():
            where = "in the index, not in the file" if name in names else "in the file, not in the index for it"
            raise CheckpointError(str(folder / file), where, name)
        found |= tensors
    return found


def _index(path: Path) -> Mapping[str, set[str]]:
    """File -> the tensors in it."""
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(str(path), "is not JSON") from error
    files: dict[str, set[str]] = {}
    match found:
        case {"weight_map": dict(weight_map)} if weight_map:
            for name, file in weight_map.items():
                if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
                    raise CheckpointError(str(path), f"file {file!r} is not a safetensors file of this folder", name)
                files.setdefault(file, set()).add(name)
            return files
    raise CheckpointError(str(path), "has no weight_map from tensors to files")


def _why_not(folder: Path) -> str:
    if any(path.suffix in _PICKLES for path in folder.glob("*")):
        return f"has no {_SINGLE} but pickles, which can run code when they are read: convert them to safetensors"
    return f"has neither {_SINGLE} nor {_INDEX}"
