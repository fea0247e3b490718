"""A folder of Hugging Face's (config.json, safetensors) -> the parameters of model.Model, not read yet."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from model_runtime.config_json import Description, read_config_json
from model_runtime.hf_families import ExpertNames
from model_runtime.mxfp4 import BLOCK, dequantised
from model_runtime.parameters import layer_shapes
from model_runtime.safetensors_file import FLOATS, StoredTensor, open_tensors
from model_runtime.tensor_view import View, item, padded, picked, stacked, transposed, with_adjacent_pairs
from model_runtime.weights import Checkpoint, CheckpointError, Weight

# E experts, F inner width, D hidden, H heads, K kv heads, P head_dim

_HARMLESS = ".rotary_emb.inv_freq"  # older checkpoints say again what config.json says
_COMPARED_ROWS = 1024
_TURNED = {  # how many of the tensors stacked into a parameter are turned by rotary embedding: queries, keys
    "attention.qkv.weight": 2,
    "attention.qkv.bias": 2,
    "attention.query_norm.weight": 1,
    "attention.key_norm.weight": 1,
}


def open_safetensors(folder: Path | str) -> Checkpoint:
    """Reads headers only, and the head beside a tied embedding. Raises CheckpointError if config.json asks for what we
    do not compute, or a tensor is missing, unexpected, mis-shaped or of another dtype; other values are looked at when
    their weight is read."""
    return _Assembly(Path(folder), read_config_json(Path(folder) / "config.json")).checkpoint()


class _Assembly:
    def __init__(self, folder: Path, description: Description) -> None:
        self.folder, self.description = folder, description
        self.family, self.config = description.family, description.config
        self.left = open_tensors(folder)  # the tensors that no parameter is made of yet
        self.weights: dict[str, Weight] = {}

    def checkpoint(self) -> Checkpoint:
        matrix = (self.config.vocab, self.config.hidden)
        tied = self.config.tied_embeddings and self._head_is_embedding(matrix)
        self.weights["embedding"] = self._take(self.family.embedding, matrix).weight()
        self.weights["norm.weight"] = self._take(self.family.final_norm, matrix[1:]).weight()
        if not tied:
            self.weights["head.weight"] = self._take(self.family.head, matrix).weight()
        for layer in range(self.config.layers):
            self._add_layer(layer)
        for name, tensor in self.left.items():
            if not name.endswith(_HARMLESS):
                raise tensor.file.error(f"unexpected, of shape {tensor.shape}", name)
        return Checkpoint(replace(self.config, tied_embeddings=tied), self.weights)

    def _head_is_embedding(self, matrix: tuple[int, int]) -> bool:
        """As in transformers, a head that is there and differs is used, though config.json says that they are tied."""
        if self.family.head not in self.left or self.family.embedding not in self.left:
            return True
        head, embedding = (self.left[name].view(matrix) for name in (self.family.head, self.family.embedding))
        for top in range(0, matrix[0], _COMPARED_ROWS):
            box = (slice(top, min(top + _COMPARED_ROWS, matrix[0])), slice(0, matrix[1]))
            if not (head.read(box) == embedding.read(box)).all():
                return False
        del self.left[self.family.head]
        return True

    def _take(self, name: str, shape: tuple[int, ...], dtypes: tuple[str, ...] = FLOATS) -> View:
        return self._stored(name, shape).view(shape, dtypes)

    def _stored(self, name: str, shape: tuple[int, ...]) -> StoredTensor:
        if name not in self.left:
            raise CheckpointError(str(self.folder), f"missing, expected shape {shape}", name)
        return self.left.pop(name)

    def _add_layer(self, layer: int) -> None:
        prefix = self.family.prefix.format(layer=layer)
        for parameter, shapes in layer_shapes(self.config, layer).items():
            names = self.family.layer[parameter]
            views = [self._take(prefix + name, shape) for name, shape in zip(names, shapes, strict=True)]
            turned = _TURNED.get(parameter, 0)
            views[:turned] = [with_adjacent_pairs(view, self.config.head_dim) for view in views[:turned]]
            self.weights[f"layers.{layer}.{parameter}"] = stacked(views).weight()
        if self.config.has_experts(layer):
            self._add_experts(f"layers.{layer}.ffn.", prefix)

    def _add_experts(self, parameter: str, prefix: str) -> None:
        config, names = self.config, self._expert_names(prefix)
        self.weights[f"{parameter}router.score.weight"] = self._take(
            prefix + names.router, (config.num_experts, config.hidden)
        ).weight()
        if config.router_bias:
            bias = self._take(prefix + names.router_bias, (config.num_experts,))
            self.weights[f"{parameter}router.score.bias"] = bias.weight()
        experts = self._separate(prefix, names) if names.gate else self._fused(prefix, names)
        for expert, views in enumerate(experts):
            for name, view in views.items():
                self.weights[f"{parameter}experts.{expert}.{name}"] = view.weight()

    def _expert_names(self, prefix: str) -> ExpertNames:
        """The layout that this checkpoint has; the usual one if it has none, so that the error names that."""
        for names in self.family.experts:
            first = prefix + names.down.format(expert=0)
            if first in self.left or f"{first}_blocks" in self.left:
                return names
        return self.family.experts[0]

    def _separate(self, prefix: str, names: ExpertNames) -> Iterator[dict[str, View]]:
        inner, hidden = self.config.expert_ffn, self.config.hidden
        for expert, width in enumerate(self.description.expert_widths or [inner] * self.config.num_experts):
            gate, up, down = (prefix + name.format(expert=expert) for name in (names.gate, names.up, names.down))
            yield {
                "gate.weight": padded(self._take(gate, (width, hidden)), (inner, hidden)),
                "up.weight": padded(self._take(up, (width, hidden)), (inner, hidden)),
                "down.weight": padded(self._take(down, (hidden, width)), (hidden, inner)),
            }

    def _fused(self, prefix: str, names: ExpertNames) -> Iterator[dict[str, View]]:
        count, inner, hidden = self.config.num_experts, self.config.expert_ffn, self.config.hidden
        gates, ups = range(inner), range(inner, 2 * inner)
        if names.by_column:
            gates, ups = range(0, 2 * inner, 2), range(1, 2 * inner, 2)
        gate_up = self._matrices(prefix + names.gate_up, 2 * inner, hidden, names.by_column)
        down = self._matrices(prefix + names.down, hidden, inner, names.by_column)
        if self.config.expert_bias:
            gate_up_bias = self._take(prefix + names.gate_up_bias, (count, 2 * inner))
            down_bias = self._take(prefix + names.down_bias, (count, hidden))
        for expert in range(count):
            views = {
                "gate.weight": gate_up(expert, gates),
                "up.weight": gate_up(expert, ups),
                "down.weight": down(expert, range(hidden)),
            }
            if self.config.expert_bias:
                views["gate.bias"] = picked(item(gate_up_bias, expert), 0, gates)
                views["up.bias"] = picked(item(gate_up_bias, expert), 0, ups)
                views["down.bias"] = item(down_bias, expert)
            yield views

    def _matrices(self, name: str, rows: int, columns: int, by_column: bool) -> Callable[[int, range], View]:
        """A tensor of all experts' [rows, columns]: the rows `which` of expert `e` as a function of both."""
        count = self.config.num_experts
        if self.description.mxfp4:
            shape = (count, rows, columns // BLOCK)
            tensor = self._stored(f"{name}_blocks", (*shape, BLOCK // 2))
            damaged = tensor.file.error("has values that are not finite", f"{name}_scales")
            blocks = tensor.view((*shape, BLOCK // 2), ("U8",))
            scales = self._take(f"{name}_scales", shape, ("U8",))
            return lambda e, which: dequantised(
                picked(item(blocks, e), 0, which), picked(item(scales, e), 0, which), damaged
            )
        if by_column:
            turned = self._take(name, (count, columns, rows))
            return lambda e, which: transposed(picked(item(turned, e), 1, which))
        stored = self._take(name, (count, rows, columns))
        return lambda e, which: picked(item(stored, e), 0, which)
