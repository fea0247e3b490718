"""A GGUF checkpoint -> the parameters of model.Model."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from gguf import dequantize
from torch import Tensor

from model_runtime.families import GGUF_FAMILIES, GgufFamily, ModelConfig, Rope
from model_runtime.gguf_file import CheckpointError, GgufFile
from model_runtime.tokenizer import TokenizerFiles

__all__ = ["CheckpointError", "load_gguf"]


def load_gguf(
    path: Path | str, dtype: torch.dtype = torch.float32
) -> tuple[ModelConfig, dict[str, Tensor], TokenizerFiles]:
    """The config, the parameters of model.Model by name (norms in float32, the rest in `dtype`), and the tokenizer.

    Raises CheckpointError for a tensor that is missing, unexpected, mis-shaped or not finite, OSError if the file
    cannot be opened."""
    file = GgufFile(path)
    architecture = file.require("general.architecture", str)
    if architecture not in GGUF_FAMILIES:
        raise CheckpointError(file.path, f"architecture {architecture!r}; supported: {', '.join(GGUF_FAMILIES)}")
    family = GGUF_FAMILIES[architecture]
    files = TokenizerFiles.from_gguf(file)
    config = _config(file, architecture, tied_embeddings=family.head not in file.tensors)
    _compare(file, _expected_shapes(config, family))
    return config, _parameters(file, config, family, dtype), files


def _config(file: GgufFile, architecture: str, tied_embeddings: bool) -> ModelConfig:
    def size(name: str, default: int = 0) -> int:
        value = file.get(f"{architecture}.{name}", default) if default else file.require(f"{architecture}.{name}", int)
        if value <= 0:
            raise CheckpointError(file.path, f"key {architecture}.{name} is {value}")
        return value

    heads, hidden = size("attention.head_count"), size("embedding_length")
    kv_heads = size("attention.head_count_kv", heads)
    head_dim = size("attention.key_length", max(1, hidden // heads))
    if heads % kv_heads:
        raise CheckpointError(file.path, f"{heads} heads cannot share {kv_heads} key-value heads")
    if size("rope.dimension_count", head_dim) != head_dim or head_dim % 2:
        raise CheckpointError(file.path, f"rotary embedding of only a part of a head's {head_dim} dimensions")
    if f"{architecture}.rope.scaling.type" in file.metadata:
        raise CheckpointError(file.path, "rotary scaling is not supported")
    return ModelConfig(
        layers=size("block_count"),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=size("feed_forward_length"),
        vocab=len(file.require("tokenizer.ggml.tokens", list)),
        context_tokens=size("context_length"),
        rms_eps=file.require(f"{architecture}.attention.layer_norm_rms_epsilon", float),
        rope=Rope(base=file.get(f"{architecture}.rope.freq_base", 10000.0)),
        tied_embeddings=tied_embeddings,
    )


def _expected_shapes(config: ModelConfig, family: GgufFamily) -> dict[str, tuple[int, ...]]:
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    by_tensor = {
        "attn_norm": (config.hidden,),
        "ffn_norm": (config.hidden,),
        "attn_q": (queries, config.hidden),
        "attn_k": (keys, config.hidden),
        "attn_v": (keys, config.hidden),
        "attn_output": (config.hidden, queries),
        "ffn_gate": (config.ffn, config.hidden),
        "ffn_up": (config.ffn, config.hidden),
        "ffn_down": (config.hidden, config.ffn),
    }
    expected: dict[str, tuple[int, ...]] = {
        family.embedding: (config.vocab, config.hidden),
        family.final_norm: (config.hidden,),
    }
    if not config.tied_embeddings:
        expected[family.head] = (config.vocab, config.hidden)
    for layer in range(config.layers):
        expected.update({f"blk.{layer}.{name}.weight": shape for name, shape in by_tensor.items()})
    return expected


def _compare(file: GgufFile, expected: Mapping[str, tuple[int, ...]]) -> None:
    for name, shape in expected.items():
        if name not in file.tensors:
            raise CheckpointError(file.path, f"missing, expected shape {shape}", name)
        if file.tensors[name].shape != shape:
            raise CheckpointError(file.path, f"expected shape {shape}, found {file.tensors[name].shape}", name)
    for name in file.tensors.keys() - expected.keys():
        raise CheckpointError(file.path, f"unexpected, of shape {file.tensors[name].shape}", name)


def _parameters(file: GgufFile, config: ModelConfig, family: GgufFamily, dtype: torch.dtype) -> dict[str, Tensor]:
    parameters = {
        "embedding": _tensor(file, family.embedding, dtype),
        "norm.weight": _tensor(file, family.final_norm, dtype),
    }
    if not config.tied_embeddings:
        parameters["head.weight"] = _tensor(file, family.head, dtype)
    for layer in range(config.layers):
        for parameter, names in family.layer.items():
            parts = [_tensor(file, f"blk.{layer}.{name}.weight", dtype) for name in names]
            parameters[f"layers.{layer}.{parameter}"] = parts[0] if len(parts) == 1 else torch.cat(parts)
    return parameters


def _tensor(file: GgufFile, name: str, dtype: torch.dtype) -> Tensor:
    kind, data, row_bytes = file.rows(name)
    rows = np.frombuffer(data, dtype=np.uint8).reshape(*file.tensors[name].shape[:-1], row_bytes)
    try:
        values = dequantize(rows, kind)
    except NotImplementedError:
        raise CheckpointError(file.path, f"quantisation {kind.name} cannot be read", name) from None
    tensor = torch.from_numpy(values if values.flags.writeable else values.copy())  # a copy: the file is read-only
    if not torch.isfinite(tensor).all():
        raise CheckpointError(file.path, "has values that are not finite", name)
    return tensor.to(dtype) if tensor.dim() > 1 else tensor
