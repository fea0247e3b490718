"""A checkpoint on the disk -> another one: upcycled, or quantised, and what that costs."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch

from model_runtime.gguf_file import GgufFile
from model_runtime.levels import Kept
from model_runtime.load import load_model, open_checkpoint
from model_runtime.perplexity import FIXED_TEXT, perplexity
from model_runtime.quantize import Mode
from model_runtime.tokenizer import Tokenizer
from model_runtime.tokenizer_files import TokenizerFiles
from model_runtime.upcycle import upcycle_dense
from model_runtime.weights import CheckpointError
from model_runtime.write_checkpoint import write_checkpoint

Precision = Literal["bfloat16", "float32"]
Advance = Callable[[int, int], None]  # bytes done, bytes in all


def upcycle_checkpoint(source: Path, target: Path, dtype: Precision, advance: Advance) -> int:
    """Returns the bytes written. Raises CheckpointError, OSError, and ValueError if the FFN cannot be halved."""
    checkpoint = open_checkpoint(source)
    if checkpoint.config.num_experts:
        raise CheckpointError(str(source), f"is a mixture of {checkpoint.config.num_experts} experts already")
    return write_checkpoint(
        upcycle_dense(checkpoint), tokenizer_files(source), target, dtype=getattr(torch, dtype), advance=advance
    )


def quantize_checkpoint(source: Path, target: Path, kept: Kept, advance: Advance) -> int:
    """Returns the bytes written. Raises CheckpointError, OSError."""
    return write_checkpoint(open_checkpoint(source), tokenizer_files(source), target, mode=kept, advance=advance)


def fixed_text_perplexity(path: Path, mode: Mode) -> float:
    """Of the model that is loaded with this mode, on our fixed text."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = load_model(path, dtype=torch.bfloat16, device=device, upcycle=False, quantize=mode)
    token_ids = Tokenizer.from_checkpoint(path).encode(FIXED_TEXT.read_text(encoding="utf-8"))
    return perplexity(model, token_ids)


def tokenizer_files(path: Path) -> TokenizerFiles:
    """Raises CheckpointError."""
    return TokenizerFiles.from_folder(path) if path.is_dir() else TokenizerFiles.from_gguf(GgufFile(path))
