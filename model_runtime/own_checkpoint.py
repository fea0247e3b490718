"""Our own checkpoints: a folder of safetensors with the parameters of model.Model by their names, so that every family
can be upcycled and quantised, and what Hugging Face has no name for (virtual groups) is kept. config.json holds
ModelConfig; written by write_checkpoint.py."""

import json
from pathlib import Path

import torch
from pydantic import TypeAdapter, ValidationError

from model_runtime.families import ModelConfig
from model_runtime.json_keys import Keys
from model_runtime.levels import LEVELS, SCALES, Kept, levels_view, stored_shapes
from model_runtime.model import Model
from model_runtime.safetensors_file import StoredTensor, open_tensors
from model_runtime.weights import Checkpoint, CheckpointError, Weight

MODEL_TYPE = "groundswell"
_CONFIG = TypeAdapter(ModelConfig)


def is_own(folder: Path) -> bool:
    """Raises CheckpointError if its config.json is missing or damaged."""
    return bool(Keys.of(folder / "config.json").get("model_type", str) == MODEL_TYPE)


def open_own(folder: Path) -> Checkpoint:
    """Reads headers only. Raises CheckpointError if the config makes no sense, or a tensor is missing, unexpected or
    mis-shaped; a value that is not finite, when its weight is read."""
    config = _config(folder / "config.json")
    left = open_tensors(folder)
    with torch.device("meta"):
        shapes = {name: tuple(parameter.shape) for name, parameter in Model(config).named_parameters()}
    if config.tied_embeddings:
        del shapes["head.weight"]
    weights = {name: _taken(folder, left, name, shape) for name, shape in shapes.items()}
    for name, tensor in left.items():
        raise tensor.file.error(f"unexpected, of shape {tensor.shape}", name)
    return Checkpoint(config, weights)


def _taken(folder: Path, left: dict[str, StoredTensor], name: str, shape: tuple[int, ...]) -> Weight:
    """Takes out of `left` what the parameter is made of."""
    if name in left:
        return left.pop(name).view(shape).weight()
    if name + LEVELS not in left or name + SCALES not in left:
        raise CheckpointError(str(folder), f"missing, expected shape {shape}", name)
    levels, scales = left.pop(name + LEVELS), left.pop(name + SCALES)
    kept: Kept = "int8" if levels.shape == shape else "int4"
    of_levels, of_scales = stored_shapes(shape, kept)
    return levels_view(levels.view(of_levels, ("U8",)), scales.view(of_scales, ("BF16",)), shape, kept).weight()


def _config(path: Path) -> ModelConfig:
    keys = Keys.of(path)
    values = {name: value for name, value in keys.values.items() if name != "model_type"}
    for name in values.keys() - ModelConfig.__dataclass_fields__.keys():
        raise keys.error(name, "is not known")
    try:
        text = json.dumps(values, allow_nan=False)  # as JSON: lists are tuples
    except ValueError:
        raise CheckpointError(str(path), "has numbers that are not finite") from None
    try:
        config = _CONFIG.validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        raise keys.error(".".join(map(str, first["loc"])), f"is wrong: {first['msg']}") from None
    _check(keys, config)
    return config


def _check(keys: Keys, config: ModelConfig) -> None:
    for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "vocab", "context_tokens", "virtual_groups"):
        keys.positive(name, int, getattr(config, name))
    keys.positive("rms_eps", float)
    if config.windows and (len(config.windows) != config.layers or min(config.windows) < 0):
        raise keys.error("windows", f"is {list(config.windows)}, not a size for each of {config.layers} layers")
    if config.heads % config.kv_heads or config.head_dim % 2:
        raise keys.error("heads", "must divide by kv_heads, and head_dim by 2")
    if config.num_experts and not 0 < config.active_experts <= config.num_experts:
        raise keys.error("active_experts", f"is {config.active_experts} of {config.num_experts}")
    if config.num_experts % config.virtual_groups or config.active_experts % config.virtual_groups:
        raise keys.error("virtual_groups", "must divide num_experts and active_experts")
    if min(config.num_experts, config.expert_ffn, config.ffn, config.shared_ffn) < 0:
        raise keys.error("num_experts", "and the widths cannot be negative")
