"""Safetensors folders: every layout gives the same parameters, a part is a slice of the whole, damage is refused."""

import json
import re
import struct
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tiny_checkpoint import CHECKPOINTS, random_model, save_random
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from model_runtime.model import Model
from model_runtime.mxfp4 import dequantised
from model_runtime.safetensors_checkpoint import open_safetensors
from model_runtime.safetensors_file import SafetensorsFile
from model_runtime.tensor_view import View
from model_runtime.weights import CheckpointError, Part

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def parameters(folder: Path) -> dict[str, torch.Tensor]:
    return {name: weight.read(None) for name, weight in open_safetensors(folder).weights.items()}


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert torch.equal(tensor, expected[name]), name


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Name -> a folder with that checkpoint, not to be changed."""
    folders: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp(name)
            save_random(folders[name], name)
        return folders[name]

    return get


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_the_parameters_are_those_of_the_model(saved, name):
    checkpoint = open_safetensors(saved(name))
    with torch.device("meta"):
        expected = {key: tuple(value.shape) for key, value in Model(checkpoint.config).named_parameters()}
    if checkpoint.config.tied_embeddings:
        del expected["head.weight"]
    assert {key: weight.shape for key, weight in checkpoint.weights.items()} == expected
    for weight in checkpoint.weights.values():
        assert tuple(weight.read(None).shape) == weight.shape


@pytest.mark.parametrize(
    "name", ["llama-biased-tied", "qwen3", "olmoe-renormalised", "qwen2_moe", "granitemoe", "gpt_oss"]
)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_part_is_that_slice_of_the_whole(saved, name, data):
    weights = open_safetensors(saved(name)).weights
    weight = weights[data.draw(st.sampled_from(sorted(weights)))]
    dim = data.draw(st.integers(0, len(weight.shape) - 1))
    cuts = st.integers(0, weight.shape[dim])
    ranges = st.tuples(cuts, cuts).map(sorted).filter(lambda cut: cut[0] < cut[1]).map(tuple)
    part = Part(dim, tuple(data.draw(st.lists(ranges, min_size=1, max_size=3))))
    assert torch.equal(weight.read(part), part.of(weight.read(None)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["llama-biased-tied", "mixtral", "granitemoe", "gpt_oss"])
def test_other_dtypes_are_read_as_they_are(saved, tmp_path, name, dtype):
    save_random(tmp_path, name, dtype)
    found, exact = parameters(tmp_path), parameters(saved(name))
    assert all(tensor.dtype == dtype for tensor in found.values())
    assert_same(found, {key: tensor.to(dtype) for key, tensor in exact.items()})


@pytest.mark.parametrize("name", ["mixtral", "olmoe", "qwen2_moe", "qwen3_moe", "granitemoe"])
def test_experts_in_one_tensor_are_the_same_experts(saved, tmp_path, name):
    random_model(name).save_pretrained(tmp_path, save_original_format=False)
    stored, original = (set(load_file(folder / SINGLE)) for folder in (tmp_path, saved(name)))
    assert stored != original
    assert_same(parameters(tmp_path), parameters(saved(name)))


def test_shards_are_the_same_as_one_file(saved, tmp_path):
    random_model("mixtral").save_pretrained(tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2 and not (tmp_path / SINGLE).exists()
    assert_same(parameters(tmp_path), parameters(saved("mixtral")))


def test_only_what_is_asked_for_is_looked_at(saved, tmp_path):
    tensors = changed_copy(saved("mixtral"), tmp_path)
    tensors["model.layers.1.block_sparse_moe.experts.2.w1.weight"][40, 3] = torch.inf
    save_file(tensors, tmp_path / SINGLE)
    weights = open_safetensors(tmp_path).weights
    damaged = weights["layers.1.ffn.experts.2.gate.weight"]
    damaged.read(Part(0, ((0, 40), (41, 48))))
    weights["layers.1.ffn.experts.1.gate.weight"].read(None)
    for part in (None, Part(0, ((40, 41),)), Part(1, ((3, 4),))):
        with pytest.raises(CheckpointError, match=r"experts\.2\.w1\.weight: has values that are not finite"):
            damaged.read(part)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says how much of a mapped file was read")
def test_only_what_is_asked_for_is_read(saved, tmp_path):
    changed_copy(saved("mixtral"), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"vocab_size": 200_000}))
    tensors = load_file(saved("mixtral") / SINGLE)
    for name in ("lm_head.weight", "model.embed_tokens.weight"):
        tensors[name] = torch.zeros(200_000, 32)
    save_file(tensors, tmp_path / SINGLE)
    weights = open_safetensors(tmp_path).weights
    before = mapped_bytes(tmp_path / SINGLE)
    weights["embedding"].read(Part(0, ((1000, 9000), (70_000, 72_000))))
    row_bytes = 32 * 4
    read = mapped_bytes(tmp_path / SINGLE) - before  # the kernel maps some of what is beside it too
    assert 9_000 * row_bytes < read < 50_000 * row_bytes


def mapped_bytes(path: Path) -> int:
    """How much of the file is in this process's memory."""
    text = Path("/proc/self/smaps").read_text()
    return sum(int(kilobytes) * 1024 for kilobytes in re.findall(rf"{path}\n(?:.*\n)*?Rss: +(\d+) kB", text))


def changed_copy(source: Path, folder: Path) -> dict[str, torch.Tensor]:
    """Copies config.json; the tensors are for the caller to change and save."""
    (folder / "config.json").write_bytes((source / "config.json").read_bytes())
    return load_file(source / SINGLE)


def test_a_head_beside_a_tied_embedding(saved, tmp_path):
    """As in transformers: superfluous when equal, the head when it differs."""
    tensors = changed_copy(saved("llama-biased-tied"), tmp_path)
    embedding = tensors["model.embed_tokens.weight"]
    save_file(tensors | {"lm_head.weight": embedding.clone()}, tmp_path / SINGLE)
    assert open_safetensors(tmp_path).config.tied_embeddings
    assert_same(parameters(tmp_path), parameters(saved("llama-biased-tied")))
    save_file(tensors | {"lm_head.weight": embedding * 2}, tmp_path / SINGLE)
    assert not open_safetensors(tmp_path).config.tied_embeddings
    assert torch.equal(parameters(tmp_path)["head.weight"], embedding * 2)


def test_rotary_frequencies_of_older_checkpoints_are_passed_over(saved, tmp_path):
    tensors = changed_copy(saved("llama"), tmp_path)
    save_file(tensors | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}, tmp_path / SINGLE)
    assert_same(parameters(tmp_path), parameters(saved("llama")))


# Four bits and scales


def packed(rows: int, columns: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    blocks = torch.randint(0, 256, (4, rows, columns // 32, 16), dtype=torch.uint8, generator=generator)
    scales = torch.randint(100, 150, (4, rows, columns // 32), dtype=torch.uint8, generator=generator)
    return blocks, scales


@pytest.fixture(scope="module")
def mxfp4(tmp_path_factory) -> Path:
    """gpt-oss with experts as it is published."""
    folder = tmp_path_factory.mktemp("mxfp4")
    save_random(folder, "gpt_oss", hidden_size=64, intermediate_size=96)
    tensors = load_file(folder / SINGLE)
    for layer in range(3):
        for name, rows, columns in (("gate_up_proj", 192, 64), ("down_proj", 64, 96)):
            experts = f"model.layers.{layer}.mlp.experts.{name}"
            del tensors[experts]
            tensors[f"{experts}_blocks"], tensors[f"{experts}_scales"] = packed(rows, columns, layer)
    save_file(tensors, folder / SINGLE)
    config = json.loads((folder / "config.json").read_text()) | {"quantization_config": {"quant_method": "mxfp4"}}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_mxfp4_is_dequantised_as_transformers_does(mxfp4):
    found = parameters(mxfp4)
    for layer in range(3):
        gate_up = convert_moe_packed_tensors(*packed(192, 64, layer))  # [E, D, 2F]
        down = convert_moe_packed_tensors(*packed(64, 96, layer))  # [E, F, D]
        for expert in range(4):
            name = f"layers.{layer}.ffn.experts.{expert}."
            assert found[f"{name}gate.weight"].dtype == torch.bfloat16
            assert torch.equal(found[f"{name}gate.weight"], gate_up[expert, :, ::2].T)
            assert torch.equal(found[f"{name}up.weight"], gate_up[expert, :, 1::2].T)
            assert torch.equal(found[f"{name}down.weight"], down[expert].T)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_part_of_mxfp4_is_that_slice_of_the_whole(mxfp4, data):
    weights = open_safetensors(mxfp4).weights
    weight = weights[f"layers.1.ffn.experts.2.{data.draw(st.sampled_from(['gate', 'up', 'down']))}.weight"]
    dim = data.draw(st.integers(0, 1))
    start = data.draw(st.integers(0, weight.shape[dim] - 1))
    part = Part(dim, ((start, data.draw(st.integers(start + 1, weight.shape[dim]))),))
    assert torch.equal(weight.read(part), part.of(weight.read(None)))


def read_mxfp4(blocks, scales):
    """[1, rows, groups, 16] bytes and [1, rows, groups] scales"""
    views = [View(tensor.shape[1:], lambda box, tensor=tensor: tensor[0][box]) for tensor in (blocks, scales)]
    return dequantised(*views, CheckpointError("x", "y")).weight().read(None)


def test_every_value_and_scale_of_mxfp4():
    """transformers in bfloat16 is the measure, as far as every value of the scale is finite."""
    blocks = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16).expand(1, 253, 16, 16)
    scales = torch.arange(253, dtype=torch.uint8).reshape(1, 253, 1).expand(1, 253, 16)
    assert torch.equal(read_mxfp4(blocks, scales), convert_moe_packed_tensors(blocks, scales)[0].T)


@pytest.mark.parametrize(
    ("byte", "scale", "finite"), [(0x00, 255, False), (0x77, 254, False), (0x77, 253, False), (0x11, 254, True)]
)
def test_a_scale_of_mxfp4_that_no_bfloat16_can_follow_is_damage(byte, scale, finite):
    blocks, scales = torch.full((1, 1, 1, 16), byte, dtype=torch.uint8), torch.full((1, 1, 1), scale, dtype=torch.uint8)
    if finite:
        assert read_mxfp4(blocks, scales).eq(2.0**126).all()
    else:
        with pytest.raises(CheckpointError):
            read_mxfp4(blocks, scales)


# What is refused

Q_PROJ = "model.layers.1.self_attn.q_proj.weight"
CHANGES = {
    "missing": (lambda t: t.pop(Q_PROJ), rf"tensor {Q_PROJ}: missing, expected shape \(32, 32\)"),
    "unexpected": (
        lambda t: t.update({"model.layers.1.self_attn.q_proj.bias": torch.ones(32)}),
        r"model\.safetensors: tensor model\.layers\.1\.self_attn\.q_proj\.bias: unexpected, of shape \(32,\)",
    ),
    "another layer": (
        lambda t: t.update({"model.layers.3.input_layernorm.weight": torch.ones(32)}),
        r"model\.layers\.3\.input_layernorm\.weight: unexpected",
    ),
    "mis-shaped": (
        lambda t: t.update({Q_PROJ: torch.ones(32, 16)}),
        rf"model\.safetensors: tensor {Q_PROJ}: expected shape \(32, 32\), found \(32, 16\)",
    ),
    "wrong dtype": (
        lambda t: t.update({Q_PROJ: t[Q_PROJ].to(torch.int32)}),
        rf"tensor {Q_PROJ}: expected dtype F32 or F16 or BF16, found I32",
    ),
    "eight bits": (
        lambda t: t.update({Q_PROJ: t[Q_PROJ].to(torch.float8_e4m3fn)}),
        rf"tensor {Q_PROJ}: expected dtype F32 or F16 or BF16, found F8_E4M3",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_tensors_that_are_not_the_expected_ones(saved, tmp_path, change):
    edit, message = CHANGES[change]
    tensors = changed_copy(saved("llama"), tmp_path)
    edit(tensors)
    save_file(tensors, tmp_path / SINGLE)
    with pytest.raises(CheckpointError, match=message):
        open_safetensors(tmp_path)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_values_that_are_not_finite(saved, tmp_path, value, dtype):
    tensors = {name: tensor.to(dtype) for name, tensor in changed_copy(saved("llama"), tmp_path).items()}
    tensors[Q_PROJ][5, 7] = value
    save_file(tensors, tmp_path / SINGLE)
    with pytest.raises(CheckpointError, match=rf"model\.safetensors: tensor {Q_PROJ}: has values that are not finite"):
        open_safetensors(tmp_path).weights["layers.1.attention.qkv.weight"].read(None)


def test_a_folder_of_pickles_says_why_it_is_refused(saved, tmp_path):
    changed_copy(saved("llama"), tmp_path)
    with pytest.raises(CheckpointError, match=r"has neither model\.safetensors nor model\.safetensors\.index\.json"):
        open_safetensors(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK")
    with pytest.raises(CheckpointError, match="pickles, which can run code"):
        open_safetensors(tmp_path)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda map_: map_.update({Q_PROJ: "elsewhere.safetensors"}),
            r"index\.json: lists elsewhere\.safetensors, which",
        ),
        (
            lambda map_: map_.update({Q_PROJ: "../a.safetensors"}),
            rf"tensor {Q_PROJ}: file '\.\./a\.safetensors' is not",
        ),
        (lambda map_: map_.update({Q_PROJ: 3}), "file 3 is not"),
        (
            lambda map_: map_.update({"ghost": "model-00001-of-00002.safetensors"}),
            "ghost: in the index, not in the file",
        ),
        (lambda map_: map_.pop(Q_PROJ), rf"tensor {Q_PROJ}: in the file, not in the index"),
        (lambda map_: map_.clear(), "no weight_map"),
    ],
)
def test_an_index_that_disagrees_with_the_files(saved, tmp_path, edit, message):
    tensors = changed_copy(saved("llama"), tmp_path)
    files = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    weight_map = {name: files["layers.2" in name] for name in tensors}
    for file in files:
        save_file({name: tensor for name, tensor in tensors.items() if weight_map[name] == file}, tmp_path / file)
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    assert_same(parameters(tmp_path), parameters(saved("llama")))
    edit(weight_map)
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(CheckpointError, match=message):
        open_safetensors(tmp_path)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_file_cut_short_anywhere_is_refused(saved, tmp_path_factory, data):
    whole = (saved("llama") / SINGLE).read_bytes()
    kept = data.draw(st.integers(0, 4000) | st.integers(0, len(whole) - 1))
    path = tmp_path_factory.mktemp("cut") / SINGLE
    path.write_bytes(whole[:kept])
    with pytest.raises(CheckpointError, match=rf"{re.escape(str(path))}: "):
        SafetensorsFile(path)


ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["F32", "U8", "F8_E5M2", 3]),
        "shape": st.lists(st.integers(-1, 4), max_size=2) | st.none(),
        "data_offsets": st.lists(st.integers(-4, 40), max_size=3),
    },
)


@settings(max_examples=200, deadline=None)
@given(
    header=st.dictionaries(st.text(max_size=2), ENTRY, max_size=3) | st.integers() | st.text(), size=st.integers(0, 40)
)
def test_any_header_is_read_or_refused(tmp_path_factory, header, size):
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(size))
    try:
        tensors = SafetensorsFile(path).tensors
    except CheckpointError as error:
        assert str(path) in str(error)
    else:
        assert sum(tensor.end - tensor.begin for tensor in tensors.values()) == size
        for tensor in tensors.values():
            if tensor.dtype in ("F32", "U8"):
                assert tensor.file.array(tensor).shape == tensor.shape


@pytest.mark.parametrize("offsets", [[(0, 8), (4, 12)], [(0, 8), (12, 20)], [(4, 12), (12, 20)]])
def test_tensors_lie_side_by_side(tmp_path, offsets):
    """The format allows neither holes nor overlaps: what hides there is read differently by different readers."""
    header = {str(at): {"dtype": "F32", "shape": [2], "data_offsets": at} for at in offsets}
    text = json.dumps(header).encode()
    (tmp_path / SINGLE).write_bytes(struct.pack("<Q", len(text)) + text + bytes(offsets[-1][1]))
    with pytest.raises(CheckpointError, match=r"damaged: begins at byte \d+, expected"):
        SafetensorsFile(tmp_path / SINGLE)


@pytest.mark.parametrize("name", ["\ud800", "a\nERROR all is lost", "\x1b[2J"])
def test_a_name_cannot_forge_lines_of_a_log_or_stop_it(saved, tmp_path, name):
    changed_copy(saved("llama"), tmp_path)
    header = json.dumps({name: {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}).encode()
    (tmp_path / SINGLE).write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(CheckpointError) as refused:
        SafetensorsFile(tmp_path / SINGLE).tensors[name].view((1,))
    assert refused.value.tensor == name
    assert str(refused.value).encode().isascii() and str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cut short or no safetensors"),
        (b"GGUF" + bytes(100), "cut short or no safetensors"),
        (struct.pack("<Q", 10**9) + bytes(100), "a header of 1000000000 bytes in a file of 108"),
        (struct.pack("<Q", 4) + b"\xff\xff\xff\xff", "its header is not JSON"),
        (struct.pack("<Q", 6000) + b"[" * 6000, "its header is not JSON"),
        (struct.pack("<Q", 5002) + b"[" + b"9" * 5000 + b"]", "its header is not JSON"),
        (struct.pack("<Q", 13) + b'{"a":1,"a":2}', "a name stands twice"),
    ],
)
def test_another_kind_of_file_is_refused(tmp_path, content, message):
    (tmp_path / SINGLE).write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        SafetensorsFile(tmp_path / SINGLE)
