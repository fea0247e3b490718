"""A checkpoint that does not fit is refused with the file, the tensor and both shapes; never half loaded. Numbers are
those that the gguf package reads."""

import pickle
import struct
from dataclasses import replace

import gguf
import numpy as np
import pytest
import torch
from gguf_writing import write_gguf
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_model import TINY, random_tensors, tiny_model

from model_runtime.gguf import open_gguf
from model_runtime.gguf_file import GgufFile
from model_runtime.gguf_tensor import gguf_view
from model_runtime.weights import CheckpointError, Part

HEADER = {
    "block_count": TINY.layers,
    "context_length": TINY.context_tokens,
    "embedding_length": TINY.hidden,
    "feed_forward_length": TINY.ffn,
    "attention.head_count": TINY.heads,
    "attention.head_count_kv": TINY.kv_heads,
    "attention.key_length": TINY.head_dim,
    "rope.freq_base": TINY.rope.base,
    "attention.layer_norm_rms_epsilon": TINY.rms_eps,
}
KINDS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "MXFP4")


def tensors_of_tiny() -> dict[str, np.ndarray]:
    """The GGUF tensors that load as tiny_model(seed=3)."""
    parameters = random_tensors(TINY, 3)
    stored = {"token_embd.weight": parameters["embedding"], "output_norm.weight": parameters["norm.weight"]}
    for layer in range(TINY.layers):
        qkv = parameters[f"layers.{layer}.attention.qkv.weight"].split([48, 24, 24])
        stored |= {f"blk.{layer}.attn_{name}.weight": part for name, part in zip("qkv", qkv, strict=True)}
        stored |= {
            f"blk.{layer}.{name}.weight": parameters[f"layers.{layer}.{parameter}.weight"]
            for name, parameter in {
                "attn_norm": "attention_norm",
                "attn_output": "attention.out",
                "ffn_norm": "ffn_norm",
                "ffn_gate": "ffn.gate",
                "ffn_up": "ffn.up",
                "ffn_down": "ffn.down",
            }.items()
        }
    return {name: tensor.numpy() for name, tensor in stored.items()}


def write_tiny(path, architecture="llama", changes=(), **keys):
    """`changes` of the tensors; `keys` of the header, "__" standing for a dot."""
    header = HEADER | {name.replace("__", "."): value for name, value in keys.items()}
    tensors = {name: tensor for name, tensor in (tensors_of_tiny() | dict(changes)).items() if tensor is not None}
    return write_gguf(path, architecture, header, tensors)


def read_all(path):
    for weight in open_gguf(path).weights.values():
        weight.read(None)


@pytest.fixture(scope="module")
def tiny_gguf(tmp_path_factory):
    return write_tiny(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def test_every_parameter_is_loaded_where_it_belongs(tiny_gguf):
    checkpoint = open_gguf(tiny_gguf)
    assert replace(checkpoint.config, rms_eps=TINY.rms_eps, expert_ffn=TINY.expert_ffn) == TINY
    assert checkpoint.config.rms_eps == pytest.approx(TINY.rms_eps)
    states = tiny_model(seed=3).state_dict()
    del states["head.weight"]
    assert checkpoint.weights.keys() == states.keys()
    for name, weight in checkpoint.weights.items():
        assert weight.shape == states[name].shape
        assert torch.equal(weight.read(None), states[name])


def test_the_header_is_read_as_the_gguf_package_reads_it(tiny_gguf):
    ours, theirs = GgufFile(tiny_gguf), gguf.GGUFReader(tiny_gguf)
    assert ours.metadata == {name: f.contents() for name, f in theirs.fields.items() if not name.startswith("GGUF.")}
    assert {name: t.shape for name, t in ours.tensors.items()} == {
        t.name: tuple(t.shape.tolist()[::-1]) for t in theirs.tensors
    }


@pytest.fixture(scope="module")
def quantised(tmp_path_factory):
    """A file with a tensor [3, 8, 512] of each kind, of random blocks whose scales are finite."""
    path = tmp_path_factory.mktemp("kinds") / "kinds.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    random = np.random.default_rng(1)
    for name in KINDS:
        kind = gguf.GGMLQuantizationType[name]
        block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        stored = random.integers(0, 256, (3, 8, 512 // block, block_bytes), dtype=np.uint8)
        scales = random.normal(size=(*stored.shape[:-1], 2)).astype(np.float16).view(np.uint8)  # a scale, a minimum
        if block == 1:
            stored = random.normal(size=(3, 8, 512)).astype(np.float32)
            stored = gguf.quantize(stored, kind).view(np.uint8)
        elif name == "MXFP4":
            stored[..., 0] = random.integers(118, 134, stored.shape[:-1])  # powers of two
        elif name == "Q6_K":
            stored[..., -2:] = scales[..., :2]
        else:
            stored[..., : 4 if name.endswith(("_1", "_K")) else 2] = scales[..., : 4 if name[-1] in "1K" else 2]
        writer.add_tensor(name, stored.reshape(3, 8, -1), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_those_that_the_gguf_package_reads(quantised, kind):
    (theirs,) = (tensor for tensor in gguf.GGUFReader(quantised).tensors if tensor.name == kind)
    assert theirs.tensor_type.name == kind
    expected = torch.from_numpy(gguf.dequantize(theirs.data, theirs.tensor_type).reshape(3, 8, 512).copy())
    assert expected.isfinite().all() and expected.std() > 0.5
    view = gguf_view(GgufFile(quantised), kind, (3, 8, 512))
    for box in (
        (slice(0, 3), slice(0, 8), slice(0, 512)),
        (slice(1, 2), slice(3, 5), slice(0, 512)),
        (slice(0, 3), slice(2, 8), slice(256, 512)),
        (slice(2, 3), slice(0, 8), slice(17, 301)),  # within blocks
    ):
        assert torch.equal(view.read(box).float(), expected[box]), box


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_part_of_a_parameter_is_that_part_of_the_whole(tiny_gguf, data):
    """Also of one that is stacked from three tensors, with the rows of two of them rearranged."""
    weight = open_gguf(tiny_gguf).weights[data.draw(st.sampled_from(["layers.1.attention.qkv.weight", "norm.weight"]))]
    dim = data.draw(st.integers(0, len(weight.shape) - 1))
    cuts = sorted(data.draw(st.sets(st.integers(0, weight.shape[dim]), min_size=2, max_size=6)))
    part = Part(dim, tuple(zip(cuts[::2], cuts[1::2], strict=False)))
    read = weight.read(part)
    assert tuple(read.shape) == part.shape(weight.shape)
    assert torch.equal(read, part.of(weight.read(None)))


def test_a_missing_tensor(tmp_path):
    path = write_tiny(tmp_path / "m.gguf", changes={"blk.1.attn_k.weight": None})
    with pytest.raises(CheckpointError, match=r"m\.gguf: tensor blk\.1\.attn_k\.weight: missing.*\(24, 32\)"):
        open_gguf(path)


@pytest.mark.parametrize("name", ["blk.0.attn_sinks.weight", "blk.0.attn_q_norm.weight", "blk.2.attn_norm.weight"])
def test_an_unexpected_tensor(tmp_path, name):
    path = write_tiny(tmp_path / "m.gguf", changes={name: np.ones(4, np.float32)})
    with pytest.raises(CheckpointError, match=rf"m\.gguf: tensor {name}: unexpected.*\(4,\)"):
        open_gguf(path)


def test_a_misshaped_tensor(tmp_path):
    turned = np.ascontiguousarray(tensors_of_tiny()["blk.0.ffn_down.weight"].T)
    path = write_tiny(tmp_path / "m.gguf", changes={"blk.0.ffn_down.weight": turned})
    with pytest.raises(CheckpointError, match=r"blk\.0\.ffn_down\.weight: expected shape \(32, 48\), found \(48, 32\)"):
        open_gguf(path)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["blk.1.attn_norm.weight", "blk.0.attn_k.weight"])
def test_a_value_that_is_not_finite(tmp_path, name, value):
    damaged = tensors_of_tiny()[name].copy()
    damaged.flat[7] = value
    path = write_tiny(tmp_path / "m.gguf", changes={name: damaged})
    with pytest.raises(CheckpointError, match=rf"tensor {name}: has values that are not finite"):
        read_all(path)


def test_a_scale_that_is_not_finite(quantised, tmp_path):
    content = bytearray(quantised.read_bytes())
    stored = GgufFile(quantised).tensors["Q4_K"]
    content[stored.begin : stored.begin + 2] = np.float16(np.inf).tobytes()
    (tmp_path / "s.gguf").write_bytes(content)
    view = gguf_view(GgufFile(tmp_path / "s.gguf"), "Q4_K", (3, 8, 512))
    with pytest.raises(CheckpointError, match="tensor Q4_K: has values that are not finite"):
        view.read((slice(0, 1), slice(0, 1), slice(0, 512)))


def test_values_whose_sum_is_not_finite_are_fine(tmp_path):
    large = np.full_like(tensors_of_tiny()["blk.1.attn_norm.weight"], 3e38)
    read_all(write_tiny(tmp_path / "l.gguf", changes={"blk.1.attn_norm.weight": large}))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"block_count": None}, "no key llama.block_count"),
        ({"block_count": 0}, "llama.block_count is 0"),
        ({"block_count": "two"}, "llama.block_count holds a str, not a int"),
        ({"attention__head_count": 7}, "7 heads cannot share 3"),
        ({"rope__dimension_count": 4}, "only a part of a head's 8 dimensions"),
        ({"attention__value_length": 4}, "values of another width than keys"),
        ({"rope__scaling__type": "longrope", "rope__scaling__factor": 2.0}, "rotary scaling 'longrope'"),
        ({"rope__scaling__factor": 0.0}, "rotary scaling by 0.0"),
        ({"rope__scaling__attn_factor": 1.2}, "scaling.attn_factor is 1.2.*: model.py does not compute that"),
        ({"rope__scaling__yarn_attn_factor": 1.0}, "yarn_attn_factor is 1.0: model.py does not compute that"),
        ({"expert_shared_feed_forward_length": 8}, "expert_shared_feed_forward_length is 8: model.py does not"),
        ({"attention__temperature_length": 1024}, "temperature_length is 1024: model.py does not compute that"),
        ({"expert_count": 4}, "no key llama.expert_used_count"),
        ({"expert_count": 4, "expert_used_count": 5}, "5 active experts of 4"),
        ({"expert_count": 4, "expert_used_count": 2}, r"ffn_gate_inp.weight: missing, expected shape \(4, 32\)"),
        ({"expert_count": 4, "expert_used_count": 2, "expert_gating_func": 2}, "expert_gating_func is 2: model.py"),
        ({"logit_scale": 0.0}, "llama.logit_scale is 0.0"),
        ({"architecture": "bert"}, "architecture 'bert'; supported: llama, "),
    ],
)
def test_a_header_that_cannot_be_used(tmp_path, keys, message):
    path = write_tiny(tmp_path / "h.gguf", **keys)
    with pytest.raises(CheckpointError, match=message):
        open_gguf(path)


def test_one_of_several_files(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "part-00001-of-00003.gguf", "llama")
    writer.add_uint16("split.count", 3)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(CheckpointError, match="one of 3 files"):
        open_gguf(tmp_path / "part-00001-of-00003.gguf")


def test_a_quantisation_that_nobody_reads(tmp_path):
    path = write_tiny(tmp_path / "i.gguf")
    content = bytearray(path.read_bytes())
    at = content.index(b"blk.0.ffn_up.weight") + len(b"blk.0.ffn_up.weight") + 4 + 2 * 8
    for kind, message in ((24, "quantisation I8 cannot be read"), (99, "quantisation 99 is not known")):
        content[at : at + 4] = struct.pack("<I", kind)
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=rf"tensor blk\.0\.ffn_up\.weight: {message}"):
            open_gguf(path)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_file_cut_short_anywhere_is_refused(tiny_gguf, tmp_path_factory, data):
    whole = tiny_gguf.read_bytes()
    header = 2500  # bytes; cut there as often as in the tensors
    kept = data.draw(st.integers(0, header) | st.integers(0, len(whole) - 1))
    path = tmp_path_factory.mktemp("cut") / "cut.gguf"
    path.write_bytes(whole[:kept])
    with pytest.raises(CheckpointError, match=r"cut\.gguf: "):
        open_gguf(path)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([0, 0, 1, 2**40]))
def test_a_damaged_header_is_refused_and_nothing_worse(tmp_path_factory, rest, keys):
    path = tmp_path_factory.mktemp("bad") / "bad.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 2**50, keys) + rest)
    with pytest.raises(CheckpointError):
        GgufFile(path)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_damaged_byte_does_no_worse_than_a_refusal(tiny_gguf, tmp_path_factory, data):
    content = bytearray(tiny_gguf.read_bytes())
    content[data.draw(st.integers(4, 2500))] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.mktemp("bit") / "bit.gguf"
    path.write_bytes(content)
    try:
        read_all(path)
    except CheckpointError as error:
        assert "bit.gguf" in str(error)


def test_another_kind_of_file_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")
    with pytest.raises(CheckpointError, match="not a GGUF file"):
        open_gguf(path)
    with pytest.raises(FileNotFoundError):
        open_gguf(tmp_path / "absent.gguf")


def test_the_error_crosses_a_process_boundary():
    error = pickle.loads(pickle.dumps(CheckpointError("a.gguf", "missing", "blk.0")))
    assert str(error) == "a.gguf: tensor blk.0: missing" and isinstance(error, ValueError)
