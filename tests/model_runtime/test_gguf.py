"""A checkpoint that does not fit is refused with the file, the tensor and both shapes; never half loaded."""

import pickle
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_model import TINY, random_tensors, tiny_model

from model_runtime.gguf import CheckpointError, load_gguf
from model_runtime.gguf_file import GgufFile

TOKENS = [f"t{number}" for number in range(TINY.vocab - 4)] + ["a", "b", "ab", "<|im_end|>"]


def tensors_of_tiny(layers: int = TINY.layers) -> dict[str, np.ndarray]:
    """The GGUF tensors that load as tiny_model(seed=3)."""
    parameters = random_tensors(TINY, 3)
    stored = {"token_embd.weight": parameters["embedding"], "output_norm.weight": parameters["norm.weight"]}
    for layer in range(layers):
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


def write_gguf(path: Path, tensors: dict[str, np.ndarray], architecture: str = "llama", **keys: object) -> Path:
    """`keys` replace (or with None leave out) header entries, "__" standing for a dot."""
    header = {
        "block_count": TINY.layers,
        "context_length": TINY.context_tokens,
        "embedding_length": TINY.hidden,
        "feed_forward_length": TINY.ffn,
        "attention.head_count": TINY.heads,
        "attention.head_count_kv": TINY.kv_heads,
        "attention.key_length": TINY.head_dim,
        "rope.freq_base": TINY.rope.base,
        "attention.layer_norm_rms_epsilon": TINY.rms_eps,
    } | {name.replace("__", "."): value for name, value in keys.items()}
    writer = gguf.GGUFWriter(path, architecture)
    for name, value in header.items():
        if value is not None:
            add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
            (writer.add_string if isinstance(value, str) else add)(f"{architecture}.{name}", value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([1] * (len(TOKENS) - 1) + [3])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(len(TOKENS) - 1)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def tiny_gguf(tmp_path_factory):
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", tensors_of_tiny())


def test_every_parameter_is_loaded_where_it_belongs(tiny_gguf):
    config, tensors, _ = load_gguf(tiny_gguf)
    expected = tiny_model(seed=3)
    assert config == TINY or abs(config.rms_eps - TINY.rms_eps) < 1e-10
    states = expected.state_dict()
    del states["head.weight"]
    assert tensors.keys() == states.keys()
    assert all(torch.equal(tensors[name], states[name]) for name in states)


def test_the_header_is_read_as_the_gguf_package_reads_it(tiny_gguf):
    ours, theirs = GgufFile(tiny_gguf), gguf.GGUFReader(tiny_gguf)
    assert ours.metadata == {name: f.contents() for name, f in theirs.fields.items() if not name.startswith("GGUF.")}
    assert {name: t.shape for name, t in ours.tensors.items()} == {
        t.name: tuple(t.shape.tolist()[::-1]) for t in theirs.tensors
    }


@pytest.mark.parametrize("kind", [gguf.GGMLQuantizationType.Q4_1, gguf.GGMLQuantizationType.Q8_0])
def test_quantised_tensors_are_dequantised(tmp_path, kind):
    tensors = tensors_of_tiny()
    name = "blk.1.ffn_up.weight"
    writer = gguf.GGUFWriter(tmp_path / "q.gguf", "llama")
    packed = gguf.quantize(tensors[name], kind)
    writer.add_tensor(name, packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found, data, row_bytes = GgufFile(tmp_path / "q.gguf").rows(name)
    assert (found, row_bytes) == (kind, packed.shape[-1])
    assert bytes(data) == packed.tobytes()


def test_a_missing_tensor(tmp_path):
    tensors = tensors_of_tiny()
    del tensors["blk.1.attn_k.weight"]
    path = write_gguf(tmp_path / "m.gguf", tensors)
    with pytest.raises(CheckpointError, match=r"m\.gguf: tensor blk\.1\.attn_k\.weight: missing.*\(24, 32\)"):
        load_gguf(path)


def test_an_unexpected_tensor(tmp_path):
    path = write_gguf(tmp_path / "m.gguf", tensors_of_tiny() | {"rope_freqs.weight": np.ones(4, np.float32)})
    with pytest.raises(CheckpointError, match=r"m\.gguf: tensor rope_freqs\.weight: unexpected.*\(4,\)"):
        load_gguf(path)


def test_a_misshaped_tensor(tmp_path):
    tensors = tensors_of_tiny()
    tensors["blk.0.ffn_down.weight"] = np.ascontiguousarray(tensors["blk.0.ffn_down.weight"].T)
    path = write_gguf(tmp_path / "m.gguf", tensors)
    with pytest.raises(CheckpointError, match=r"blk\.0\.ffn_down\.weight: expected shape \(32, 48\), found \(48, 32\)"):
        load_gguf(path)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_not_finite(tmp_path, value):
    tensors = tensors_of_tiny()
    tensors["blk.1.attn_norm.weight"] = np.full_like(tensors["blk.1.attn_norm.weight"], value)
    path = write_gguf(tmp_path / "m.gguf", tensors)
    with pytest.raises(CheckpointError, match=r"tensor blk\.1\.attn_norm\.weight: has values that are not finite"):
        load_gguf(path)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"block_count": None}, "no key llama.block_count"),
        ({"block_count": 0}, "llama.block_count is 0"),
        ({"block_count": "two"}, "llama.block_count holds a str, not a int"),
        ({"attention__head_count": 7}, "7 heads cannot share 3"),
        ({"rope__dimension_count": 4}, "only a part of a head's 8 dimensions"),
        ({"rope__scaling__type": "yarn"}, "rotary scaling"),
        ({"architecture": "bert"}, "architecture 'bert'; supported: llama"),
    ],
)
def test_a_header_that_cannot_be_used(tmp_path, keys, message):
    path = write_gguf(tmp_path / "h.gguf", tensors_of_tiny(), **keys)
    with pytest.raises(CheckpointError, match=message):
        load_gguf(path)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_file_cut_short_anywhere_is_refused(tiny_gguf, tmp_path_factory, data):
    whole = tiny_gguf.read_bytes()
    header = 2500  # bytes; cut there as often as in the tensors
    kept = data.draw(st.integers(0, header) | st.integers(0, len(whole) - 1))
    path = tmp_path_factory.mktemp("cut") / "cut.gguf"
    path.write_bytes(whole[:kept])
    with pytest.raises(CheckpointError, match=r"cut\.gguf: "):
        load_gguf(path)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([0, 0, 1, 2**40]))
def test_a_damaged_header_is_refused_and_nothing_worse(tmp_path_factory, rest, keys):
    path = tmp_path_factory.mktemp("bad") / "bad.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 2**50, keys) + rest)
    with pytest.raises(CheckpointError):
        GgufFile(path)


def test_another_kind_of_file_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")
    with pytest.raises(CheckpointError, match="not a GGUF file"):
        load_gguf(path)
    with pytest.raises(FileNotFoundError):
        load_gguf(tmp_path / "absent.gguf")


def test_the_error_crosses_a_process_boundary():
    error = pickle.loads(pickle.dumps(CheckpointError("a.gguf", "missing", "blk.0")))
    assert str(error) == "a.gguf: tensor blk.0: missing" and isinstance(error, ValueError)
