"""A checkpoint's parameters before they are read: names and shapes, and how to get the part that a shard holds."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Part:
    """Which slices of a parameter along `dim`, in this order: half-open ranges."""

    dim: int
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Weight:
    """One parameter of model.Model (see Model for the names), as some checkpoint holds it. `read(None)` gives the whole
    of it, `read(part)` the part, in the checkpoint's precision, in memory of its own or mapped from the file. Only what
    is asked for is read from the disk. Raises CheckpointError when the values cannot be used."""

    shape: tuple[int, ...]
    read: Callable[[Part | None], Tensor]
