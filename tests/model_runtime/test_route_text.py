"""A text through a model: its use is that of one forward over the whole, however it is cut into steps."""

import pytest
import torch

from model_runtime.kv_cache import PagedCache, Span, Step
from model_runtime.route_text import route_text
from tests.model_runtime.tiny_model import tiny_model


def test_a_text_of_several_steps_is_routed_as_a_whole() -> None:
    model = tiny_model(layers=3, num_experts=4, active_experts=2, dense_layers=(1,), context_tokens=1024)
    token_ids = torch.randint(64, (600,), generator=torch.Generator().manual_seed(2)).tolist()
    summary = route_text(model, token_ids).summary()
    blocks = tuple(range(38))
    model(Step(tuple(token_ids), (Span(blocks, 0, 600),)), PagedCache(model.config, 38, torch.float32, "cpu"))
    expected = [torch.stack(list(layer)).flatten().bincount(minlength=4).tolist() for layer in model.routes]
    assert summary.tokens == 600
    assert [list(layer) for layer in summary.use] == expected
    switches = sum(int((layer[1:, 0] != layer[:-1, 0]).sum()) for layer in model.routes)
    assert summary.switches_per_100_tokens == pytest.approx(100 * switches / (599 * 2))
    assert summary.routing_entropy is not None and 0.3 < summary.routing_entropy < 1


def test_an_empty_or_too_long_text_is_refused() -> None:
    model = tiny_model(num_experts=4, active_experts=2)
    for token_ids in ([], [1] * 257):
        with pytest.raises(ValueError, match="the model takes 1 to 256"):
            route_text(model, token_ids)
