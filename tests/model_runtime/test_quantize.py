"""Four bits are used only where they lose nothing; what int8 and int4 lose is bounded by their definition. The gguf
package, which llama.cpp's converter uses, makes the weights that lie on a grid."""

import gguf
import pytest
import torch
from gguf import GGMLQuantizationType as Type
from hypothesis import given, settings
from hypothesis import strategies as st

from model_runtime.linear import Linear
from model_runtime.quantize import (
    BLOCK,
    EightBit,
    FourBit,
    IntegerProduct,
    four_bit,
    multiplies_integers,
    on_eight_bit_grid,
    quantize,
)

SEED = st.integers(0, 99)
cuda = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a GPU: int8 and int4 on CUDA are NOT tested here"
)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def on_grid(outputs: int, inputs: int, seed: int, kind: Type = Type.Q4_1) -> torch.Tensor:
    stored = gguf.quants.quantize((random(outputs, inputs, seed=seed) * 0.05).numpy(), kind)
    return torch.from_numpy(gguf.quants.dequantize(stored, kind)).bfloat16()


def read_back(product, inputs: int, dtype=torch.float32) -> torch.Tensor:
    """The weight [outputs, inputs] that a product computes with."""
    return product(torch.eye(inputs, dtype=dtype)).float().T


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([Type.Q4_0, Type.Q4_1]), st.integers(1, 6), st.integers(1, 8), st.integers(1, 12), SEED)
def test_four_bits_give_the_product_of_a_weight_on_a_grid(kind, outputs, blocks, rows, seed):
    weight = on_grid(outputs * 16, blocks * BLOCK, seed, kind)
    x = random(rows, blocks * BLOCK, seed=seed).bfloat16()
    copy = four_bit(weight)
    assert copy is not None
    exact = x.float() @ weight.float().T
    torch.testing.assert_close(copy.product(x).float(), exact, rtol=0.01, atol=0.01 * float(exact.abs().max()))


@pytest.mark.parametrize("kind", [Type.Q4_0, Type.Q4_1])
def test_four_bits_hold_every_weight_of_a_grid_to_the_precision_of_bfloat16(kind):
    weight = on_grid(64, 256, 3, kind)
    copy = four_bit(weight)
    assert copy is not None
    largest = weight.float().view(64, -1, BLOCK).abs().amax(-1, keepdim=True)
    off = (read_back(copy.product, 256, torch.bfloat16) - weight.float()).view(64, -1, BLOCK).abs()
    assert (off <= largest * 2**-7).all(), "a step of Q4_1 is about 2**-3 of the largest"


def test_constant_blocks_are_on_the_grid():
    for value in (0.5, 0.0):
        copy = four_bit(torch.full((16, BLOCK), value).bfloat16())
        assert copy is not None
        expected = torch.full((1, 16), value * BLOCK)
        torch.testing.assert_close(copy.product(torch.ones(1, BLOCK).bfloat16()).float(), expected)


@pytest.mark.parametrize(
    "weight",
    [
        pytest.param(random(32, 64).bfloat16(), id="no grid"),
        pytest.param(on_grid(32, 64, 0, Type.Q5_1), id="a finer grid"),
        pytest.param(on_grid(32, 64, 0, Type.Q8_0), id="a much finer grid"),
        pytest.param(on_grid(32, 64, 0).float(), id="float32"),
        pytest.param(on_grid(20, 64, 0), id="rows the kernel cannot take"),
        pytest.param(on_grid(32, 64, 0)[:, :40], id="part of a block"),
    ],
)
def test_four_bits_decline_what_they_would_change(weight):
    assert four_bit(weight) is None


def test_one_weight_off_the_grid_is_enough_to_decline():
    weight = on_grid(32, 64, 0)
    assert four_bit(weight) is not None
    weight[7, 40] += (weight[7, 32:].max() - weight[7, 32:].min()) / 30  # half a step
    assert four_bit(weight) is None


def test_a_head_stored_in_eight_bits_is_recognised():
    assert on_eight_bit_grid(on_grid(1000, 96, 0, Type.Q8_0))
    assert not on_eight_bit_grid(random(1000, 96).bfloat16())
    assert not on_eight_bit_grid(on_grid(1000, 96, 0, Type.Q8_0)[:, :40])


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 50), st.integers(1, 70), SEED)
def test_int8_moves_no_weight_by_more_than_half_a_level_of_its_output(outputs, inputs, seed):
    weight = random(outputs, inputs, seed=seed)
    packed = quantize(weight, "int8")
    assert isinstance(packed, IntegerProduct) or not multiplies_integers()
    if packed is not None:
        off = (read_back(packed.product, inputs) - weight).abs()
        assert (off <= weight.abs().amax(-1, keepdim=True) * (0.5 / 127 + 1e-5)).all()


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 4), st.integers(1, 6), SEED)
def test_int4_moves_no_weight_by_more_than_half_a_step_of_its_block(outputs, blocks, seed):
    weight = random(outputs * 16, blocks * BLOCK, seed=seed)
    packed = quantize(weight, "int4")
    assert isinstance(packed, FourBit)
    by_block = weight.view(outputs * 16, blocks, BLOCK)
    step = (by_block.amax(-1, keepdim=True) - by_block.amin(-1, keepdim=True)) / 15
    off = (read_back(packed.product, blocks * BLOCK).view_as(by_block) - by_block).abs()
    assert (off <= step * 0.501).all()


@pytest.mark.parametrize("shape", [(20, 64), (32, 40), (7, 33)])
def test_int4_declines_shapes_that_its_kernel_does_not_take(shape):
    assert quantize(random(*shape), "int4") is None


@pytest.mark.skipif(not multiplies_integers(), reason="this CPU does not multiply int8")
@settings(max_examples=50, deadline=None)
@given(st.integers(1, 70), st.integers(1, 130), st.integers(1, 40), st.sampled_from([1e-6, 1.0, 1e6]), SEED)
def test_integers_give_the_product_but_for_the_sixteenth_bit_of_x(outputs, inputs, rows, scale, seed):
    levels = torch.randint(-127, 128, (outputs, inputs), generator=torch.Generator().manual_seed(seed))
    scales = torch.rand(outputs, generator=torch.Generator().manual_seed(seed)) + 0.01
    weight = levels * scales.unsqueeze(1)
    x = random(rows, inputs, seed=seed) * scale
    x[:, 0] *= 100  # an outlier, as language models have them
    exact = x.double() @ weight.double().T
    bound = x.abs().amax(-1, keepdim=True) * weight.abs().sum(-1) / (2 * 127 * 254)
    packed = IntegerProduct(levels.to(torch.int8), scales, torch.arange(inputs), torch.ones(inputs))
    off = (packed.exact(x) - exact).abs()
    assert (off <= bound * 1.01 + exact.abs() * 1e-6).all()


@pytest.mark.skipif(not multiplies_integers(), reason="this CPU does not multiply int8")
def test_inputs_with_large_weights_do_not_make_the_others_coarse():
    weight = random(64, 320)
    weight[:, 40:60] *= 4  # one digit, with a scale for these, would be off by about 12 / 254
    packed = quantize(weight, "int8")
    assert packed is not None
    off = (read_back(packed.product, 320) - weight).abs()
    assert off.max() < 1.1 * weight[:, 60:].abs().max() / 254
    assert off[:, 40:60].max() < 1e-3, "they have two digits"


@pytest.mark.skipif(not multiplies_integers(), reason="this CPU does not multiply int8")
def test_with_integers_a_row_gives_the_same_bits_whatever_else_is_in_the_batch():
    packed = quantize(random(96, 64).bfloat16(), "int8")
    assert isinstance(packed, IntegerProduct)
    x = random(40, 64, seed=1).bfloat16()
    together = packed.exact(x)
    for rows in (1, 2, 7):
        for first in range(0, 40, rows):
            assert torch.equal(packed.exact(x[first : first + rows]), together[first : first + rows])
    many = x.repeat(10, 1)
    assert torch.equal(packed.product(many), together.bfloat16().repeat(10, 1))


@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_nothing_comes_of_nothing(mode):
    packed = quantize(torch.zeros(16, BLOCK).bfloat16(), mode)
    assert packed is not None and not packed.product(torch.ones(2, BLOCK).bfloat16()).any()
    packed = quantize(random(16, BLOCK).bfloat16(), mode)
    assert packed is not None and not packed.product(torch.zeros(2, BLOCK).bfloat16()).any()


@pytest.mark.parametrize("mode", ["int8", "int4"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_stays_so(mode, value):
    """The circuit breaker looks for it (breaker.py)."""
    packed = quantize(random(16, BLOCK).bfloat16(), mode)
    x = torch.ones(3, BLOCK).bfloat16()
    x[1, 5] = value
    assert packed is not None
    assert torch.isfinite(packed.product(x)).all(-1).tolist() == [True, False, True]
    weight = random(16, BLOCK).bfloat16()
    weight[3, 7] = value
    packed = quantize(weight, mode)
    assert packed is not None
    finite = torch.isfinite(packed.product(torch.ones(1, BLOCK).bfloat16()))[0]
    assert not finite[3] and finite[4:].all() and finite[:3].all()


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_int8_without_integer_instructions_gives_the_same_product(rows, dtype):
    weight, x = random(48, 64).to(dtype), random(rows, 64, seed=1).to(dtype)
    scales = weight.float().abs().amax(-1) / 127
    levels = (weight / scales.unsqueeze(1)).round().to(torch.int8)
    exact = x.float() @ (levels * scales.unsqueeze(1)).T
    found = EightBit(levels, scales.to(dtype)).product(x)
    assert found.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else 0.01
    torch.testing.assert_close(found.float(), exact, rtol=tolerance, atol=tolerance * float(exact.abs().max()))


@pytest.mark.gpu
@cuda
@pytest.mark.parametrize("rows", [1, 16, 200])
@pytest.mark.parametrize(("mode", "inputs"), [("int8", 96), ("int4", 96), ("int4", 192), ("int4", 256)])
def test_cuda_computes_what_the_cpu_computes(mode, inputs, rows):
    weight, x = random(64, inputs).bfloat16(), random(rows, inputs, seed=1).bfloat16()
    linears = []
    for device in ("cpu", "cuda"):
        linear = Linear(inputs, 64)
        linear.weight = torch.nn.Parameter(weight.to(device), requires_grad=False)
        linear.pack(mode)
        assert linear.quantized is not None
        linears.append(linear.forward(x.to(device)).float().cpu())
    torch.testing.assert_close(linears[1], linears[0], rtol=0.02, atol=0.02 * float(linears[0].abs().max()))


@pytest.mark.gpu
@cuda
def test_cuda_keeps_a_grid_of_four_bits_exactly():
    weight = on_grid(64, 256, 0).cuda()
    packed = quantize(weight, "int4")
    assert packed is not None
    found = packed.product(torch.eye(256, dtype=torch.bfloat16, device="cuda")).T
    torch.testing.assert_close(found.float(), weight.float(), rtol=0.01, atol=0.001)
