"""`deterministic`: whatever else is computed at the time, the same bits come out. Real weights in bfloat16, because
that is where the same row gives other numbers in another batch."""

import random
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from model_runtime.engine import Engine, Submit
from model_runtime.kv_cache import PagedCache
from model_runtime.load import load_model
from model_runtime.model import Model
from model_runtime.request import Finished, GenerationRequest, Sampling, Token
from model_runtime.scheduler import ALONE_TOKENS, Limits
from model_runtime.tokenizer import Tokenizer

LIMITS = Limits(running=6, step_tokens=96, beside_decoding=48)
RANKS = SimpleNamespace(broadcast_object=lambda value=None: value)


@pytest.fixture(scope="module")
def model(gguf_path: Path) -> Model:
    return load_model(gguf_path, dtype=torch.bfloat16, device="cpu", upcycle=True)


@pytest.fixture(scope="module")
def tokenizer(gguf_path: Path) -> Tokenizer:
    return Tokenizer.from_checkpoint(gguf_path)


def answer(
    model: Model, tokenizer: Tokenizer, request: GenerationRequest, *, mates: int, blocks: int = 100, cut: int = 0
) -> list[Token | Finished]:
    """The request's items beside `mates` others at first and more later. After `cut` tokens the engine is lost, and
    another one goes on."""
    chance = random.Random(mates)
    taken: list[Token | Finished] = []
    for wanted in [cut, 1000] if cut else [1000]:
        engine = Engine(model, PagedCache(model.config, blocks, torch.bfloat16, "cpu"), tokenizer, RANKS, 8192, LIMITS)
        for number in range(mates):
            engine.submit(Submit(mate(chance, f"mate {number}")))
        engine.submit(Submit(request, tuple(item.id for item in taken), bool(taken)))
        while len(taken) < wanted and not (taken and isinstance(taken[-1], Finished)):
            if mates and chance.random() < 0.3:
                engine.submit(Submit(mate(chance, f"late mate {chance.random()}")))
            taken += [item for name, item in engine.step() if name == request.id]
    return taken


def mate(chance: random.Random, name: str) -> GenerationRequest:
    ids = tuple(chance.randrange(1000, 40000) for _ in range(chance.randrange(1, 40)))
    return GenerationRequest(name, ids, Sampling(max_tokens=chance.randrange(1, 12), temperature=1.0))


def test_the_same_tokens_probabilities_and_experts_whatever_runs_beside_it(model, tokenizer):
    prompt = tuple(random.Random(0).randrange(1000, 40000) for _ in range(ALONE_TOKENS + 14))
    sampling = Sampling(max_tokens=10, temperature=1.0, seed=7, logprobs=3, deterministic=True)
    request = GenerationRequest("same", prompt, sampling)
    calm = answer(model, tokenizer, request, mates=0)
    assert isinstance(calm[-1], Finished) and calm[-1].experts is not None and len(calm) == 11
    assert answer(model, tokenizer, request, mates=3) == calm
    assert answer(model, tokenizer, request, mates=2, blocks=20, cut=4) == calm, "short of blocks, and replayed"
