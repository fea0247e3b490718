"""Levels on the disk: how exact they are, that any rectangle reads as the whole does, and that the runtime's own
quantisation finds the same levels again."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from model_runtime.levels import Kept, can_quantize, levels_view, stored_shapes, to_levels
from model_runtime.quantize import four_bit
from model_runtime.tensor_view import View

KINDS: tuple[Kept, ...] = ("int8", "int4")


def whole(tensor: Tensor) -> View:
    return View(tuple(tensor.shape), lambda box: tensor[box])


def stored(weight: Tensor, kept: Kept) -> View:
    levels, scales = to_levels(weight, kept)
    assert (tuple(levels.shape), tuple(scales.shape)) == stored_shapes(tuple(weight.shape), kept)
    assert levels.dtype == torch.uint8 and scales.dtype == torch.bfloat16
    return levels_view(whole(levels), whole(scales), tuple(weight.shape), kept)


def random_weight(outputs: int = 32, inputs: int = 96) -> Tensor:
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(5)) * 0.05


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_error_is_about_half_a_step(dtype: torch.dtype) -> None:
    weight = random_weight().to(dtype)
    exact = weight.float()
    error = (stored(weight, "int8").read((slice(0, 32), slice(0, 96))) - exact).abs()
    assert (error <= 0.6 * exact.abs().amax(1, keepdim=True) / 127).all()
    blocks = exact.view(32, 3, 32)
    step = (blocks.amax(-1) - blocks.amin(-1)) / 15
    error = (stored(weight, "int4").read((slice(0, 32), slice(0, 96))) - exact).abs().view(32, 3, 32)
    assert (error <= 0.65 * step.unsqueeze(-1)).all()


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_rectangle_is_that_of_the_whole(data: st.DataObject) -> None:
    view = stored(random_weight(), data.draw(st.sampled_from(KINDS)))
    box = []
    for length in view.shape:
        start = data.draw(st.integers(0, length - 1))
        box.append(slice(start, data.draw(st.integers(start + 1, length))))
    everything = view.read((slice(0, 32), slice(0, 96)))
    assert torch.equal(view.read(tuple(box)), everything[tuple(box)])


@pytest.mark.parametrize("kept", KINDS)
def test_zeros_constants_and_tiny_numbers_survive(kept: Kept) -> None:
    weight = torch.zeros(16, 64)
    weight[1] = 0.3
    weight[2] = -1e-30
    weight[3, 0] = 1.0
    weight[4] = torch.linspace(-1, 1, 64)
    back = stored(weight, kept).read((slice(0, 16), slice(0, 64)))
    assert torch.isfinite(back).all()
    assert (back[0] == 0).all()
    torch.testing.assert_close(back, weight, atol=0.04, rtol=0.01)


def test_what_four_bits_give_back_lies_on_the_grid_that_the_runtime_looks_for() -> None:
    back = stored(random_weight(), "int4").read((slice(0, 32), slice(0, 96)))
    assert four_bit(back.bfloat16()) is not None


def test_shapes_that_kernels_do_not_take_are_not_quantised() -> None:
    assert can_quantize((32, 64))
    assert not can_quantize((32, 48))
    assert not can_quantize((9, 64))
    assert not can_quantize((64,))
