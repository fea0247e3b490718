"""Matrix products without bias, and the gated FFN made of three. On CPUs the weights can be packed for speed."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model_runtime.quantize import FourBit, four_bit

_ROWS_HINT = 16  # what oneDNN packs for; measured from 1 to 512 rows, no other hint is better by more than noise
_LEAST_OUTPUTS = 16  # a router scores a handful of experts: a plain product is quicker
_FEW_ROWS = 8  # up to here four bits are faster: 3.2 times for one row, 2.2 for four, 0.7 for sixteen


class Linear(nn.Module):
    """x [T, inputs] -> [T, outputs]. `weight` is [outputs, inputs] until `pack`."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs), requires_grad=False)
        self.packed: Tensor | None = None
        self.four_bit: FourBit | None = None

    def pack(self) -> None:
        """Exchange the weight for oneDNN's own layout, beside a four-bit copy if that is exact. The weight is gone:
        load, upcycle and shard before. Does nothing where torch has no oneDNN, off the CPU, and the second time."""
        if self.weight.device.type == "cpu" and len(self.weight) >= _LEAST_OUTPUTS and _onednn():
            weight = self.weight.detach()
            self.packed = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS_HINT)
            self.four_bit = four_bit(weight)
            self.weight = nn.Parameter(torch.empty(0), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.four_bit is not None and x.shape[0] <= _FEW_ROWS:
            return self.four_bit.product(x)
        if self.packed is not None:
            return torch.ops.mkldnn._linear_pointwise.default(x, self.packed, None, "none", [], "")  # type: ignore[no-any-return]
        if x.shape[0] == 1:
            return torch.mv(self.weight, x[0])[None]  # unpacked bfloat16 on a CPU: up to 1.5 times as fast
        return F.linear(x, self.weight)

    def swish(self, x: Tensor) -> Tensor:
        """silu(self(x))"""
        if self._fuses(x):
            return torch.ops.mkldnn._linear_pointwise.default(x, self.packed, None, "swish", [], "")  # type: ignore[no-any-return]
        return F.silu(self.forward(x))

    def times(self, x: Tensor, factor: Tensor) -> Tensor:
        """self(x) * factor"""
        if self._fuses(x):
            return torch.ops.mkldnn._linear_pointwise.binary(x, factor, self.packed, None, "mul")  # type: ignore[no-any-return]
        return self.forward(x) * factor

    def _fuses(self, x: Tensor) -> bool:
        return self.packed is not None and (self.four_bit is None or x.shape[0] > _FEW_ROWS)


class GatedFfn(nn.Module):
    """down(silu(gate(x)) * up(x)): a dense FFN or one expert."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate = Linear(hidden, inner)
        self.up = Linear(hidden, inner)
        self.down = Linear(inner, hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.down.forward(self.up.times(x, self.gate.swish(x)))


def _onednn() -> bool:
    return bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
