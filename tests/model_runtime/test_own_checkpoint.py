"""Our own checkpoints: what is written is read again, whole and by shards, and what is wrong with a folder is told."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from model_runtime.families import Rope
from model_runtime.gguf_file import GgufFile
from model_runtime.model import build_model
from model_runtime.own_checkpoint import is_own, open_own
from model_runtime.tokenizer import Tokenizer
from model_runtime.tokenizer_files import TokenizerFiles
from model_runtime.upcycle import upcycle_dense
from model_runtime.weights import Checkpoint, CheckpointError, Part
from model_runtime.write_checkpoint import write_checkpoint, write_tokenizer
from tests.model_runtime.tiny_model import TINY, greedy, random_tensors
from tests.model_runtime.tiny_own_checkpoint import SMALL, TOKENIZER, checkpoint_of, write_tiny

# Everything that a config can say.
CONFIG = replace(
    SMALL,
    num_experts=4,
    active_experts=2,
    shared_ffn=32,
    dense_layers=(1,),
    windows=(0, 8),
    qkv_bias=True,
    sinks=True,
    post_norms=True,
    float32_router=True,
    router_bias=True,
    tied_embeddings=False,
    rope=Rope(scaling="llama3", factor=4.0, original_context_tokens=64, frequency_factors=(1.0, 2.0, 3.0, 4.0)),
)


def written(folder: Path, **how: object) -> dict[str, Tensor]:
    return write_tiny(folder, CONFIG, **how)


def read(checkpoint: Checkpoint) -> dict[str, Tensor]:
    return {name: weight.read(None) for name, weight in checkpoint.weights.items()}


def test_every_parameter_and_all_of_the_config_come_back(tmp_path: Path) -> None:
    tensors = written(tmp_path)
    back = open_own(tmp_path)
    assert is_own(tmp_path)
    assert back.config == CONFIG
    assert back.weights.keys() == tensors.keys()
    for name, tensor in read(back).items():
        assert torch.equal(tensor, tensors[name]), name
        assert back.weights[name].shape == tensor.shape


def test_bfloat16_rounds_matrices_and_keeps_what_stays_exact(tmp_path: Path) -> None:
    tensors = written(tmp_path, dtype=torch.bfloat16)
    back = read(open_own(tmp_path))
    for name in ("norm.weight", "layers.0.attention.qkv.bias", "layers.0.ffn.router.score.weight"):
        assert torch.equal(back[name], tensors[name])
    assert back["layers.0.attention.qkv.weight"].dtype == torch.bfloat16
    assert torch.equal(back["embedding"], tensors["embedding"].bfloat16())


def test_an_upcycled_model_answers_as_the_dense_one_did(tmp_path: Path) -> None:
    tensors = random_tensors(TINY, seed=1)
    dense = build_model(TINY, dict(tensors), "cpu")
    upcycled = upcycle_dense(checkpoint_of(tensors, TINY))
    write_checkpoint(upcycled, TOKENIZER, tmp_path, dtype=torch.float32, advance=lambda *_: None)
    back = open_own(tmp_path)
    assert back.config.virtual_groups == 2 and back.config.num_experts == 8
    model = build_model(back.config, read(back), "cpu")
    expected, logits = greedy(dense, [1, 2, 3, 4, 5], 8)
    found, found_logits = greedy(model, [1, 2, 3, 4, 5], 8)
    assert found == expected
    torch.testing.assert_close(found_logits, logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("mode", "error"), [("int8", 0.01), ("int4", 0.12)])
def test_quantised_matrices_are_smaller_and_close_and_the_others_whole(tmp_path: Path, mode: str, error: float) -> None:
    whole, small = tmp_path / "whole", tmp_path / "small"
    tensors = written(whole, dtype=torch.bfloat16)
    written(small, dtype=torch.bfloat16, mode=mode)
    back = read(open_own(small))
    assert back.keys() == tensors.keys()
    for name, tensor in back.items():
        assert tensor.shape == tensors[name].shape
        distance = (tensor.float() - tensors[name]).norm() / tensors[name].norm()
        assert distance < (error if name.endswith(("qkv.weight", "up.weight")) else max(error, 0.01)), name
    exact = ("embedding", "head.weight", "layers.0.ffn.shared_gate.weight", "layers.0.ffn.router.score.weight")
    assert all(torch.equal(back[name], tensors[name].to(back[name].dtype)) for name in exact)
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (whole, small)]
    assert sizes[1] < 0.8 * sizes[0]


@pytest.mark.parametrize("mode", ["none", "int8", "int4"])
def test_a_shard_reads_its_part(tmp_path: Path, mode: str) -> None:
    written(tmp_path, mode=mode)
    weights = open_own(tmp_path).weights
    rows, columns = Part(0, ((16, 32), (40, 56))), Part(1, ((32, 64),))
    qkv, out = weights["layers.0.attention.qkv.weight"], weights["layers.1.ffn.gate.weight"]
    assert torch.equal(qkv.read(rows), rows.of(qkv.read(None)))
    assert torch.equal(out.read(columns), columns.of(out.read(None)))


def test_a_large_checkpoint_is_written_as_several_files(tmp_path: Path) -> None:
    tensors = written(tmp_path, mode="int4", file_bytes=40_000)
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    assert read(open_own(tmp_path)).keys() == tensors.keys()


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    written(tmp_path, advance=lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert (tmp_path / "model.safetensors").stat().st_mode & 0o444 == 0o444  # everybody may serve it
    assert told[-1][0] == told[-1][1] <= (tmp_path / "model.safetensors").stat().st_size


def test_a_folder_with_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="not empty"):
        written(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_the_tokenizer_of_the_default_model_comes_back(tmp_path: Path, gguf_path: Path) -> None:
    files = TokenizerFiles.from_gguf(GgufFile(gguf_path))
    write_tokenizer(files, tmp_path)
    back = TokenizerFiles.from_folder(tmp_path)
    for name in ("marks", "silent", "names", "eos_ids", "chat_template"):
        assert getattr(back, name) == getattr(files, name), name
    one, other = Tokenizer(files), Tokenizer(back)
    text = "The bridge re-opened at 6:45, naïve <|im_end|> 橋\n  def f(x): pass"
    assert other.encode(text) == one.encode(text)
    turns = [("system", "Be brief."), ("user", text)]
    assert other.render(turns) == one.render(turns)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"heads": 0}, "heads"),
        ({"heads": 5}, "heads"),
        ({"hidden": "64"}, "hidden"),
        ({"activation": "relu"}, "activation"),
        ({"active_experts": 9}, "active_experts"),
        ({"virtual_groups": 3}, "virtual_groups"),
        ({"rope": {"base": 1e4, "scaling": "yarm"}}, "rope"),
        ({"colour": "blue"}, "colour"),
        ({"layers": None}, "layers"),
        ({"windows": [5]}, r"windows is \[5\], not a size for each of 2 layers"),
        ({"windows": [5, -1]}, "windows"),
        ({"rms_eps": 0}, "rms_eps is 0.0, must be positive"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(tmp_path: Path, change: dict[str, object], told: str) -> None:
    written(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CheckpointError, match=f"config.json: key {told}"):
        open_own(tmp_path)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_a_number_that_is_not_finite_is_refused(tmp_path: Path, number: str) -> None:
    written(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace('"logit_scale": 1.0', f'"logit_scale": {number}'))
    with pytest.raises(CheckpointError, match=r"config\.json: has numbers that are not finite"):
        open_own(tmp_path)


def test_tensors_that_are_missing_or_mis_shaped_are_named(tmp_path: Path) -> None:
    written(tmp_path, mode="int4")
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"layers": 3, "windows": []}))
    with pytest.raises(CheckpointError, match=r"tensor layers\.2\..*missing"):
        open_own(tmp_path)
    path.write_text(json.dumps(config | {"layers": 1, "windows": []}))
    with pytest.raises(CheckpointError, match=r"tensor layers\.1\..*unexpected"):
        open_own(tmp_path)
    path.write_text(json.dumps(config | {"ffn": 96}))
    with pytest.raises(CheckpointError, match=r"tensor layers\.1\.ffn\..*expected shape"):
        open_own(tmp_path)
