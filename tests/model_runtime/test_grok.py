"""Grok-1 against an independent reading of the published equations."""

import json

import numpy as np
import pytest
import torch
from grok_checkpoint import CONFIG, PUBLISHED, random_tensors, save_grok
from reference_grok import grok_logits
from tiny_checkpoint import run_in_pieces

from model_runtime.config_json import read_config_json
from model_runtime.families import GROK_1, WIDE_128, scaled_grok
from model_runtime.load import load_model
from model_runtime.model import Model

IDS = np.random.default_rng(3).integers(1, 64, 40).tolist()


@pytest.fixture(scope="module")
def tensors() -> dict[str, torch.Tensor]:
    return random_tensors()


@pytest.fixture(scope="module")
def exact(tensors):
    return {name: tensor.double().numpy() for name, tensor in tensors.items()}


@pytest.fixture(scope="module")
def model(tensors, tmp_path_factory) -> Model:
    folder = tmp_path_factory.mktemp("grok")
    save_grok(folder, tensors)
    model = load_model(folder, dtype=torch.float32, device="cpu", upcycle=False)
    assert model.config == CONFIG
    return model


def test_the_logits_are_those_of_the_published_equations(model, exact):
    expected = torch.from_numpy(grok_logits(exact, CONFIG, IDS)).float()
    assert expected.std() > 1
    torch.testing.assert_close(run_in_pieces(model, IDS, (0, 17, 30, *range(31, 41))), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("variant", [{"router_cap": 30.0}, {"renormalised": True}])
def test_what_other_engines_add_would_show(exact, variant):
    published = grok_logits(exact, CONFIG, IDS)
    assert np.abs(grok_logits(exact, CONFIG, IDS, **variant) - published).max() > 0.05


def test_the_preset_is_what_the_published_config_says(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED))
    assert read_config_json(tmp_path / "config.json").config == GROK_1


def test_the_presets_have_the_sizes_that_they_are_known_for():
    def billions(config) -> float:
        attention = 2 * config.hidden * (config.heads + config.kv_heads) * config.head_dim
        experts = config.num_experts * (3 * config.hidden * config.expert_ffn + config.hidden)
        return config.layers * (attention + experts) / 1e9

    assert int(billions(GROK_1)) == 314
    assert int(billions(WIDE_128)) == 2170
    assert scaled_grok(8, 128, 64, 131_072).expert_ffn == GROK_1.expert_ffn
