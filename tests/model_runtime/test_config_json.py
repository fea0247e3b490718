"""config.json -> ModelConfig: what real checkpoints say, old spellings and new, and what is refused."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig

from model_runtime.config_json import read_config_json
from model_runtime.families import ModelConfig, Rope
from model_runtime.hf_families import FAMILIES
from model_runtime.weights import CheckpointError

LLAMA_3_1_8B = {
    "model_type": "llama",
    "attention_bias": False,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
QWEN_2_5_0_5B = {
    "model_type": "qwen2",
    "hidden_act": "silu",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "max_position_embeddings": 32768,
    "max_window_layers": 21,
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
MIXTRAL_8X7B = {
    "model_type": "mixtral",
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "num_attention_heads": 32,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "rms_norm_eps": 1e-05,
    "rope_theta": 1000000.0,
    "router_aux_loss_coef": 0.02,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "vocab_size": 32000,
}
QWEN3_30B_A3B = {
    "model_type": "qwen3_moe",
    "attention_bias": False,
    "decoder_sparse_step": 1,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "max_position_embeddings": 40960,
    "max_window_layers": 48,
    "mlp_only_layers": [],
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000.0,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
GPT_OSS_20B = {
    "model_type": "gpt_oss",
    "attention_bias": True,
    "experts_per_token": 4,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2880,
    "initial_context_length": 4096,
    "intermediate_size": 2880,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "max_position_embeddings": 131072,
    "num_attention_heads": 64,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 24,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "quantization_config": {
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"],
        "quant_method": "mxfp4",
    },
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "factor": 32.0,
        "original_max_position_embeddings": 4096,
        "rope_type": "yarn",
        "truncate": False,
    },
    "rope_theta": 150000,
    "sliding_window": 128,
    "swiglu_limit": 7.0,
    "tie_word_embeddings": False,
    "vocab_size": 201088,
}


def described(tmp_path, values: object) -> ModelConfig:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    return read_config_json(path).config


def test_llama_3_1(tmp_path):
    assert described(tmp_path, LLAMA_3_1_8B) == ModelConfig(
        layers=32,
        hidden=4096,
        heads=32,
        kv_heads=8,
        head_dim=128,
        ffn=14336,
        vocab=128256,
        context_tokens=131072,
        rms_eps=1e-5,
        rope=Rope(500000.0, "llama3", 8.0, 8192, low_freq_factor=1.0, high_freq_factor=4.0),
    )


def test_qwen_2_5(tmp_path):
    config = described(tmp_path, QWEN_2_5_0_5B)
    assert config.qkv_bias and config.tied_embeddings and not config.out_bias and not config.windows
    assert (config.head_dim, config.rope) == (64, Rope(1e6))


def test_mixtral(tmp_path):
    config = described(tmp_path, MIXTRAL_8X7B)
    assert (config.num_experts, config.active_experts, config.expert_ffn) == (8, 2, 14336)
    assert config.renormalised and not config.windows and config.rope == Rope(1e6)


def test_qwen3_moe(tmp_path):
    config = described(tmp_path, QWEN3_30B_A3B)
    assert (config.num_experts, config.active_experts, config.expert_ffn, config.head_dim) == (128, 8, 768, 128)
    assert config.qk_norm == "head" and config.renormalised and config.dense_layers == () and not config.qkv_bias


def test_gpt_oss(tmp_path):
    config = described(tmp_path, GPT_OSS_20B)
    assert config.windows == (128, 0) * 12 and config.context_tokens == 131072
    assert config.sinks and config.qkv_bias and config.out_bias and config.router_bias and config.expert_bias
    assert (config.activation, config.swiglu_limit, config.renormalised) == ("clamped_swiglu", 7.0, True)
    length = 0.1 * math.log(32) + 1
    assert config.rope == Rope(150000.0, "yarn", 32.0, 4096, truncate=False, attention_factor=length)
    assert read_config_json(tmp_path / "config.json").mxfp4


def test_rope_in_the_spelling_of_transformers_5(tmp_path):
    new = {key: value for key, value in LLAMA_3_1_8B.items() if not key.startswith("rope")}
    parameters = LLAMA_3_1_8B["rope_scaling"] | {"rope_theta": 500000.0}
    assert described(tmp_path, new | {"rope_parameters": parameters}) == described(tmp_path, LLAMA_3_1_8B)
    older = LLAMA_3_1_8B["rope_scaling"] | {"type": "llama3"}
    del older["rope_type"]
    assert described(tmp_path, LLAMA_3_1_8B | {"rope_scaling": older}) == described(tmp_path, LLAMA_3_1_8B)


@pytest.mark.parametrize(
    ("rope", "context"),
    [
        ({"type": "linear", "factor": 4}, 1000),  # already counted in max_position_embeddings
        ({"type": "dynamic", "factor": 4}, 4000),
        ({"type": "yarn", "factor": 4}, 4000),
        ({"type": "yarn", "factor": 4, "original_max_position_embeddings": 250}, 1000),
    ],
)
def test_the_context_that_scaling_allows(tmp_path, rope, context):
    values = QWEN_2_5_0_5B | {"max_position_embeddings": 1000, "rope_scaling": rope}
    assert described(tmp_path, values).context_tokens == context


@pytest.mark.parametrize("model_type", [name for name in FAMILIES if "grok" not in name])
def test_what_an_absent_key_means_is_as_in_transformers(tmp_path, model_type):
    kept = {key: QWEN3_30B_A3B[key] for key in QWEN3_30B_A3B if key.endswith("_size") or key.startswith("num_")}
    sizes = kept | {"max_position_embeddings": 4096, "rms_norm_eps": 1e-6}
    if model_type == "gpt_oss":  # must say that
        sizes["sliding_window"] = 128
    theirs = AutoConfig.for_model(model_type, **sizes)
    ours = described(
        tmp_path, sizes | {"model_type": model_type, "shared_expert_intermediate_size": 64, "logits_scaling": None}
    )
    assert ours.head_dim == (getattr(theirs, "head_dim", None) or 2048 // 32)
    assert ours.rope.base == theirs.rope_parameters["rope_theta"]
    assert ours.rope.scaling.replace("none", "default") == theirs.rope_parameters["rope_type"]
    assert ours.tied_embeddings == theirs.tie_word_embeddings
    assert ours.qkv_bias == getattr(theirs, "attention_bias", model_type in ("qwen2", "qwen2_moe"))
    assert ours.renormalised == getattr(theirs, "norm_topk_prob", True)
    assert ours.qkv_clip == (getattr(theirs, "clip_qkv", None) or 0)
    assert ours.windows == (() if model_type != "gpt_oss" else (128, 0) * 24)


def test_the_original_context_beside_the_rope(tmp_path):
    """Where some checkpoints have it, and it goes before that in the rope, as in transformers."""
    rope = {"type": "yarn", "factor": 4, "original_max_position_embeddings": 8192}
    config = described(tmp_path, QWEN_2_5_0_5B | {"rope_scaling": rope, "original_max_position_embeddings": 16384})
    assert config.rope.original_context_tokens == 16384


def test_what_yarn_leaves_unsaid(tmp_path):
    rope = described(tmp_path, QWEN_2_5_0_5B | {"rope_scaling": {"type": "yarn", "factor": 4}}).rope
    length = 0.1 * math.log(4) + 1
    assert rope == Rope(1e6, "yarn", 4.0, 32768, beta_fast=32, beta_slow=1, truncate=True, attention_factor=length)
    assert (
        described(tmp_path, QWEN_2_5_0_5B | {"rope_scaling": {"type": "yarn", "factor": 1}}).rope.attention_factor == 1
    )


@pytest.mark.parametrize(
    ("model_type", "border"), [("qwen2", 3), ("qwen3", 3), ("qwen2_moe", 3), ("qwen2_moe", 5), ("gpt_oss", 3)]
)
def test_which_layers_have_windows_is_as_in_transformers_where_config_json_is_silent(tmp_path, model_type, border):
    sizes = {"num_hidden_layers": 6, "sliding_window": 7, "use_sliding_window": True, "max_window_layers": border}
    kinds = AutoConfig.for_model(model_type, **sizes).layer_types
    assert set(kinds) == {"full_attention", "sliding_attention"}
    base = {**QWEN3_30B_A3B, **GPT_OSS_20B, "layer_types": None, "quantization_config": None, "rope_scaling": None}
    values = base | sizes | {"model_type": model_type, "shared_expert_intermediate_size": 64, "attention_bias": False}
    assert described(tmp_path, values).windows == tuple(7 * (kind == "sliding_attention") for kind in kinds)


@pytest.mark.parametrize(
    ("base", "changes", "message"),
    [
        (LLAMA_3_1_8B, {"model_type": "mamba"}, "model_type is 'mamba'; supported: llama, qwen2, .*, grok-1"),
        (LLAMA_3_1_8B, {"model_type": None}, "model_type is missing"),
        (LLAMA_3_1_8B, {"hidden_size": None}, "hidden_size is missing"),
        (LLAMA_3_1_8B, {"hidden_size": "4096"}, "hidden_size is '4096', not int"),
        (LLAMA_3_1_8B, {"num_hidden_layers": 0}, "num_hidden_layers is 0, must be positive"),
        (LLAMA_3_1_8B, {"num_hidden_layers": True}, "num_hidden_layers is True, not int"),
        (LLAMA_3_1_8B, {"num_key_value_heads": 5}, "num_key_value_heads is 5, which does not divide 32 heads"),
        (LLAMA_3_1_8B, {"head_dim": 63}, "head_dim is 63"),
        (LLAMA_3_1_8B, {"rms_norm_eps": math.nan}, "rms_norm_eps is nan"),
        (LLAMA_3_1_8B, {"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes', not bool"),
        (LLAMA_3_1_8B, {"hidden_act": "gelu"}, "hidden_act is 'gelu'; supported: silu"),
        (LLAMA_3_1_8B, {"mlp_bias": True}, "mlp_bias is True, which is not supported"),
        (LLAMA_3_1_8B, {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        (LLAMA_3_1_8B, {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50.0"),
        (LLAMA_3_1_8B, {"quantization_config": {"quant_method": "gptq"}}, "quant_method is 'gptq'"),
        (LLAMA_3_1_8B, {"quantization_config": {"quant_method": "mxfp4"}}, "quant_method is 'mxfp4'; supported"),
        (LLAMA_3_1_8B, {"rope_scaling": {"type": "longrope", "factor": 4}}, "rope_scaling.rope_type is 'longrope'"),
        (LLAMA_3_1_8B, {"rope_scaling": {"type": "linear"}}, "rope_scaling.factor is missing"),
        (LLAMA_3_1_8B, {"rope_scaling": {"type": "linear", "factor": -1}}, "rope_scaling.factor is -1"),
        (
            LLAMA_3_1_8B,
            {"rope_scaling": {"type": "dynamic", "factor": 2, "alpha": 9}},
            "rope_scaling.alpha is not known",
        ),
        (
            LLAMA_3_1_8B,
            {"rope_scaling": None, "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}},
            "rope_parameters.partial_rotary_factor is not 1",
        ),
        (
            LLAMA_3_1_8B,
            {"rope_scaling": {"full_attention": {"rope_type": "default"}}},
            "rope_scaling.full_attention is not known",
        ),
        (QWEN_2_5_0_5B, {"attention_bias": True}, "attention_bias is True"),
        (MIXTRAL_8X7B, {"num_experts_per_tok": 9}, "num_experts_per_tok is 9 of 8 experts"),
        (MIXTRAL_8X7B, {"num_local_experts": None}, "num_local_experts is missing"),
        (MIXTRAL_8X7B, {"sliding_window": -1}, "sliding_window is -1"),
        (QWEN3_30B_A3B, {"moe_intermediate_size": [768] * 5}, "lists 5 widths for 128 experts"),
        (QWEN3_30B_A3B, {"moe_intermediate_size": [768, 0]}, "not a list of sizes"),
        (QWEN3_30B_A3B, {"decoder_sparse_step": 0}, "decoder_sparse_step is 0"),
        (GPT_OSS_20B, {"sliding_window": None}, "sliding_window is missing"),
        (QWEN_2_5_0_5B, {"use_sliding_window": True, "sliding_window": None}, "sliding_window is missing"),
        (GPT_OSS_20B, {"swiglu_alpha": 1.5}, "swiglu_alpha is 1.5"),
        (GPT_OSS_20B, {"intermediate_size": 2881}, "blocks of 32"),
        (GPT_OSS_20B, {"layer_types": ["full_attention"]}, "layer_types"),
        (GPT_OSS_20B, {"layer_types": ["linear_attention"] * 24}, "layer_types"),
    ],
)
def test_what_cannot_be_computed_is_refused(tmp_path, base, changes, message):
    with pytest.raises(CheckpointError, match=r"config\.json: key .*" + message):
        described(tmp_path, base | changes)


@pytest.mark.parametrize(
    ("text", "message"), [("{", "is not JSON"), ("[1]", "holds a list, not an object"), ("\xff", "is not JSON")]
)
def test_what_is_no_json_object(tmp_path, text, message):
    (tmp_path / "config.json").write_text(text, "latin-1")
    with pytest.raises(CheckpointError, match=message):
        read_config_json(tmp_path / "config.json")
    with pytest.raises(CheckpointError, match="absent.json: is missing"):
        read_config_json(tmp_path / "absent.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "factor", "x"]), inner),
    max_leaves=4,
)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_value_of_any_key_is_read_or_refused(tmp_path_factory, data):
    base = data.draw(st.sampled_from([LLAMA_3_1_8B, QWEN_2_5_0_5B, MIXTRAL_8X7B, QWEN3_30B_A3B, GPT_OSS_20B]))
    key = data.draw(st.sampled_from([*base, "head_dim", "layer_types", "clip_qkv", "rope_parameters"]))
    values = base | {"num_hidden_layers": 24} | {key: data.draw(JSON)}
    if values["num_hidden_layers"].__class__ is int and values["num_hidden_layers"] > 1000:
        values["num_hidden_layers"] = 1000  # every layer is described
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(json.dumps(values))
    try:
        assert isinstance(read_config_json(path).config, ModelConfig)
    except CheckpointError as error:
        assert str(path) in str(error)


def test_the_families_name_every_parameter_that_they_can_have():
    fields = ModelConfig.__dataclass_fields__
    for family in FAMILIES.values():
        assert {*family.keys, *family.fixed, *family.defaults, *family.inverted} <= set(fields)
        assert set(family.activations.values()) <= {"silu", "gelu_tanh", "clamped_swiglu"}
