"""A GGUF file: its header, read once, and its tensor data, memory-mapped. Nothing in it is executed or unpickled.
Knows no torch: the gateway reads the tokenizer without it."""

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from model_runtime.weights import CheckpointError

__all__ = ["CheckpointError", "GgufFile", "StoredTensor"]

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_Value = TypeVar("_Value", str, int, float, list[Any])


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """`shape` in torch's order, outermost first. `data` may end early in a damaged file; see GgufFile.rows."""

    shape: tuple[int, ...]
    kind: int
    begin: int


class GgufFile:
    """The header of a GGUF file. (The gguf package's own reader takes seconds for a vocabulary of 49,152: it makes an
    array of every string.) Raises CheckpointError if the file is damaged or no GGUF, OSError if it cannot be opened."""

    def __init__(self, path: Path | str) -> None:
        self.path = str(path)
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            self._bytes = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b"")
        self._at = 0
        try:
            self.metadata, self.tensors = self._read()
        except (struct.error, UnicodeDecodeError, KeyError, OverflowError, MemoryError, RecursionError) as error:
            raise CheckpointError(self.path, f"cut short or damaged at byte {self._at} of {size}") from error

    def get(self, key: str, default: _Value) -> _Value:
        """Raises CheckpointError if the header has a value of another type than the default's."""
        value = self.metadata.get(key, default)
        if type(value) is not type(default):
            kinds = f"a {type(value).__name__}, not a {type(default).__name__}"
            raise CheckpointError(self.path, f"key {key} holds {kinds}")
        return value

    def require(self, key: str, kind: type[_Value]) -> _Value:
        """Raises CheckpointError if the header has no such key or a value of another type."""
        if key not in self.metadata:
            raise CheckpointError(self.path, f"no key {key} in the header")
        return self.get(key, kind())

    def rows(self, name: str) -> tuple[GGMLQuantizationType, memoryview, int]:
        """A tensor's quantisation, its bytes, and how many bytes make one row. Raises CheckpointError."""
        stored = self.tensors[name]
        try:
            kind = GGMLQuantizationType(stored.kind)
        except ValueError:
            raise CheckpointError(self.path, f"quantisation {stored.kind} is not known", name) from None
        block, block_bytes = GGML_QUANT_SIZES[kind]
        if stored.shape[-1] % block:
            raise CheckpointError(self.path, f"rows of {stored.shape[-1]} do not divide into blocks of {block}", name)
        row_bytes = stored.shape[-1] // block * block_bytes
        end = stored.begin + math.prod(stored.shape[:-1]) * row_bytes
        if end > len(self._bytes):
            raise CheckpointError(self.path, f"its data ends at byte {end}, the file at {len(self._bytes)}", name)
        return kind, self._bytes[stored.begin : end], row_bytes

    def _read(self) -> tuple[dict[str, Any], dict[str, StoredTensor]]:
        if bytes(self._bytes[:4]) != b"GGUF":
            raise CheckpointError(self.path, "not a GGUF file")
        self._at = 4
        version = self._scalar("I")
        if version not in (2, 3):
            raise CheckpointError(self.path, f"GGUF version {version} is not known")
        num_tensors, num_keys = self._scalar("Q"), self._scalar("Q")
        metadata: dict[str, Any] = {}
        for _ in range(num_keys):
            key = self._string()
            metadata[key] = self._value(self._scalar("I"))
        headers = [self._tensor_header() for _ in range(num_tensors)]
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment <= 0 or alignment % 8:
            raise CheckpointError(self.path, f"alignment {alignment!r}")
        start = -(-self._at // alignment) * alignment
        for name, _, _, offset in headers:
            if offset % alignment:
                raise CheckpointError(self.path, f"begins at byte {offset}, between two multiples of {alignment}", name)
        return metadata, {name: StoredTensor(shape, kind, start + offset) for name, shape, kind, offset in headers}

    def _scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self._bytes, self._at)
        self._at += struct.calcsize("<" + code)
        return value

    def _string(self) -> str:
        length = self._scalar("Q")
        end = self._at + length
        if end > len(self._bytes):
            raise OverflowError
        text = str(self._bytes[self._at : end], "utf-8")
        self._at = end
        return text

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._scalar(_SCALARS[kind])
        item, count = self._scalar("I"), self._scalar("Q")
        if item in (_STRING, _ARRAY):
            return [self._value(item) for _ in range(count)]
        layout = struct.Struct(f"<{count}{_SCALARS[item]}")
        values = layout.unpack_from(self._bytes, self._at)
        self._at += layout.size
        return list(values)

    def _tensor_header(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        dims = tuple(self._scalar("Q") for _ in range(self._scalar("I")))
        if not dims:
            raise OverflowError
        return name, dims[::-1], self._scalar("I"), self._scalar("Q")
