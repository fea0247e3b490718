"""Small random models, dense or with experts, for tests that need no checkpoint."""

from dataclasses import replace

import torch
from torch import Tensor

from model_runtime.families import ModelConfig
from model_runtime.kv_cache import PagedCache, Span, Step
from model_runtime.model import Model, build_model

TINY = ModelConfig(
    layers=2,
    hidden=32,
    heads=6,
    kv_heads=3,
    head_dim=8,
    ffn=48,
    expert_ffn=48,
    vocab=64,
    context_tokens=256,
    rms_eps=1e-5,
    tied_embeddings=True,
)


def tiny_model(seed: int = 0, **changes: object) -> Model:
    """The same weights for the same seed and sizes, in memory of its own."""
    config = replace(TINY, **changes)
    return build_model(config, random_tensors(config, seed), "cpu")


def random_tensors(config: ModelConfig, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    with torch.device("meta"):
        shapes = {name: parameter.shape for name, parameter in Model(config).named_parameters()}
    if config.tied_embeddings:
        del shapes["head.weight"]
    return {
        name: torch.randn(shape, generator=generator) * (shape[-1] ** -0.5 if len(shape) > 1 else 1)
        for name, shape in shapes.items()
    }


def greedy(model: Model, prompt: list[int], count: int) -> tuple[list[int], Tensor]:
    """`count` tokens after the prompt, and every step's logits [count, V]: one prefill, then one token a step."""
    blocks = tuple(range(-(-(len(prompt) + count) // 16)))
    cache = PagedCache(model.config, len(blocks), torch.float32, "cpu")
    tokens, logits, start = list(prompt), [], 0
    for _ in range(count):
        step = Step(tuple(tokens[start:]), (Span(blocks, start, len(tokens) - start),))
        logits.append(model(step, cache)[0])
        start = len(tokens)
        tokens.append(int(logits[-1].argmax()))
    return tokens[len(prompt) :], torch.stack(logits)
