"""Each family against transformers: the same checkpoint, the same logits."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_checkpoint import CHECKPOINTS, random_model, run_in_pieces, save_random
from transformers import DynamicCache

from model_runtime.load import load_model
from model_runtime.model import Model, build_model
from model_runtime.safetensors_checkpoint import open_safetensors

IDS = torch.randint(3, 64, (40,), generator=torch.Generator().manual_seed(1)).tolist()
PIECES = (0, 7, 20, 30, *range(31, 41))  # prefill in three portions, then one token a step


def loaded(folder, **changes: object) -> Model:
    checkpoint = open_safetensors(folder)
    parameters = {name: weight.read(None).float() for name, weight in checkpoint.weights.items()}
    return build_model(replace(checkpoint.config, **changes), parameters, "cpu")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Name -> the folder of the checkpoint, and transformers' logits for IDS."""
    made = {}

    def get(name: str):
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            oracle = save_random(folder, name)
            with torch.inference_mode():
                made[name] = folder, oracle(torch.tensor([IDS])).logits[0]
        return made[name]

    return get


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_the_logits_are_those_of_transformers(saved, name):
    folder, expected = saved(name)
    assert expected.std() > 0.5
    model = load_model(folder, dtype=torch.float32, device="cpu", upcycle=False)
    torch.testing.assert_close(run_in_pieces(model, IDS, PIECES), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("llama-linear", {"factor": 1.0}),
        ("llama-yarn", {"scaling": "linear"}),
        ("llama-yarn-length", {"attention_factor": 1.0}),
        ("llama-yarn-length", {"truncate": True}),
        ("llama-llama3", {"factor": 1.0}),
        ("qwen2-windows", {"windows": ()}),
        ("qwen3-windows", {"windows": (5, 5, 5)}),
        ("mixtral-windows", {"windows": (6, 6, 6)}),
        ("olmoe", {"qkv_clip": 0.0}),
        ("olmoe", {"renormalised": True}),
        ("qwen3_moe-windows", {"renormalised": False}),
        ("granitemoe", {"attention_scale": 0.0}),
        ("granitemoe", {"residual_scale": 1.0}),
        ("granitemoe", {"embedding_scale": 1.0}),
        ("gpt_oss-clamped", {"swiglu_limit": 7.0}),
    ],
)
def test_what_a_family_adds_shows_in_the_logits(saved, name, changes):
    """Or the test above would pass without it."""
    folder, expected = saved(name)
    config = open_safetensors(folder).config
    rope = {key: value for key, value in changes.items() if key not in type(config).__dataclass_fields__}
    others = {key: value for key, value in changes.items() if key not in rope}
    model = loaded(folder, rope=replace(config.rope, **rope), **others)
    assert (run_in_pieces(model, IDS, PIECES) - expected).abs().max() > 0.01


@pytest.mark.parametrize("part", ["bias", "sinks", "norm"])
def test_vectors_show_in_the_logits(saved, part):
    folder, expected = saved("qwen3" if part == "norm" else "gpt_oss")
    model = loaded(folder)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1 and part in name:
            before = parameter.clone()
            parameter.fill_(-1e30 if part == "sinks" else 1 if part == "norm" else 0)
            assert (run_in_pieces(model, IDS, PIECES) - expected).abs().max() > 0.01, name
            parameter.copy_(before)


def test_dynamic_rope_token_by_token_within_and_beyond_the_original_context(tmp_path):
    """transformers turns what one call computes by the length so far, so that portions matter to it, and single tokens
    are the measure."""
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 300.0}
    oracle = save_random(tmp_path, "llama", max_position_embeddings=24, rope_parameters=rope)
    with torch.inference_mode():
        cache = DynamicCache(config=oracle.config)
        calls = [oracle(torch.tensor([part]), cache=cache) for part in (IDS[:20], *([token] for token in IDS[20:]))]
    expected = torch.cat([call.logits[0] for call in calls])
    model = loaded(tmp_path)
    assert model.config.context_tokens == 48
    torch.testing.assert_close(run_in_pieces(model, IDS, (0, 20, *range(21, 41))), expected, rtol=0, atol=1e-4)
    torch.testing.assert_close(run_in_pieces(model, IDS, (0, 20, 33, 40)), expected, rtol=0, atol=1e-4)
    plain = loaded(tmp_path, rope=replace(model.config.rope, scaling="none"))
    assert (run_in_pieces(plain, IDS, PIECES) - expected)[24:].abs().max() > 0.01


def test_experts_of_unequal_width_are_padded_to_the_widest(tmp_path):
    widths = [8, 24, 16, 20]
    oracle = random_model("qwen3_moe")
    with torch.no_grad():
        for layer in oracle.model.layers:
            if hasattr(layer.mlp, "experts"):
                for expert, width in enumerate(widths):
                    layer.mlp.experts.gate_up_proj[expert].view(2, 24, -1)[:, width:] = 0
                    layer.mlp.experts.down_proj[expert, :, width:] = 0
        expected = oracle(torch.tensor([IDS])).logits[0]
    oracle.save_pretrained(tmp_path)
    narrow_experts(tmp_path, widths)
    model = loaded(tmp_path)
    assert model.config.expert_ffn == 24
    torch.testing.assert_close(run_in_pieces(model, IDS, PIECES), expected, rtol=0, atol=1e-4)


def narrow_experts(folder, widths: list[int]) -> None:
    """Cuts the experts of a checkpoint to their widths, and says so in config.json."""
    tensors = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():
        if ".experts." in name:
            width = widths[int(name.split(".experts.")[1].split(".")[0])]
            tensors[name] = (tensor[:, :width] if "down_proj" in name else tensor[:width]).contiguous()
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"moe_intermediate_size": widths}))
