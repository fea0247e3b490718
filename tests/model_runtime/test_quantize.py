"""Four bits are used only where they lose nothing, and then give the product of the weight itself."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model_runtime.linear import GatedFfn, Linear
from model_runtime.quantize import BLOCK, four_bit


def on_grid(outputs: int, inputs: int, seed: int) -> torch.Tensor:
    """What Q4_1 stores: each block has 16 levels of its own, and uses the lowest and the highest."""
    generator = torch.Generator().manual_seed(seed)
    levels = torch.randint(0, 16, (outputs, inputs // BLOCK, BLOCK), generator=generator).float()
    levels[..., 3], levels[..., 17] = 0, 15
    step = torch.rand(outputs, inputs // BLOCK, 1, generator=generator) * 0.02 + 0.002
    low = -step * (6 + 3 * torch.rand(outputs, inputs // BLOCK, 1, generator=generator))
    return (levels * step + low).view(outputs, inputs).bfloat16()


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(1, 8), st.integers(1, 12), st.integers(0, 99))
def test_it_gives_the_product_of_the_weight(outputs, blocks, rows, seed):
    weight = on_grid(outputs * 16, blocks * BLOCK, seed)
    x = torch.randn(rows, blocks * BLOCK, generator=torch.Generator().manual_seed(seed)).bfloat16()
    copy = four_bit(weight)
    assert copy is not None
    exact = x.float() @ weight.float().T
    torch.testing.assert_close(copy.product(x).float(), exact, rtol=0.01, atol=0.01 * float(exact.abs().max()))


def test_constant_blocks_are_on_the_grid():
    copy = four_bit(torch.full((16, BLOCK), 0.5).bfloat16())
    assert copy is not None
    torch.testing.assert_close(copy.product(torch.ones(1, BLOCK).bfloat16()).float(), torch.full((1, 16), 16.0))


@pytest.mark.parametrize(
    "weight",
    [
        pytest.param(torch.randn(32, 64, generator=torch.Generator().manual_seed(0)).bfloat16(), id="no grid"),
        pytest.param(on_grid(32, 64, 0).float(), id="float32"),
        pytest.param(on_grid(20, 64, 0), id="rows the kernel cannot take"),
        pytest.param(on_grid(32, 64, 0)[:, :40], id="part of a block"),
    ],
)
def test_it_declines_what_it_would_change(weight):
    assert four_bit(weight) is None


def test_one_weight_off_the_grid_is_enough_to_decline():
    weight = on_grid(32, 64, 0)
    weight[7, 40] += (weight[7, 32:].max() - weight[7, 32:].min()) / 30  # half a step
    assert four_bit(weight) is None


@pytest.mark.parametrize("grid", [True, False], ids=["four bits", "bfloat16"])
@pytest.mark.parametrize("rows", [1, 8, 9, 40])
def test_a_packed_ffn_computes_the_same_with_few_rows_and_many(grid, rows):
    ffn = GatedFfn(64, 96)
    for linear in (ffn.gate, ffn.up, ffn.down):
        weight = on_grid(*linear.weight.shape, seed=1)
        linear.weight.data = weight if grid else torch.randn_like(weight) * 0.05
    x = torch.randn(rows, 64, generator=torch.Generator().manual_seed(2)).bfloat16()
    expected = ffn(x).float()
    for linear in (ffn.gate, ffn.up, ffn.down):
        linear.pack()
        assert (linear.four_bit is not None) == grid
    torch.testing.assert_close(ffn(x).float(), expected, rtol=0.03, atol=0.03 * float(expected.abs().max()))


def test_packing_twice_is_packing_once():
    linear = Linear(64, 32)
    linear.weight.data = on_grid(32, 64, 0)
    linear.pack()
    packed = linear.packed
    linear.pack()
    assert linear.packed is packed and linear.weight.numel() == 0
