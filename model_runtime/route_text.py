"""One text through a model, to see which experts it goes to."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from model_runtime.experts import ExpertLog, ExpertSummary
from model_runtime.kv_cache import BLOCK_TOKENS, PagedCache, Span, Step
from model_runtime.load import load_model
from model_runtime.model import Model
from model_runtime.tokenizer import Tokenizer

_STEP_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Routed:
    """`summary.use[l]` is of the model's layer number `layers[l]`."""

    layers: tuple[int, ...]
    summary: ExpertSummary


def load_and_route(path: Path, text: str) -> Routed:
    """A dense checkpoint is upcycled. Raises what load_model, Tokenizer and route_text raise."""
    token_ids = Tokenizer.from_checkpoint(path).encode(text)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = load_model(path, dtype=torch.bfloat16, device=device, upcycle=True)
    layers = tuple(layer for layer in range(model.config.layers) if model.config.has_experts(layer))
    return Routed(layers, route_text(model, token_ids).summary())


def route_text(model: Model, token_ids: Sequence[int]) -> ExpertLog:
    """The model has experts. Raises ValueError if the text is empty or longer than the context."""
    config = model.config
    if not 0 < len(token_ids) <= config.context_tokens:
        raise ValueError(f"the text has {len(token_ids)} tokens, the model takes 1 to {config.context_tokens}")
    log = ExpertLog(sum(map(config.has_experts, range(config.layers))), config.num_experts)
    blocks = tuple(range(-(-len(token_ids) // BLOCK_TOKENS)))
    cache = PagedCache(config, len(blocks), model.embedding.dtype, model.embedding.device)
    for start in range(0, len(token_ids), _STEP_TOKENS):
        part = tuple(token_ids[start : start + _STEP_TOKENS])
        span = Span(blocks, start, len(part))
        model.forward(Step(part, (span,)), cache)
        log.record(model.routes, [span], ["text"])
        log.record_scores(model.scores)
    return log
