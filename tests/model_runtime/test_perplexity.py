"""Perplexity is what its definition says, and quantising costs what it may."""

import math

import pytest
import torch
from tiny_model import tiny_model

from model_runtime.kv_cache import PagedCache, Span, Step
from model_runtime.load import load_model
from model_runtime.perplexity import FIXED_TEXT, perplexity
from model_runtime.tokenizer import Tokenizer

IDS = [(7 * place * place + 3 * place) % 64 for place in range(75)]


def by_definition(window: int) -> float:
    """One forward a prediction, each with all that is before it in its window."""
    model, losses = tiny_model(), []
    for target in range(1, len(IDS)):
        context = IDS[(target - 1) // window * window : target]
        blocks = tuple(range(-(-len(context) // 16)))
        cache = PagedCache(model.config, len(blocks), torch.float32, "cpu")
        logits = model(Step(tuple(context), (Span(blocks, 0, len(context)),)), cache)[0]
        losses.append(-torch.log_softmax(logits.double(), -1)[IDS[target]].item())
    return math.exp(sum(losses) / len(losses))


@pytest.mark.parametrize(
    ("window", "step_tokens"), [(75, 75), (75, 1), (32, 32), (32, 5), (37, 16), (200, 128), (1, 1)]
)
def test_it_is_its_definition(window, step_tokens):
    assert perplexity(tiny_model(), IDS, window, step_tokens) == pytest.approx(by_definition(window), rel=1e-4)


def test_a_model_that_knows_nothing_is_as_perplexed_as_its_vocabulary_is_large():
    model = tiny_model()
    model.head.weight.data.zero_()
    assert perplexity(model, IDS, 64, 64) == pytest.approx(64, rel=1e-5)


@pytest.mark.parametrize(
    ("ids", "window", "step_tokens", "message"),
    [
        ([5], 32, 16, "at least 2 tokens"),
        (IDS, 512, 16, "context"),
        (IDS, 32, 0, "step_tokens"),
        (IDS, 16, 32, "window"),
    ],
)
def test_what_cannot_be_measured_is_refused(ids, window, step_tokens, message):
    with pytest.raises(ValueError, match=message):
        perplexity(tiny_model(), ids, window, step_tokens)


def test_quantising_the_real_model_costs_little(gguf_path):
    ids = Tokenizer.from_checkpoint(gguf_path).encode(FIXED_TEXT.read_text())
    assert len(ids) > 1400, "the fixed text is long enough to measure with"

    def cost(mode: str) -> float:
        model = load_model(gguf_path, dtype=torch.bfloat16, device="cpu", upcycle=False, quantize=mode)
        return perplexity(model, ids[:129], 128, 64)

    exact = cost("none")
    assert 10 < exact < 200
    assert cost("int8") == pytest.approx(exact, rel=0.02)
    assert cost("int4") == pytest.approx(exact, rel=0.01), "the file has four bits already: int4 finds them again"
