"""How well a model predicts a text: what quantisation costs is the difference between two of these."""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F

from model_runtime.kv_cache import BLOCK_TOKENS, PagedCache, Span, Step
from model_runtime.model import Model

FIXED_TEXT = Path(__file__).with_name("perplexity.txt")  # ours: posts, prose, news, a manual, science, code, a letter


def perplexity(model: Model, token_ids: Sequence[int], window: int = 512, step_tokens: int = 128) -> float:
    """exp of the mean negative log-likelihood of every token but the first. The text is cut into windows of `window`
    tokens, and a token is predicted from those before it in its window (a window's last predicts the next one's first).
    `step_tokens` are computed at once; 1 measures the kernels that decoding uses.

    Raises ValueError for fewer than two tokens, and for windows or steps that are empty or exceed the context."""
    if len(token_ids) < 2:
        raise ValueError(f"perplexity needs at least 2 tokens, the text has {len(token_ids)}")
    if not 1 <= step_tokens <= window <= model.config.context_tokens:
        raise ValueError(
            f"need 1 <= step_tokens <= window <= context, have {step_tokens}, {window}, {model.config.context_tokens}"
        )
    blocks = tuple(range(-(-window // BLOCK_TOKENS)))
    cache = PagedCache(model.config, len(blocks), model.embedding.dtype, model.embedding.device)
    loss = 0.0
    for first in range(0, len(token_ids) - 1, window):
        stop = min(first + window, len(token_ids) - 1)
        for start in range(first, stop, step_tokens):
            end = min(start + step_tokens, stop)
            span = Span(blocks, start - first, end - start, outputs=end - start)
            logits = model.forward(Step(tuple(token_ids[start:end]), (span,)), cache)
            targets = torch.tensor(token_ids[start + 1 : end + 1], device=logits.device)
            loss += F.cross_entropy(logits, targets, reduction="sum").item()
    return math.exp(loss / (len(token_ids) - 1))
