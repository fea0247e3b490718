"""A GGUF file -> a Checkpoint: its tensors as the parameters of model.Model."""

from collections.abc import Iterator
from pathlib import Path

from model_runtime.families import ModelConfig
from model_runtime.gguf_config import GgufHeader
from model_runtime.gguf_families import GGUF_FAMILIES, GgufFamily
from model_runtime.gguf_file import GgufFile
from model_runtime.gguf_tensor import gguf_view
from model_runtime.parameters import ffn_shapes, layer_shapes
from model_runtime.tensor_view import View, item, stacked, with_adjacent_pairs
from model_runtime.weights import Checkpoint, CheckpointError

_NAMES = {  # parameters of a layer -> the block's tensors that are stacked into them
    "attention_norm.weight": ("attn_norm.weight",),
    "ffn_norm.weight": ("ffn_norm.weight",),
    "attention.qkv.weight": ("attn_q.weight", "attn_k.weight", "attn_v.weight"),
    "attention.qkv.bias": ("attn_q.bias", "attn_k.bias", "attn_v.bias"),
    "attention.out.weight": ("attn_output.weight",),
    "attention.out.bias": ("attn_output.bias",),
    "attention.query_norm.weight": ("attn_q_norm.weight",),
    "attention.key_norm.weight": ("attn_k_norm.weight",),
    "attention.sinks": ("attn_sinks.weight",),
    "ffn.gate.weight": ("ffn_gate.weight",),
    "ffn.up.weight": ("ffn_up.weight",),
    "ffn.down.weight": ("ffn_down.weight",),
    "ffn.shared.gate.weight": ("ffn_gate_shexp.weight",),
    "ffn.shared.up.weight": ("ffn_up_shexp.weight",),
    "ffn.shared.down.weight": ("ffn_down_shexp.weight",),
    "ffn.shared_gate.weight": ("ffn_gate_inp_shexp.weight",),
}
_ROTARY = ("attn_q", "attn_k")  # tensors with rows, or values, in rotary pairs


def open_gguf(path: Path | str) -> Checkpoint:
    """Reads the header only. Raises CheckpointError for a file that is damaged, of an architecture or with a feature
    that model.py does not compute, or with a tensor that is missing, unexpected or mis-shaped; OSError if it cannot be
    opened."""
    file = GgufFile(path)
    if file.get("split.count", 1) > 1:
        raise CheckpointError(file.path, f"one of {file.get('split.count', 1)} files: join them into one first")
    architecture = file.require("general.architecture", str)
    if architecture not in GGUF_FAMILIES:
        raise CheckpointError(file.path, f"architecture {architecture!r}; supported: {', '.join(GGUF_FAMILIES)}")
    family = GGUF_FAMILIES[architecture]
    config = GgufHeader(file, architecture, family).config()
    return Checkpoint(config, {name: view.weight() for name, view in _Assembly(file, config, family).parameters()})


class _Assembly:
    def __init__(self, file: GgufFile, config: ModelConfig, family: GgufFamily) -> None:
        self._file, self._config, self._family = file, config, family
        self._names = {**_NAMES, **family.names}
        for parameter, names in family.old_names.items():
            if f"blk.0.{names[0]}" in file.tensors:
                self._names[parameter] = names
        self._left = file.tensors.keys() - {"rope_freqs.weight"}  # gguf_config.py reads those

    def parameters(self) -> Iterator[tuple[str, View]]:
        config = self._config
        yield "embedding", self._take("token_embd.weight", (config.vocab, config.hidden))
        if not config.tied_embeddings:
            yield "head.weight", self._take("output.weight", (config.vocab, config.hidden))
        yield "norm.weight", self._take("output_norm.weight", (config.hidden,))
        for layer in range(config.layers):
            for name, shapes in layer_shapes(config, layer).items():
                yield f"layers.{layer}.{name}", self._stacked(f"blk.{layer}", self._names[name], shapes)
            if config.has_experts(layer):
                for name, view in self._experts(f"blk.{layer}"):
                    yield f"layers.{layer}.ffn.{name}", view
        for name in sorted(self._left):
            raise CheckpointError(self._file.path, f"unexpected, of shape {self._file.tensors[name].shape}", name)

    def _stacked(self, block: str, names: tuple[str, ...], shapes: list[tuple[int, ...]]) -> View:
        views = [self._take(f"{block}.{name}", shape) for name, shape in zip(names, shapes, strict=True)]
        if not self._family.adjacent_pairs:
            views = [
                with_adjacent_pairs(view, self._config.head_dim) if name.startswith(_ROTARY) else view
                for name, view in zip(names, views, strict=True)
            ]
        return stacked(views)

    def _experts(self, block: str) -> Iterator[tuple[str, View]]:
        config = self._config
        yield "router.score.weight", self._take(f"{block}.ffn_gate_inp.weight", (config.num_experts, config.hidden))
        if config.router_bias:
            yield "router.score.bias", self._take(f"{block}.ffn_gate_inp.bias", (config.num_experts,))
        for name, shape in ffn_shapes(config.expert_ffn, config.hidden).items():
            yield from self._one_of_each(f"{block}.ffn_{name}", f"{name}.weight", shape)
            if config.expert_bias:
                yield from self._one_of_each(f"{block}.ffn_{name}", f"{name}.bias", shape[:1])

    def _one_of_each(self, tensor: str, name: str, shape: tuple[int, ...]) -> Iterator[tuple[str, View]]:
        """The experts' matrices or vectors: in one tensor, or in one each, as converters wrote them until 2024."""
        count, kind = self._config.num_experts, name.partition(".")[2]
        if f"{tensor}.0.{kind}" in self._left:
            views = [self._take(f"{tensor}.{expert}.{kind}", shape) for expert in range(count)]
        else:
            together = self._take(f"{tensor}_exps.{kind}", (count, *shape))
            views = [item(together, expert) for expert in range(count)]
        for expert, view in enumerate(views):
            yield f"experts.{expert}.{name}", view

    def _take(self, name: str, shape: tuple[int, ...]) -> View:
        self._left -= {name}
        return gguf_view(self._file, name, shape)
