"""A checkpoint -> the model, or the part of it that one rank holds, ready to compute."""

import ctypes
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from model_runtime.gguf import open_gguf
from model_runtime.load_progress import LoadProgress
from model_runtime.model import Model, finish_model, stays_float32
from model_runtime.own_checkpoint import is_own, open_own
from model_runtime.quantize import Mode
from model_runtime.safetensors_checkpoint import open_safetensors
from model_runtime.shard import Collective, apply_sharding
from model_runtime.upcycle import upcycle_dense
from model_runtime.weights import Checkpoint, CheckpointError, Part

logger = logging.getLogger(__name__)

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of glibc's mallopt


def open_checkpoint(path: Path) -> Checkpoint:
    """A GGUF file, a folder of safetensors, or one of our own. Raises CheckpointError, OSError."""
    opened: Callable[[Path], Checkpoint] = open_gguf
    if path.is_dir():
        opened = open_own if is_own(path) else open_safetensors
    checkpoint = opened(path)
    if flaw := checkpoint.config.flaw():
        raise CheckpointError(str(path), flaw)
    return checkpoint


def load_model(
    path: Path | str,
    *,
    dtype: torch.dtype,
    device: torch.device | str,
    upcycle: bool,
    quantize: Mode = "none",
    collective: Collective | None = None,
) -> Model:
    """Reads what the rank of `collective` holds, without one everything, a layer at a time, and packs each at once.
    `upcycle`: turn the FFNs of a dense checkpoint into experts; a mixture of experts stays as it is.

    Raises CheckpointError if the checkpoint cannot be used, OSError if it cannot be read, ValueError if it cannot be
    upcycled or does not divide over the ranks."""
    path = Path(path)
    checkpoint = open_checkpoint(path)
    if upcycle and checkpoint.config.num_experts:
        logger.info("%s is a mixture of %d experts already", path.name, checkpoint.config.num_experts)
    elif upcycle:
        checkpoint = upcycle_dense(checkpoint)
    with torch.device("meta"):
        model = Model(checkpoint.config)
    _assert_same_parameters(model, checkpoint)
    parts = apply_sharding(model, collective) if collective is not None else {}
    shard = _Shard(model, checkpoint, parts, dtype, torch.device(device))
    leads = collective is None or collective.rank == 0
    progress = LoadProgress(path.name, shard.total_bytes, sys.stderr, shown=leads)
    with progress as bar, _freed_memory_is_given_back():
        for name in shard.names_outside_layers():
            bar.advance(shard.read(name))
        for number, layer in enumerate(model.layers):
            for name in shard.names_in(number):
                bar.advance(shard.read(name))
            shard.forget_copies()
            layer.pack(quantize)
        model.head.pack(quantize)
    return finish_model(model, device)


class _Shard:
    """A model whose parameters are on the meta device, but for those that were read already."""

    def __init__(
        self, model: Model, checkpoint: Checkpoint, parts: dict[str, Part], dtype: torch.dtype, device: torch.device
    ) -> None:
        self._model, self._weights, self._parts = model, checkpoint.weights, parts
        self._config, self._dtype, self._device = checkpoint.config, dtype, device
        self._bytes = {
            name: parameter.numel() * self._dtype_of(name).itemsize for name, parameter in model.named_parameters()
        }
        self.total_bytes = sum(self._bytes.values())
        self._copies: dict[int, tuple[Tensor, Tensor]] = {}  # by id: what was read, and what is held of it

    def names_outside_layers(self) -> list[str]:
        """The largest first: while one is read, it takes up to three times its memory, and nothing else is there yet.
        A tied head comes after the embedding, which it is a view of."""
        outside = [name for name in self._bytes if not name.startswith("layers.")]
        return sorted(outside, key=lambda name: (name not in self._weights, -self._bytes[name]))

    def names_in(self, layer: int) -> list[str]:
        return [name for name in self._bytes if name.startswith(f"layers.{layer}.")]

    def read(self, name: str) -> int:
        """How many bytes it has."""
        part = self._parts.get(name)
        if name in self._weights:
            held = self._held(self._weights[name].read(part), self._dtype_of(name))
        else:
            assert name == "head.weight" and self._config.tied_embeddings, name
            held = self._model.embedding.detach()
            held = held if part is None else part.of(held)
        owner, _, leaf = name.rpartition(".")
        module = self._model.get_submodule(owner)
        assert held.shape == getattr(module, leaf).shape, f"{name}: {held.shape}, not {getattr(module, leaf).shape}"
        setattr(module, leaf, nn.Parameter(held, requires_grad=False))
        return self._bytes[name]

    def forget_copies(self) -> None:
        self._copies.clear()

    def _held(self, values: Tensor, dtype: torch.dtype) -> Tensor:
        """In memory of its own, but for experts that are copies of each other: they share it."""
        if id(values) not in self._copies:
            held = values.to(self._device, dtype, copy=True, memory_format=torch.contiguous_format)
            self._copies[id(values)] = values, held
        return self._copies[id(values)][1]

    def _dtype_of(self, name: str) -> torch.dtype:
        return torch.float32 if stays_float32(name, self._config) else self._dtype


@contextmanager
def _freed_memory_is_given_back() -> Iterator[None]:
    """glibc would keep much of what reading and packing free, up to half of what the model holds: while loading, large
    blocks go back to the system at once. Steps shall rather keep theirs: a prompt of 512 tokens would spend a third of
    its time on page faults."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 1 << 20)
        mallopt(_TRIM_THRESHOLD, 128 << 10)
    try:
        yield
    finally:
        if mallopt is not None:
            mallopt(_MMAP_THRESHOLD, 32 << 20)
            mallopt(_TRIM_THRESHOLD, 512 << 20)


def _assert_same_parameters(model: Model, checkpoint: Checkpoint) -> None:
    wanted = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    if checkpoint.config.tied_embeddings:
        del wanted["head.weight"]
    offered = {name: weight.shape for name, weight in checkpoint.weights.items()}
    assert wanted == offered, f"parameters differ: {wanted.items() ^ offered.items()}"
