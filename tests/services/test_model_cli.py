"""`groundswell model ...`: what it prints where, its exit codes, and that its commands work on each other's output."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from services.cli import cli
from tests.model_runtime.tiny_own_checkpoint import SMALL, write_tiny

ROOT = Path(__file__).resolve().parents[2]


def run(*words: object, **how: Any) -> Result:
    return CliRunner().invoke(cli, ["model", *map(str, words)], **how)


def answer(*words: object, **how: Any) -> Any:
    done = run(*words, **how)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dense")
    write_tiny(folder)
    return folder


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixture")
    write_tiny(folder, replace(SMALL, num_experts=4, active_experts=2))
    return folder


def test_inspect_tells_people_and_programs(mixture: Path) -> None:
    told = run("inspect", mixture, "--shards", 2)
    assert told.exit_code == 0 and "4 experts of 32, 2 active" in told.stdout and "shard 1 of 2" in told.stdout
    found = answer("inspect", mixture, "--shards", 2, "--json")
    assert found["config"]["num_experts"] == 4
    assert len(found["shards"]) == 2
    assert found["total"]["parameters"] == sum(kind["parameters"] for kind in found["by_kind"].values())


def test_experts_prints_the_use_and_draws_it(mixture: Path, tmp_path: Path) -> None:
    picture = tmp_path / "heat.png"
    found = answer("experts", mixture, "--prompt", "Is the bridge open?", "--out", picture)
    assert found["tokens"] == 19
    assert [sum(layer) for layer in found["use"]] == [19 * 2] * 2
    assert [sum(layer) for layer in found["utilisation"]] == pytest.approx([2, 2])
    assert found["layers"] == [0, 1]
    with Image.open(picture) as image:
        assert image.format == "PNG"


def test_experts_reads_a_file_or_standard_input_and_upcycles_a_dense_model(dense: Path, tmp_path: Path) -> None:
    text = tmp_path / "post.txt"
    text.write_text("Water over the road near naïve street", encoding="utf-8")
    found = answer("experts", dense, "--file", text)
    assert [len(layer) for layer in found["use"]] == [8, 8]
    assert all(layer[:4] == layer[4:] for layer in found["use"])  # the two halves of each chosen copy
    assert answer("experts", dense, "--file", "-", input=text.read_text(encoding="utf-8")) == found


def test_upcycle_writes_a_mixture_that_inspect_and_experts_read(dense: Path, tmp_path: Path) -> None:
    target = tmp_path / "mixture"
    written = answer("upcycle", dense, target, "--dtype", "float32")
    assert written["path"] == str(target) and written["bytes"] > 0
    config = answer("inspect", target, "--json")["config"]
    assert (config["num_experts"], config["virtual_groups"]) == (8, 2)
    words = ("--prompt", "Is the bridge open?")
    assert answer("experts", target, *words)["use"] == answer("experts", dense, *words)["use"]


@pytest.mark.parametrize(("to", "most"), [("int8", 1.1), ("int4", 1.6)])
def test_quantize_writes_a_smaller_checkpoint_and_tells_its_cost(
    mixture: Path, tmp_path: Path, to: str, most: float
) -> None:
    target = tmp_path / to
    found = answer("quantize", mixture, target, "--to", to)
    cost = found["perplexity"]
    assert cost["ratio"] == pytest.approx(cost[to] / cost["bfloat16"])
    assert 1 / most < cost["ratio"] < most and cost["ratio"] != 1
    assert "U8" in answer("inspect", target, "--json")["stored"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("inspect", "nowhere.gguf"), "nowhere.gguf: No such file"),
        (("inspect", "DENSE", "--shards", 200), "do not divide over 200 shards"),
        (("experts", "nowhere.gguf", "--prompt", "x"), "No such file"),
        (("experts", "DENSE", "--file", "nowhere.txt"), "nowhere.txt: No such file"),
        (("experts", "DENSE", "--prompt", "x" * 2000), "the text has 2000 tokens"),
        (("experts", "DENSE", "--prompt", "x", "--out", "nowhere/heat.png"), "no folder nowhere"),
        (("upcycle", "MIXTURE", "new"), "is a mixture of 4 experts already"),
        (("upcycle", "DENSE", "DENSE"), "is not empty"),
        (("quantize", "DENSE", "MIXTURE", "--to", "int4"), "is not empty"),
    ],
)
def test_an_error_is_one_line_on_stderr_and_exit_code_1(
    dense: Path, mixture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[object, ...], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(*({"DENSE": dense, "MIXTURE": mixture}.get(word, word) for word in words))  # type: ignore[call-overload]
    assert done.exit_code == 1 and done.stdout == ""
    assert told in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_a_file_that_is_no_text_is_an_error(dense: Path, tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"fine \xff\xfe")
    done = run("experts", dense, "--file", tmp_path / "bytes")
    assert done.exit_code == 1 and "not UTF-8" in done.stderr and "at byte 5" in done.stderr


def test_usage_errors_are_exit_code_2(dense: Path) -> None:
    assert run("experts", dense).exit_code == 2
    assert run("experts", dense, "--prompt", "x", "--file", "y").exit_code == 2
    assert run("quantize", dense, "new", "--to", "int3").exit_code == 2
    assert run("inspect", dense, "--shards", 0).exit_code == 2


def test_ctrl_c_ends_with_130_and_says_nothing(dense: Path, tmp_path: Path) -> None:
    """The signal comes while it reads a pipe: it has opened it when somebody can write to it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "services.cli", "model", "experts", str(dense), "--file", str(pipe)]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    )
    try:
        while (writer := opened(pipe)) is None:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        os.close(writer)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (130, b"", b"")


def opened(pipe: Path) -> int | None:
    """For writing; None while nobody reads."""
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None
