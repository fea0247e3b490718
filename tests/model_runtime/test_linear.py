"""Every path of a linear against the plain float32 product."""

import gguf
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from test_quantize import on_grid, random

from model_runtime.linear import GatedFfn, Head, Linear
from model_runtime.quantize import IntegerProduct, multiplies_integers

# Largest error over largest value. float32: order of summation. bfloat16: 8 bits of weight, input and output.
# int8 and int4 of normal values: half a level is 1/254 and 1/30 of the range, and errors of many inputs average out.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 0.015, "int8": 0.02, "int4": 0.15}
Q8_0 = gguf.GGMLQuantizationType.Q8_0


def linear_of(weight: torch.Tensor, bias: torch.Tensor | None = None, kind: type[Linear] = Linear) -> Linear:
    linear = kind(weight.shape[1], weight.shape[0], bias is not None)
    linear.weight.data = weight.clone()
    if bias is not None:
        linear.bias.data = bias.clone()
    return linear


def assert_close(found: torch.Tensor, exact: torch.Tensor, tolerance: float) -> None:
    torch.testing.assert_close(found.float(), exact, rtol=0, atol=tolerance * float(exact.abs().max()) + 1e-7)


@settings(max_examples=80, deadline=None)
@given(
    outputs=st.integers(1, 70),
    inputs=st.integers(1, 100),
    rows=st.integers(1, 40),
    bias=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    mode=st.sampled_from([None, "none", "int8", "int4"]),
    seed=st.integers(0, 99),
)
def test_any_shape_in_any_mode_gives_the_product(outputs, inputs, rows, bias, dtype, mode, seed):
    weight, x = random(outputs, inputs, seed=seed).to(dtype), random(rows, inputs, seed=seed + 1).to(dtype)
    values = random(outputs, seed=seed + 2) if bias else None
    linear = linear_of(weight, values)
    if mode is not None:
        linear.pack(mode)
    found = linear.forward(x)
    assert found.dtype == dtype and found.shape == (rows, outputs)
    exact = F.linear(x.float(), weight.float(), values)
    quantized = mode in ("int8", "int4") and linear.quantized is not None
    largest = x.float().norm(dim=-1).max() * weight.float().norm(dim=-1).max()  # bounds what can cancel out
    assert (found.float() - exact).abs().max() <= TOLERANCE[mode if quantized else dtype] * max(
        float(exact.abs().max()), float(largest) / 4
    )


@pytest.mark.parametrize("rows", range(1, 41))
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_a_weight_on_a_grid_gives_the_same_product_with_any_number_of_rows(rows, bias):
    weight, x = on_grid(48, 64, 0), random(rows, 64, seed=1).bfloat16()
    values = random(48, seed=2) if bias else None
    linear = linear_of(weight, values)
    linear.pack()
    assert linear.quantized is not None and linear.packed is not None
    assert_close(linear.forward(x), F.linear(x.float(), weight.float(), values), TOLERANCE[torch.bfloat16])


@pytest.mark.parametrize("mode", ["none", "int8", "int4"])
def test_packing_lets_the_weight_go_and_packing_twice_is_packing_once(mode):
    linear = linear_of(on_grid(32, 64, 0))
    linear.pack(mode)
    packed, quantized = linear.packed, linear.quantized
    assert linear.weight.numel() == 0
    linear.pack(mode)
    assert linear.packed is packed and linear.quantized is quantized
    assert (packed is None) == (mode != "none"), "int8 and int4 keep no copy in bfloat16"


def test_a_product_with_the_result_of_packing_belongs_to_its_caller():
    linear = linear_of(on_grid(32, 64, 0))
    x = random(2, 64).bfloat16()
    for mode in (None, "none"):
        if mode:
            linear.pack(mode)
        first = linear.forward(x)
        kept = first.clone()
        linear.forward(x * 2).mul_(3)
        assert torch.equal(first, kept)


@pytest.mark.parametrize("grid", [True, False], ids=["on a grid", "on none"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("mode", [None, "none"], ids=["as loaded", "packed"])
@pytest.mark.parametrize("rows", [1, 4, 5, 40])
def test_what_is_fused_onto_a_product_is_what_it_says(grid, bias, mode, rows):
    weight = on_grid(48, 64, 0) if grid else (random(48, 64) * 0.1).bfloat16()
    values = random(48, seed=2) if bias else None
    linear = linear_of(weight, values)
    if mode:
        linear.pack(mode)
    x, factor = random(rows, 64, seed=1).bfloat16(), random(rows, 48, seed=3).bfloat16()
    exact = F.linear(x.float(), weight.float(), values)
    assert_close(linear.swish(x), F.silu(exact), 0.02)
    assert_close(linear.gelu_tanh(x), F.gelu(exact, approximate="tanh"), 0.02)
    assert_close(linear.times(x, factor), exact * factor.float(), 0.02)


def ffn_of(activation: str, dtype: torch.dtype, grid: bool, bias: bool) -> GatedFfn:
    ffn = GatedFfn(64, 96, activation, bias, limit=1.5)
    for seed, linear in enumerate((ffn.gate, ffn.up, ffn.down)):
        shape = linear.weight.shape
        linear.weight.data = (on_grid(*shape, seed=seed) if grid else random(*shape, seed=seed) * 0.05).to(dtype) * 8
        if bias:
            linear.bias.data = random(shape[0], seed=seed)
    return ffn


def reference_ffn(ffn: GatedFfn, x: torch.Tensor) -> torch.Tensor:
    """The three definitions, in float64, in numbers rather than calls."""

    def times(linear: Linear, y: torch.Tensor) -> torch.Tensor:
        return y @ linear.weight.double().T + (linear.bias.double() if linear.bias is not None else 0)

    gate, up = times(ffn.gate, x.double()), times(ffn.up, x.double())
    if ffn.activation == "silu":
        inner = gate / (1 + (-gate).exp()) * up
    elif ffn.activation == "gelu_tanh":
        inner = gate * (1 + ((2 / torch.pi) ** 0.5 * (gate + 0.044715 * gate**3)).tanh()) / 2 * up
    else:
        gate, up = gate.clip(max=1.5), up.clip(-1.5, 1.5)
        inner = gate / (1 + (-1.702 * gate).exp()) * (up + 1)
    return times(ffn.down, inner).float()


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh", "clamped_swiglu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("grid", [True, False], ids=["on a grid", "on none"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_an_ffn_is_its_definition_packed_and_not(activation, dtype, grid, bias):
    ffn = ffn_of(activation, dtype, grid, bias)
    inputs = {rows: random(rows, 64, seed=rows).to(dtype) for rows in (1, 4, 5, 40)}
    exact = {rows: reference_ffn(ffn, x) for rows, x in inputs.items()}
    tolerance = 1e-5 if dtype == torch.float32 else 0.03
    for rows, x in inputs.items():
        assert_close(ffn(x), exact[rows], tolerance)
    ffn.pack()
    for rows, x in inputs.items():
        assert_close(ffn(x), exact[rows], tolerance)


def test_the_limit_of_a_clamped_ffn_bites():
    """So that the test above would see it missing."""
    ffn = ffn_of("clamped_swiglu", torch.float32, False, True)
    x = random(5, 64)
    assert (ffn.gate(x) > 1.5).any() and (ffn.up(x).abs() > 1.5).any()


@pytest.mark.parametrize("rows", [1, 2, 16, 40])
@pytest.mark.parametrize("mode", [None, "none", "int8", "int4"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_head_gives_float32_logits(rows, mode, dtype):
    weight, x = on_grid(304, 64, 0, Q8_0).to(dtype), random(rows, 64, seed=1).to(dtype)
    head = linear_of(weight, kind=Head)
    if mode is not None:
        head.pack(mode)
    logits = head.forward(x)
    assert logits.dtype == torch.float32
    assert_close(logits, x.float() @ weight.float().T, 0.02)


@pytest.mark.skipif(not multiplies_integers(), reason="this CPU does not multiply int8")
def test_a_head_is_in_eight_bits_only_if_it_was_or_if_that_is_asked_for():
    stored, other = on_grid(304, 64, 0, Q8_0), (random(304, 64) * 0.1).bfloat16()
    for weight, mode, expected in [
        (stored, "none", True),
        (other, "none", False),
        (other, "int4", True),
        (stored.float(), "none", False),
    ]:
        head = linear_of(weight, kind=Head)
        head.pack(mode)
        assert isinstance(head.quantized, IntegerProduct) == expected
        assert head.weight.numel() == 0
