"""Loading: every rank gets its part of any checkpoint, and reads and holds no more than that."""

import io
import json
import logging
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf_writing import header_of, tensors_of, write_gguf
from test_shard import on_ranks
from tiny_checkpoint import random_model, run_in_pieces, save_random

from model_runtime.families import Rope
from model_runtime.load import load_model
from model_runtime.load_progress import LoadProgress
from model_runtime.weights import CheckpointError
from tests.model_runtime.tiny_own_checkpoint import SMALL, write_tiny

IDS = torch.randint(3, 64, (30,), generator=torch.Generator().manual_seed(2)).tolist()
PIECES = (0, 7, 20, *range(21, 31))  # prefill in portions, then one token a step
ROOT = Path(__file__).resolve().parents[2]
EXACT = {"dtype": torch.float32, "device": "cpu", "upcycle": False}
GPT_OSS = {"attention.sliding_window": 5, "expert_feed_forward_length": 48, "rope.scaling.type": "yarn"} | {
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 64,
}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Name -> path and transformers' logits. A dense model with tied embeddings, and experts with everything."""
    folder = tmp_path_factory.mktemp("load")
    dense, experts = random_model("llama-biased-tied"), random_model("gpt_oss")
    write_gguf(folder / "dense.gguf", "llama", header_of(dense.config), tensors_of(dense, "llama"))
    tensors = tensors_of(experts, "gpt-oss")
    write_gguf(folder / "experts.gguf", "gpt-oss", header_of(experts.config) | GPT_OSS, tensors)
    oracles = {
        "dense.gguf": dense,
        "experts.gguf": experts,
        "dense": save_random(folder / "dense", "llama-biased-tied"),
        "experts": save_random(folder / "experts", "gpt_oss"),
    }
    with torch.inference_mode():
        return {name: (folder / name, oracle(torch.tensor([IDS])).logits[0]) for name, oracle in oracles.items()}


NAMES = ["dense.gguf", "experts.gguf", "dense", "experts"]


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("name", NAMES)
def test_ranks_that_load_their_parts_compute_the_whole(checkpoints, name, size):
    path, expected = checkpoints[name]
    for logits in on_ranks(size, lambda ranks: run_in_pieces(load_model(path, **EXACT, collective=ranks), IDS, PIECES)):
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)


def test_without_ranks_it_is_the_whole(checkpoints):
    path, expected = checkpoints["experts.gguf"]
    torch.testing.assert_close(run_in_pieces(load_model(path, **EXACT), IDS, PIECES), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("size", [1, 2])
def test_an_upcycled_model_computes_the_dense_one(checkpoints, size):
    path, expected = checkpoints["dense.gguf"]

    def work(ranks):
        model = load_model(path, **EXACT | {"upcycle": True}, collective=ranks)
        assert model.config.num_experts == 8
        return run_in_pieces(model, IDS, PIECES)

    for logits in on_ranks(size, work):
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)


def test_a_mixture_of_experts_is_not_upcycled(checkpoints, caplog):
    path, expected = checkpoints["experts.gguf"]
    with caplog.at_level(logging.INFO):
        model = load_model(path, **EXACT | {"upcycle": True})
    assert model.config.num_experts == 4
    assert "experts.gguf is a mixture of 4 experts already" in caplog.text
    torch.testing.assert_close(run_in_pieces(model, IDS, PIECES), expected, rtol=0, atol=1e-4)


def test_norms_sinks_and_biases_keep_float32_and_the_rest_is_packed_in_the_models_type(checkpoints):
    model = load_model(checkpoints["experts"][0], dtype=torch.bfloat16, device="cpu", upcycle=False)
    for name, parameter in model.named_parameters():
        exact = name.endswith(("norm.weight", "sinks", "bias"))
        assert not parameter.numel() or parameter.dtype == (torch.float32 if exact else torch.bfloat16), name
        assert not parameter.is_meta, name
    assert model.layers[1].attention.qkv.packed is not None and model.layers[1].attention.qkv.packed.numel()


def test_weights_are_quantised_on_demand(checkpoints):
    model = load_model(checkpoints["dense.gguf"][0], **EXACT, quantize="int8")
    assert model.layers[0].attention.qkv.quantized is not None


@pytest.mark.parametrize("size", [5, 6, 8])  # parts of so few rows are not packed
def test_a_tied_head_takes_no_memory_until_it_is_packed(checkpoints, size):
    for rank, model in enumerate(
        on_ranks(size, lambda ranks: load_model(checkpoints["dense.gguf"][0], **EXACT, collective=ranks))
    ):
        head, embedding = model.head.weight, model.embedding
        assert head.untyped_storage().data_ptr() == embedding.untyped_storage().data_ptr()
        first = rank * -(-len(embedding) // size)
        assert torch.equal(head, embedding[first : first + len(head)])


@pytest.mark.parametrize("size", [1, 2])
def test_a_value_that_is_not_finite_is_found_by_the_rank_that_reads_it(tmp_path, size):
    oracle = random_model("mixtral")
    tensors = tensors_of(oracle, "llama")
    tensors["blk.2.ffn_up_exps.weight"] = tensors["blk.2.ffn_up_exps.weight"].copy()
    tensors["blk.2.ffn_up_exps.weight"][3, 5, 7] = np.nan  # the last expert
    path = write_gguf(tmp_path / "nan.gguf", "llama", header_of(oracle.config), tensors)

    def work(ranks):
        if ranks.rank == size - 1:
            with pytest.raises(CheckpointError, match=r"tensor blk\.2\.ffn_up_exps\.weight: has values that are not"):
                load_model(path, **EXACT, collective=ranks)
        else:
            load_model(path, **EXACT, collective=ranks)

    on_ranks(size, work)


def test_what_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "absent.gguf", **EXACT)
    with pytest.raises((CheckpointError, FileNotFoundError)):
        load_model(tmp_path, **EXACT)


def write_large(path: Path, layers: int, hidden: int, ffn: int, vocab: int) -> None:
    """A llama in Q8_0, the numbers random."""
    header = {"context_length": 64, "embedding_length": hidden, "feed_forward_length": ffn, "attention.head_count": 8}
    writer, random = gguf.GGUFWriter(path, "llama"), np.random.default_rng(0)
    for name, value in (header | {"block_count": layers}).items():
        writer.add_uint32(f"llama.{name}", value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_token_list([str(number) for number in range(vocab)])
    shapes = {"token_embd": (vocab, hidden)}
    for layer in range(layers):
        shapes |= {f"blk.{layer}.attn_{name}": (hidden, hidden) for name in ("q", "k", "v", "output")}
        shapes |= {f"blk.{layer}.ffn_{name}": (ffn, hidden) for name in ("gate", "up")}
        shapes[f"blk.{layer}.ffn_down"] = (hidden, ffn)
    for name, (rows, columns) in shapes.items():
        blocks = random.integers(0, 256, (rows, columns // 32, 34), dtype=np.uint8)
        blocks[..., :2] = np.array([0.001], np.float16).view(np.uint8)
        writer.add_tensor(f"{name}.weight", blocks.reshape(rows, -1), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    norms = ["output_norm", *(f"blk.{layer}.{name}_norm" for layer in range(layers) for name in ("attn", "ffn"))]
    for name in norms:
        writer.add_tensor(f"{name}.weight", np.ones(hidden, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    write_large(folder / "small.gguf", 1, 64, 64, 64)
    write_large(folder / "large.gguf", 40, 384, 1536, 2048)
    return folder / "small.gguf", folder / "large.gguf"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("dtype", "upcycle", "rank", "size", "expected_mb"),
    [("float32", "dense", 0, 1, 380), ("bfloat16", "upcycle", 1, 2, 96)],
)
def test_loading_takes_little_more_memory_than_the_shard_holds(large, dtype, upcycle, rank, size, expected_mb):
    command = [sys.executable, str(ROOT / "tests/model_runtime/load_peak.py"), *map(str, large), dtype, upcycle]
    done = subprocess.run(
        [*command, str(rank), str(size)],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["samples"] > 50
    assert found["held"] / 1e6 == pytest.approx(expected_mb, rel=0.02)
    assert found["held"] <= found["peak"] < 1.3 * found["held"]


YARN = {"scaling": "yarn", "factor": 4.0, "original_context_tokens": 64}


@pytest.mark.parametrize(
    ("rope", "message"),
    [
        ({"base": 1.0}, "rotary base - 1 is 0.0, must be positive"),
        ({"scaling": "linear", "factor": 0.0}, "rotary factor is 0.0"),
        (YARN | {"original_context_tokens": 0}, "rotary original context is 0"),
        (YARN | {"beta_fast": -1.0}, "rotary beta_fast is -1.0"),
        (YARN | {"beta_slow": 0.0}, "rotary beta_slow is 0.0"),
        (YARN | {"attention_factor": 0.0}, "rotary length is 0.0"),
        (YARN | {"scaling": "llama3", "low_freq_factor": 4.0}, "rotary high_freq_factor - low_freq_factor is 0.0"),
        ({"frequency_factors": (1.0, 2.0, 0.0, 1.0)}, "rotary least frequency factor is 0.0"),
        ({"frequency_factors": (1.0, 2.0)}, "2 rotary frequency factors for 4 pairs"),
    ],
)
def test_positions_that_cannot_be_computed_are_refused(tmp_path, rope, message):
    write_tiny(tmp_path, replace(SMALL, rope=Rope(**rope)))
    with pytest.raises(CheckpointError, match=message):
        load_model(tmp_path, **EXACT)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beta_fast": -1}, "rotary beta_fast is -1.0"),
        ({"rope_theta": 1.0}, "rotary base - 1 is 0.0"),
        ({"factor": 1e30}, "a context of 64000.* tokens; 16777216 at most"),
    ],
)
def test_positions_of_a_damaged_config_of_hugging_face_are_refused(tmp_path, changes, message):
    save_random(tmp_path, "llama-yarn")
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["rope_parameters"] |= changes
    path.write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=message):
        load_model(tmp_path, **EXACT)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def advance_in_seconds(progress: LoadProgress, clock: list[float], seconds: list[float], num_bytes: int) -> None:
    for second in seconds:
        clock[0] = second
        progress.advance(num_bytes)


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_a_short_load_shows_nothing(stream, caplog):
    clock, shown = [0.0], stream()
    with (
        caplog.at_level(logging.INFO),
        LoadProgress("m.gguf", 10_000_000, shown, clock=lambda: clock[0]) as progress,
    ):
        advance_in_seconds(progress, clock, [0.5, 1.0, 1.9], 3_000_000)
    assert not shown.getvalue() and not caplog.text


def test_a_long_load_shows_a_bar_on_a_terminal_from_two_seconds_on(caplog):
    clock, shown = [0.0], Terminal()
    with LoadProgress("m.gguf", 10_000_000, shown, clock=lambda: clock[0]) as progress:
        advance_in_seconds(progress, clock, [1.0], 2_000_000)
        assert not shown.getvalue()
        advance_in_seconds(progress, clock, [2.5, 4.0, 5.0, 6.0], 2_000_000)
    assert "loading m.gguf" in shown.getvalue() and "10.0/10.0 MB" in shown.getvalue()


def test_a_long_load_writes_some_lines_into_the_log(caplog):
    clock = [0.0]
    with (
        caplog.at_level(logging.INFO),
        LoadProgress("m.gguf", 1_000_000_000, io.StringIO(), clock=lambda: clock[0]) as progress,
    ):
        advance_in_seconds(progress, clock, [i / 10 for i in range(100)], 10_000_000)
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "loading m.gguf: 21 % of 1000 MB" and lines[-1] == "loading m.gguf: 91 % of 1000 MB"
    assert len(lines) == 8


def test_only_one_rank_shows_how_far_it_is(caplog):
    clock, shown = [0.0], Terminal()
    with LoadProgress("m.gguf", 10, shown, shown=False, clock=lambda: clock[0]) as progress:
        advance_in_seconds(progress, clock, [3.0, 9.0], 5)
    assert not shown.getvalue()
