"""Matrix products with an optional bias, and the gated FFN made of three. `pack` exchanges the weights for what the
device multiplies fastest."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model_runtime.quantize import (
    IntegerProduct,
    Mode,
    Quantized,
    eight_bit,
    four_bit,
    multiplies_integers,
    on_eight_bit_grid,
    quantize,
)

_ROWS_HINT = 16  # what oneDNN packs for; measured from 1 to 512 rows, no other hint is better by more than noise
_LEAST_OUTPUTS = 16  # a router scores a handful of experts: a plain product is quicker
# Up to here exact four bits compute the product. One thread: 2.3 times as fast as bfloat16 for one row, 1.4 for four,
# 0.7 for eight; but a row gives the same bits whatever their number, so that guesses (draft.py) change nothing.
ROWS_ALIKE = 8
_ALL_ROWS = 1 << 62

Activation = Literal["silu", "gelu_tanh", "clamped_swiglu"]


class Linear(nn.Module):
    """x [T, inputs] -> [T, outputs], in x's dtype. `weight` is [outputs, inputs] until `pack`; `bias` is float32."""

    bias: nn.Parameter | None

    def __init__(self, inputs: int, outputs: int, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs), requires_grad=False)
        values = nn.Parameter(torch.empty(outputs, dtype=torch.float32), requires_grad=False) if bias else None
        self.register_parameter("bias", values)
        self.has_bias = bias
        self.packed: Tensor | None = None  # oneDNN's own layout
        self.quantized: Quantized | None = None
        self.quantized_rows = -1  # up to so many rows `quantized` computes the product

    def pack(self, mode: Mode = "none") -> None:
        """Exchange the weight for a layout that is faster ("none": nothing is lost) or smaller ("int8", "int4"). The
        weight is gone: load, upcycle and shard before. Does nothing where there is nothing to gain, and the second
        time. Shapes that no quantised kernel takes keep their precision."""
        weight = self.weight.detach()
        if not weight.numel():
            return
        if mode != "none":
            self.quantized, self.quantized_rows = quantize(weight, mode), _ALL_ROWS
        if self.quantized is None:
            self._pack_exactly(weight)
        if self.quantized is not None or self.packed is not None:
            self.weight = nn.Parameter(torch.empty(0), requires_grad=False)

    def _pack_exactly(self, weight: Tensor) -> None:
        self.quantized_rows = -1
        if weight.device.type != "cpu" or len(weight) < _LEAST_OUTPUTS or not _onednn():
            return
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS_HINT)
        self.quantized = four_bit(weight)
        if self.quantized is not None:
            self.quantized_rows = ROWS_ALIKE

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] <= self.quantized_rows:
            y = self.quantized.product(x)  # type: ignore[union-attr]
        elif self.packed is not None:
            return _onednn_linear(x, self.packed, self.bias if self.has_bias else None, "none", [], "")  # type: ignore[no-any-return]
        elif x.shape[0] == 1:
            y = torch.mv(self.weight, x[0])[None]  # unpacked bfloat16 on a CPU: up to 1.5 times as fast
        else:
            y = F.linear(x, self.weight)
        return y.add_(self.bias) if self.has_bias else y  # type: ignore[arg-type]  # a look at self.bias takes 1 us

    def swish(self, x: Tensor) -> Tensor:
        """silu(self(x))"""
        if self._fuses(x):
            return _onednn_linear(x, self.packed, self.bias if self.has_bias else None, "swish", [], "")  # type: ignore[no-any-return]
        return F.silu(self.forward(x))

    def gelu_tanh(self, x: Tensor) -> Tensor:
        """gelu(self(x)), by its approximation with tanh"""
        if self._fuses(x):
            return _onednn_linear(x, self.packed, self.bias if self.has_bias else None, "gelu", [], "tanh")  # type: ignore[no-any-return]
        return F.gelu(self.forward(x), approximate="tanh")

    def times(self, x: Tensor, factor: Tensor) -> Tensor:
        """self(x) * factor"""
        if self._fuses(x) and not self.has_bias:  # oneDNN takes a float32 bias beside bfloat16 in the others, not here
            return torch.ops.mkldnn._linear_pointwise.binary(x, factor, self.packed, None, "mul")  # type: ignore[no-any-return]
        return self.forward(x).mul_(factor)

    def _fuses(self, x: Tensor) -> bool:
        return self.packed is not None and x.shape[0] > self.quantized_rows


class Head(Linear):
    """The language-model head: [T, hidden] -> [T, vocabulary] float32."""

    def pack(self, mode: Mode = "none") -> None:
        """As Linear, but bfloat16 weights become int8 on CPUs that multiply integers not only for "int8": also for
        "int4", and for "none" if the checkpoint had the head in eight bits. That halves the time, and as the logits
        are not rounded to bfloat16, they choose the exact token no less often (docs/performance.md)."""
        weight = self.weight.detach()
        suits = weight.dtype == torch.bfloat16 and weight.device.type == "cpu" and multiplies_integers()
        if suits and weight.numel() and (mode != "none" or on_eight_bit_grid(weight)):
            self.quantized, self.quantized_rows = eight_bit(weight), _ALL_ROWS
            self.weight = nn.Parameter(torch.empty(0), requires_grad=False)
        else:
            super().pack("int8" if mode == "int4" else mode)

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(self.quantized, IntegerProduct):
            return self.quantized.exact(x)
        return super().forward(x).float()


class GatedFfn(nn.Module):
    """A dense FFN or one expert. `activation`:
    silu: down(silu(gate(x)) * up(x)). gelu_tanh (Grok-1): the same with gelu.
    clamped_swiglu (gpt-oss): down((u + 1) * g * sigmoid(1.702 g)), g = gate(x) up to limit, u = up(x) within +-limit.
    """

    def __init__(
        self, hidden: int, inner: int, activation: Activation = "silu", bias: bool = False, limit: float = 0.0
    ) -> None:
        super().__init__()
        self.gate = Linear(hidden, inner, bias)
        self.up = Linear(hidden, inner, bias)
        self.down = Linear(inner, hidden, bias)
        self.activation = activation
        self.limit = limit

    def pack(self, mode: Mode = "none") -> None:
        """See Linear.pack."""
        for linear in (self.gate, self.up, self.down):
            linear.pack(mode)

    def forward(self, x: Tensor) -> Tensor:
        if self.activation == "silu":
            return self.down.forward(self.up.times(x, self.gate.swish(x)))
        if self.activation == "gelu_tanh":
            return self.down.forward(self.up.times(x, self.gate.gelu_tanh(x)))
        gate = self.gate.forward(x).clamp_(max=self.limit)
        up = self.up.forward(x).clamp_(-self.limit, self.limit)
        glu = (gate * 1.702).sigmoid_().mul_(gate)
        return self.down.forward(up.add_(1).mul_(glu))


_onednn_linear = torch.ops.mkldnn._linear_pointwise.default


def _onednn() -> bool:
    return bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
