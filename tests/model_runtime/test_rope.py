"""Rotary turns against transformers' own tables, for each kind of scaling."""

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from model_runtime.families import Rope
from model_runtime.rope import rotary_turns

KINDS = {
    "none": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 2.5},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    "yarn, bounds as they are": {
        "rope_type": "yarn",
        "factor": 32.0,
        "beta_fast": 20.0,
        "beta_slow": 2.0,
        "truncate": False,
        "attention_factor": 1.3,
        "original_max_position_embeddings": 64,
    },
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 128,
    },
}
BASE, HEAD_DIM, ORIGINAL = 5000.0, 32, 64


def ours(parameters: dict) -> Rope:
    known = {
        "factor": "factor",
        "beta_fast": "beta_fast",
        "beta_slow": "beta_slow",
        "truncate": "truncate",
        "attention_factor": "attention_factor",
        "low_freq_factor": "low_freq_factor",
        "high_freq_factor": "high_freq_factor",
        "original_max_position_embeddings": "original_context_tokens",
    }
    given = {known[key]: value for key, value in parameters.items() if key in known}
    kind = parameters["rope_type"].replace("default", "none")
    rope = Rope(**({"base": BASE, "scaling": kind, "original_context_tokens": ORIGINAL} | given))
    if kind == "yarn" and "attention_factor" not in given:
        rope = Rope(**({"base": BASE, "scaling": kind} | given | {"attention_factor": 0.1 * 1.3862943611198906 + 1}))
    return rope


def oracle(parameters: dict, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    config = LlamaConfig(
        hidden_size=4 * HEAD_DIM,
        num_attention_heads=4,
        max_position_embeddings=ORIGINAL,
        rope_parameters={"rope_theta": BASE} | parameters,
    )
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1, 1, dtype=torch.float32), positions[None])
    return cos[0, :, : HEAD_DIM // 2], sin[0, :, : HEAD_DIM // 2]


@pytest.mark.parametrize("parameters", KINDS.values(), ids=KINDS)
def test_it_turns_as_transformers_does(parameters):
    count = ORIGINAL if parameters["rope_type"] == "dynamic" else 256
    turns = rotary_turns(ours(parameters), HEAD_DIM, count)
    cos, sin = oracle(parameters, torch.arange(count))
    torch.testing.assert_close(turns[:, 0].real, cos, rtol=1e-4, atol=2e-5)
    torch.testing.assert_close(turns[:, 0].imag, sin, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("position", [64, 65, 100, 255])
def test_dynamic_scaling_beyond_the_original_context_is_that_of_a_sequence_so_long(position):
    turns = rotary_turns(ours(KINDS["dynamic"]), HEAD_DIM, 256)[position, 0]
    cos, sin = oracle(KINDS["dynamic"], torch.tensor([position]))
    torch.testing.assert_close(turns.real, cos[0], rtol=1e-4, atol=2e-5)
    torch.testing.assert_close(turns.imag, sin[0], rtol=1e-4, atol=2e-5)
