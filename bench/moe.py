"""One layer of experts, as Mixtral shapes it, with random weights: ours beside transformers' on the same weights, and
beside the time that its matrix products take alone.

The weights of eight layers are passed through in turn, so that none of them waits in a cache. "Bare gemms" is the
faster of two ways to multiply the same rows by the same experts, rows already sorted by expert: torch's own products
with gate and up as one matrix, and oneDNN's on weights in its own layout.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor
from transformers import MixtralConfig
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

from bench.figures import figure, median, say
from bench.side import THREADS
from model_runtime.families import ModelConfig
from model_runtime.moe import Moe

HIDDEN, INNER, EXPERTS, ACTIVE, LAYERS = 512, 1792, 8, 2, 8
MOST_GATHERED = 16  # tokens: batched_mm copies an expert for each choice, gigabytes for a prompt
SECONDS = 0.4  # of one way at a time

Pass = Callable[[list[Tensor]], Any]


def measure_layer(quick: bool) -> None:
    torch.set_num_threads(THREADS)
    for dtype in (torch.bfloat16,) if quick else (torch.bfloat16, torch.float32):
        with torch.inference_mode():
            theirs = [random_block(dtype, seed) for seed in range(LAYERS)]
            ours = [our_layer(block, dtype) for block in theirs]
            for tokens in (1, 16, 512):
                say(f"moe: {dtype}, {tokens} tokens")
                compare(ours, theirs, tokens, dtype, quick)


def random_block(dtype: torch.dtype, seed: int) -> MixtralSparseMoeBlock:
    config = MixtralConfig(
        hidden_size=HIDDEN, intermediate_size=INNER, num_local_experts=EXPERTS, num_experts_per_tok=ACTIVE
    )
    block = MixtralSparseMoeBlock(config).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    for parameter in block.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * parameter.shape[-1] ** -0.5)
    return block.eval()


def our_layer(block: MixtralSparseMoeBlock, dtype: torch.dtype) -> Moe:
    config = ModelConfig(
        layers=1,
        hidden=HIDDEN,
        heads=8,
        kv_heads=8,
        head_dim=64,
        ffn=0,
        vocab=0,
        context_tokens=0,
        rms_eps=1e-5,
        num_experts=EXPERTS,
        active_experts=ACTIVE,
        expert_ffn=INNER,
    )
    with torch.device("meta"):
        moe = Moe(config)
    states = {"router.score.weight": block.gate.weight}
    for expert in range(EXPERTS):
        gate, up = block.experts.gate_up_proj[expert].chunk(2)
        parts = {"gate": gate, "up": up, "down": block.experts.down_proj[expert]}
        states |= {f"experts.{expert}.{name}.weight": weight.clone() for name, weight in parts.items()}
    moe.load_state_dict(states, assign=True)
    moe.requires_grad_(False).pack()
    return moe


def compare(ours: list[Moe], theirs: list[MixtralSparseMoeBlock], tokens: int, dtype: torch.dtype, quick: bool) -> None:
    generator = torch.Generator().manual_seed(tokens)
    inputs = [torch.randn(tokens, HIDDEN, generator=generator).to(dtype) for _ in ours]
    implementations = ["eager", "grouped_mm"] + (["batched_mm"] if tokens <= MOST_GATHERED else [])
    ways: dict[str, Pass] = {"ours": lambda xs: [moe.forward(x) for moe, x in zip(ours, xs, strict=True)]}
    ways |= {name: _transformers_pass(theirs, name) for name in implementations}
    expected, found = ways["eager"](inputs)[0], ways["ours"](inputs)[0]
    error = (found - expected).abs().mean() / expected.abs().mean()
    assert error < (0.01 if dtype == torch.bfloat16 else 1e-5), f"ours and transformers' differ by {error:.2g}"
    counts = [_rows_by_expert(block, x) for block, x in zip(theirs, inputs, strict=True)]
    ways |= {"torch gemms": _plain_gemms(theirs, counts), "onednn gemms": _packed_gemms(theirs, counts)}
    times = _alternate(ways, inputs, runs=1 if quick else 5, seconds=SECONDS / 8 if quick else SECONDS)
    peers = {
        "bare gemms": ("torch gemms", "onednn gemms"),
        f"transformers {transformers.__version__}": tuple(implementations),
    }
    for peer, names in peers.items():
        best = min(names, key=times.__getitem__)
        more = {"tokens": tokens, "dtype": str(dtype).removeprefix("torch."), "peer": peer, "best": best}
        figure("moe.layer", times["ours"], "us", theirs=times[best], runs=1 if quick else 5, quick=quick, **more)


def _transformers_pass(blocks: list[MixtralSparseMoeBlock], implementation: str) -> Pass:
    def work(xs: list[Tensor]) -> list[Tensor]:
        outputs = []
        for block, x in zip(blocks, xs, strict=True):
            block.experts.config._experts_implementation = implementation
            outputs.append(block(x[None])[0])
        return outputs

    return work


def _rows_by_expert(block: MixtralSparseMoeBlock, x: Tensor) -> dict[int, Tensor]:
    """Each expert's tokens as one matrix."""
    _, _, chosen = block.gate(x)
    return {expert: x[(chosen == expert).any(-1)] for expert in chosen.unique().tolist()}


def _plain_gemms(blocks: list[MixtralSparseMoeBlock], rows: list[dict[int, Tensor]]) -> Pass:
    def product(x: Tensor, weight: Tensor) -> Tensor:
        return torch.mv(weight, x[0]) if len(x) == 1 else F.linear(x, weight)

    def work(_: list[Tensor]) -> None:
        for block, by_expert in zip(blocks, rows, strict=True):
            for expert, x in by_expert.items():
                product(x, block.experts.gate_up_proj[expert])
                product(inner[len(x)], block.experts.down_proj[expert])

    inner = _inner_rows(rows)
    return work


def _packed_gemms(blocks: list[MixtralSparseMoeBlock], rows: list[dict[int, Tensor]]) -> Pass:
    pack, linear = torch.ops.mkldnn._reorder_linear_weight, torch.ops.mkldnn._linear_pointwise
    packed = [
        {
            expert: [
                pack(w, 16) for w in (*block.experts.gate_up_proj[expert].chunk(2), block.experts.down_proj[expert])
            ]
            for expert in by_expert
        }
        for block, by_expert in zip(blocks, rows, strict=True)
    ]

    def work(_: list[Tensor]) -> None:
        for layer, by_expert in zip(packed, rows, strict=True):
            for expert, x in by_expert.items():
                gate, up, down = layer[expert]
                linear(x, gate, None, "none", [], "")
                linear(x, up, None, "none", [], "")
                linear(inner[len(x)], down, None, "none", [], "")

    inner = _inner_rows(rows)
    return work


def _inner_rows(rows: list[dict[int, Tensor]]) -> Mapping[int, Tensor]:
    """What the second product gets, by the number of rows."""
    return {len(x): torch.randn(len(x), INNER).to(x.dtype) for by_expert in rows for x in by_expert.values()}


def _alternate(ways: dict[str, Pass], inputs: list[Tensor], runs: int, seconds: float) -> dict[str, float]:
    """Microseconds of one layer, the median of the runs; the ways take turns."""
    repeats: dict[str, int] = {}
    for name, way in ways.items():
        way(inputs)
        started = time.perf_counter()
        way(inputs)
        repeats[name] = max(1, int(seconds / (time.perf_counter() - started)))
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(runs):
        for name, way in ways.items():
            started = time.perf_counter()
            for _ in range(repeats[name]):
                way(inputs)
            times[name].append((time.perf_counter() - started) / repeats[name] / LAYERS * 1e6)
    return {name: median(seen) for name, seen in times.items()}
