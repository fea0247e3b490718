"""Writes a checkpoint as one of our own (own_checkpoint.py), parameter by parameter, with its tokenizer beside it."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from math import prod
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from model_runtime.families import ModelConfig
from model_runtime.levels import LEVELS, SCALES, can_quantize, stored_shapes, to_levels
from model_runtime.model import stays_float32
from model_runtime.own_checkpoint import MODEL_TYPE
from model_runtime.quantize import Mode
from model_runtime.tokenizer_files import TokenizerFiles
from model_runtime.weights import Checkpoint, CheckpointError

_PRODUCTS = ("qkv.weight", "out.weight", "gate.weight", "up.weight", "down.weight")  # what a model packs


def write_checkpoint(
    checkpoint: Checkpoint,
    tokenizer: TokenizerFiles,
    folder: Path,
    *,
    mode: Mode = "none",
    dtype: torch.dtype = torch.bfloat16,
    advance: Callable[[int, int], None],
    file_bytes: int = 2_000_000_000,
) -> int:
    """Matrices are rounded to `dtype`; with a `mode`, those that a model multiplies with are quantised instead. A file
    has about `file_bytes`, and is in memory while it is put together. `advance` is told how many bytes are done, and
    how many there are. config.json comes last: without it the folder is not a checkpoint. Returns the bytes.

    Raises CheckpointError if the folder has files already, or a weight cannot be read or written; OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise CheckpointError(str(folder), "is not empty: nothing was written")
    sizes = dict(_sizes(checkpoint, mode, dtype))
    files, total, done = _files(sizes, file_bytes), sum(sizes.values()), 0
    for file, names in files.items():
        tensors: dict[str, Tensor] = {}
        for name in names:
            tensors |= _stored(checkpoint, name, mode, dtype)
            done += sizes[name]
            advance(done, total)
        _save(tensors, folder / file)
    if len(files) > 1:
        _write_index(folder, files, checkpoint, mode)
    write_tokenizer(tokenizer, folder)
    _write_json(folder / "config.json", {"model_type": MODEL_TYPE, **asdict(checkpoint.config)})
    return total


def _sizes(checkpoint: Checkpoint, mode: Mode, dtype: torch.dtype) -> Iterator[tuple[str, int]]:
    for name, weight in checkpoint.weights.items():
        if mode != "none" and _is_quantized(name, weight.shape):
            levels, scales = stored_shapes(weight.shape, mode)
            yield name, prod(levels) + 2 * prod(scales)
        else:
            yield name, prod(weight.shape) * _dtype(name, checkpoint.config, dtype).itemsize


def _files(sizes: Mapping[str, int], file_bytes: int) -> dict[str, list[str]]:
    """File -> the parameters in it, in order."""
    groups: list[list[str]] = [[]]
    held = 0
    for name, size in sizes.items():
        if groups[-1] and held + size > file_bytes:
            groups.append([])
            held = 0
        groups[-1].append(name)
        held += size
    if len(groups) == 1:
        return {"model.safetensors": groups[0]}
    return {f"model-{number:05}-of-{len(groups):05}.safetensors": names for number, names in enumerate(groups, 1)}


def _stored(checkpoint: Checkpoint, name: str, mode: Mode, dtype: torch.dtype) -> dict[str, Tensor]:
    weight = checkpoint.weights[name]
    values = weight.read(None)
    if mode != "none" and _is_quantized(name, weight.shape):
        levels, scales = to_levels(values, mode)
        return {name + LEVELS: levels.contiguous(), name + SCALES: scales.contiguous()}
    # A copy: several parameters may share memory, which safetensors refuses.
    return {name: values.to(_dtype(name, checkpoint.config, dtype), copy=True, memory_format=torch.contiguous_format)}


def _is_quantized(name: str, shape: tuple[int, ...]) -> bool:
    return name.endswith(_PRODUCTS) and can_quantize(shape)


def _dtype(name: str, config: ModelConfig, dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if stays_float32(name, config) else dtype


def _save(tensors: dict[str, Tensor], path: Path) -> None:
    try:
        save_file(tensors, path)
        path.chmod(0o644)  # the library leaves it to its owner alone
    except SafetensorError as error:
        raise CheckpointError(str(path), f"cannot be written: {error}") from None


def _write_index(folder: Path, files: Mapping[str, list[str]], checkpoint: Checkpoint, mode: Mode) -> None:
    where: dict[str, str] = {}
    for file, names in files.items():
        for name in names:
            quantized = mode != "none" and _is_quantized(name, checkpoint.weights[name].shape)
            parts = (name + LEVELS, name + SCALES) if quantized else (name,)
            where |= dict.fromkeys(parts, file)
    _write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": where})


def write_tokenizer(files: TokenizerFiles, folder: Path) -> None:
    """As Hugging Face has it, and TokenizerFiles.from_folder reads it."""
    spelling = json.loads(files.spelling)
    marks = [_added(mark, number, number in files.silent) for mark, number in files.marks.items()]
    kept = spelling.get("added_tokens") or []
    spelling["added_tokens"] = sorted(kept + marks, key=lambda token: int(token["id"]))
    _write_json(folder / "tokenizer.json", spelling)
    settings = {**files.names, "add_bos_token": files.first is not None, "chat_template": files.chat_template}
    _write_json(folder / "tokenizer_config.json", settings)
    _write_json(folder / "generation_config.json", {"eos_token_id": sorted(files.eos_ids)})


def _added(content: str, number: int, special: bool) -> dict[str, object]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": content, **flags, "special": special}


def _write_json(path: Path, values: Mapping[str, object]) -> None:
    path.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
