"""Small checkpoints of our own format, written by write_checkpoint, with a tokenizer of the 256 bytes."""

import json
from dataclasses import replace
from pathlib import Path

import torch
from tokenizers import pre_tokenizers
from torch import Tensor

from model_runtime.families import ModelConfig
from model_runtime.tokenizer_files import TokenizerFiles
from model_runtime.weights import Checkpoint, Weight
from model_runtime.write_checkpoint import write_checkpoint
from tests.model_runtime.tiny_model import TINY, random_tensors

_BYTES = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
TOKENIZER = TokenizerFiles(
    spelling=json.dumps(
        {
            "version": "1.0",
            "model": {"type": "BPE", "vocab": _BYTES, "merges": []},
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "added_tokens": [],
        }
    ),
    marks={"<end>": 256},
    silent=frozenset({256}),
    names={"eos_token": "<end>"},
    eos_ids=frozenset({256}),
    chat_template="{% for turn in messages %}{{ turn.content }}<end>{% endfor %}",
)
SMALL = replace(TINY, hidden=64, ffn=64, expert_ffn=32, vocab=272, context_tokens=1024)  # as four-bit kernels want it


def checkpoint_of(tensors: dict[str, Tensor], config: ModelConfig) -> Checkpoint:
    def weight(tensor: Tensor) -> Weight:
        return Weight(tuple(tensor.shape), lambda part: tensor if part is None else part.of(tensor))

    return Checkpoint(config, {name: weight(tensor) for name, tensor in tensors.items()})


def write_tiny(folder: Path, config: ModelConfig = SMALL, **how: object) -> dict[str, Tensor]:
    """Random weights, in float32 unless told. `how`: of write_checkpoint."""
    tensors = random_tensors(config, seed=3)
    settings = {"dtype": torch.float32, "advance": lambda *_: None} | how
    write_checkpoint(checkpoint_of(tensors, config), TOKENIZER, folder, **settings)  # type: ignore[arg-type]
    return tensors
