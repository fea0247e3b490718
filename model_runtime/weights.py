"""A checkpoint's parameters before they are read: names and shapes, and how to get the part that a shard holds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from model_runtime.families import ModelConfig

if TYPE_CHECKING:  # the gateway reads a checkpoint's tokenizer, and has no torch
    from torch import Tensor


class CheckpointError(ValueError):
    """A checkpoint that cannot be used. `tensor` is empty when the header or the config is at fault."""

    def __init__(self, file: str, problem: str, tensor: str = "") -> None:
        super().__init__(file, problem, tensor)
        self.file, self.problem, self.tensor = file, problem, tensor

    def __str__(self) -> str:
        place = f"{self.file}: tensor {self.tensor}" if self.tensor else self.file
        # Names come from the file: they must not break a line of the log, or be what it cannot write.
        return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in f"{place}: {self.problem}")


@dataclass(frozen=True, slots=True)
class Part:
    """Which slices of a parameter along `dim`, in this order: half-open ranges, none of them empty."""

    dim: int
    ranges: tuple[tuple[int, int], ...]

    def of(self, whole: "Tensor") -> "Tensor":
        """A view if it is one range, else memory of its own."""
        import torch

        pieces = [whole.narrow(self.dim, start, stop - start) for start, stop in self.ranges]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, self.dim)

    def shape(self, whole: tuple[int, ...]) -> tuple[int, ...]:
        size = sum(stop - start for start, stop in self.ranges)
        return (*whole[: self.dim], size, *whole[self.dim + 1 :])


@dataclass(frozen=True, slots=True)
class Weight:
    """One parameter of model.Model (see Model for the names), as some checkpoint holds it. `read(None)` gives the whole
    of it, `read(part)` the part, in the checkpoint's precision. Only what is asked for is read from the disk. Who keeps
    it, or changes it, makes a copy: others may get the same memory. Raises CheckpointError when the values cannot be
    used."""

    shape: tuple[int, ...]
    read: "Callable[[Part | None], Tensor]"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model that is not loaded yet: exactly the parameters of model.Model(config), without "head.weight" if the
    embeddings are tied."""

    config: ModelConfig
    weights: Mapping[str, Weight]
