"""What `groundswell model inspect` tells, against models that are built and counted."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from model_runtime.blueprint import draw_blueprint
from model_runtime.model import Model
from tests.model_runtime.tiny_own_checkpoint import SMALL, write_tiny

MIXTURE = replace(SMALL, num_experts=4, active_experts=2, shared_ffn=32, dense_layers=(1,), tied_embeddings=False)


def test_the_default_model_is_described(gguf_path: Path) -> None:
    blueprint = draw_blueprint(gguf_path, shards=2)
    assert (blueprint.format, blueprint.architecture) == ("GGUF", "llama")
    assert blueprint.total.parameters == blueprint.active_parameters == 134_515_008  # as its card says
    assert blueprint.stored == {"Q4_1": 210, "F32": 61, "Q8_0": 1}
    assert blueprint.file_bytes == gguf_path.stat().st_size
    assert blueprint.tokenizer.startswith("BPE")
    assert [shard.rank for shard in blueprint.shards] == [0, 1]
    assert sum(shard.kv_heads for shard in blueprint.shards) == 3


def test_upcycled_it_has_four_times_the_ffn_and_no_more_work(gguf_path: Path) -> None:
    dense, mixture = draw_blueprint(gguf_path, shards=1), draw_blueprint(gguf_path, shards=1, upcycle=True)
    assert mixture.by_kind["experts"].parameters == 4 * dense.by_kind["dense FFN"].parameters
    routers = mixture.by_kind["routers"].parameters
    assert mixture.active_parameters == dense.active_parameters + routers


def test_kinds_add_up_and_sizes_are_those_of_the_loaded_model(tmp_path: Path) -> None:
    write_tiny(tmp_path, MIXTURE)
    blueprint = draw_blueprint(tmp_path, shards=1)
    with torch.device("meta"):
        model = Model(MIXTURE)
    assert blueprint.total.parameters == sum(parameter.numel() for parameter in model.parameters())
    expert = 3 * 32 * 64
    assert blueprint.by_kind["experts"].parameters == 4 * expert
    assert blueprint.by_kind["shared experts"].parameters == expert + 64
    assert blueprint.by_kind["dense FFN"].parameters == 3 * 64 * 64
    assert blueprint.total.parameters - blueprint.active_parameters == 2 * expert
    assert blueprint.by_kind["norms"].memory_bytes == 4 * blueprint.by_kind["norms"].parameters
    assert blueprint.by_kind["experts"].memory_bytes == 2 * blueprint.by_kind["experts"].parameters
    (shard,) = blueprint.shards
    assert shard.memory_bytes == blueprint.total.memory_bytes
    assert shard.cache_bytes_per_token == 2 * 2 * 3 * 8 * 2


def test_files_that_are_not_read_do_not_count(tmp_path: Path) -> None:
    """Mixtral's repository has every weight a second time, as consolidated.safetensors."""
    write_tiny(tmp_path)
    (tmp_path / "consolidated.safetensors").write_bytes(b"0" * 1000)
    assert draw_blueprint(tmp_path, shards=1).file_bytes == (tmp_path / "model.safetensors").stat().st_size


def test_shards_hold_their_part(tmp_path: Path) -> None:
    write_tiny(tmp_path, MIXTURE)
    whole, halves = draw_blueprint(tmp_path, shards=1), draw_blueprint(tmp_path, shards=2)
    assert [shard.experts for shard in halves.shards] == [2, 2]
    assert all(shard.memory_bytes < whole.total.memory_bytes for shard in halves.shards)
    assert sum(shard.memory_bytes for shard in halves.shards) >= whole.total.memory_bytes
    with pytest.raises(ValueError, match="do not divide over 3 shards"):
        draw_blueprint(tmp_path, shards=3)


def test_a_tied_head_takes_no_memory_of_its_own(tmp_path: Path) -> None:
    write_tiny(tmp_path, replace(MIXTURE, tied_embeddings=True))
    assert "head" not in draw_blueprint(tmp_path, shards=1).by_kind


def test_a_checkpoint_whose_tokenizer_is_missing_is_described_all_the_same(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    assert "tokenizer.json" in draw_blueprint(tmp_path, shards=1).tokenizer


def test_lines_are_for_people_and_short(tmp_path: Path) -> None:
    write_tiny(tmp_path, MIXTURE)
    lines = draw_blueprint(tmp_path, shards=2).lines()
    assert any("4 experts of 32, 2 active" in line for line in lines)
    assert sum("of 2 " in line and "shard" in line for line in lines) == 2
    assert all(len(line) < 120 for line in lines[1:])
