"""A mixture of experts in place of the FFN. Computes what the experts held here contribute."""

from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import cast

import torch
from torch import Tensor, nn

from model_runtime.families import ModelConfig
from model_runtime.linear import ROWS_ALIKE, GatedFfn, Linear
from model_runtime.quantize import Mode
from model_runtime.router import Router

_LEAST_SHARE = 1e-30  # of the experts that are left; the quotient stays finite if there are none

# T tokens, D hidden, E experts, G virtual groups, C = E / G choices, A' = choices a token takes


class Moe(nn.Module):
    """`experts` are those held here, by number: `hold` lets the others go. A choice that falls on experts that are not
    held contributes nothing. After a forward, `chosen` [T, A'] is where the tokens went."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.router = Router(config)
        self.experts = nn.ModuleDict({str(expert): _expert(config) for expert in range(config.num_experts)})
        self.shared: GatedFfn | None = None
        if config.shared_ffn:
            self.shared = GatedFfn(config.hidden, config.shared_ffn, config.activation)
            self.shared_gate = Linear(config.hidden, 1)
        self.chosen = torch.empty(0)
        self.faults: list[int] = []
        # Ranks hook in here: what went wrong anywhere, everybody must leave out (shard.py).
        self.agree: Callable[[Tensor], Tensor] = _same
        self._packed = False
        self._one_ffn: GatedFfn | None = None  # which all choices are, while the experts are copies of each other
        self._by_choice: dict[int, list[GatedFfn]] = {}
        self.hold(range(config.num_experts))

    def hold(self, numbers: Iterable[int]) -> None:
        self.experts = nn.ModuleDict({str(number): self.experts[str(number)] for number in numbers})
        self._by_choice = {}
        for number, expert in self.experts.items():
            choice = int(number) % self.router.choices
            self._by_choice.setdefault(choice, []).append(cast(GatedFfn, expert))

    def pack(self, mode: Mode = "none") -> None:
        """See Linear.pack. The experts of a choice are computed together from now on, as one wider FFN; choices whose
        experts are copies of each other, sharing memory (load.py), are the same FFN."""
        if self._packed:
            return
        self._packed = True
        made: dict[tuple[int, ...], GatedFfn] = {}
        for choice, experts in self._by_choice.items():
            memory = tuple(parameter.data_ptr() for expert in experts for parameter in expert.parameters())
            if memory not in made:
                made[memory] = _joined(experts)
            self._by_choice[choice] = [made[memory]]
        self.experts = nn.ModuleDict({str(choice): ffn for choice, (ffn,) in self._by_choice.items()})
        if len(made) == 1 and len(self._by_choice) == self.router.choices:
            (self._one_ffn,) = made.values()
        for ffn in [*self.experts.values(), *([self.shared] if self.shared is not None else [])]:
            cast(GatedFfn, ffn).pack(mode)

    def forward(self, x: Tensor, tilt: Tensor | None = None, guarded: bool = False) -> Tensor:
        """x [T, D] -> [T, D]. `tilt`: see Router. `guarded`: an expert whose output is not finite is left out of that
        token's mix, its share goes to the token's other experts, and `faults` gets its number, once a token."""
        gates, chosen = self.router.forward(x, tilt)
        self.chosen = chosen
        if guarded:
            total = self._guarded(x, gates, chosen)
        elif self._one_ffn is not None and self.router.only_gate is not None:
            total = self._one_ffn.forward(x).mul_(self.router.only_gate)
        elif x.shape[0] == 1:
            total = self._one_token(x, gates[0].to(x.dtype).tolist(), chosen[0].tolist())
        else:
            total = self._many_tokens(x, gates, chosen)
        if self.shared is not None:
            total += self.shared.forward(x) * self.shared_gate.forward(x).sigmoid()
        return total

    def _one_token(self, x: Tensor, gates: list[float], chosen: list[int]) -> Tensor:
        total: Tensor | None = None
        for gate, choice in zip(gates, chosen, strict=True):
            for expert in self._by_choice.get(choice, ()):
                part = expert.forward(x)
                total = part.mul_(gate) if total is None else total.add_(part, alpha=gate)
        return torch.zeros_like(x) if total is None else total

    def _many_tokens(self, x: Tensor, gates: Tensor, chosen: Tensor) -> Tensor:
        """Sorts the choices, so that each expert sees its tokens as one matrix."""
        outputs = self._outputs(x, chosen)
        shares = gates.to(x.dtype)
        total = outputs[:, 0] * shares[:, :1]
        for rank in range(1, chosen.shape[1]):
            total.addcmul_(outputs[:, rank], shares[:, rank : rank + 1])
        return total

    def _outputs(self, x: Tensor, chosen: Tensor) -> Tensor:
        """[T, A', D]: what each token's choices give, zero where the expert is not held here."""
        if self._one_ffn is not None:
            return self._one_ffn.forward(x).unsqueeze(1).expand(-1, chosen.shape[1], -1)
        flat = chosen.flatten()
        counts = flat.bincount(minlength=self.router.choices).tolist()
        at = dict(enumerate(torch.split(flat.argsort(stable=True), counts)))
        held = [choice for choice in self._by_choice if counts[choice]]
        if not held:
            return x.new_zeros(*chosen.shape, x.shape[1])
        filled = [_filled_up(at[choice]) for choice in held]
        rows = torch.split(x.index_select(0, torch.cat(filled) // chosen.shape[1]), [len(some) for some in filled])
        parts = [self._sum(choice, some) for choice, some in zip(held, rows, strict=True)]
        nothing = x.new_zeros(1, x.shape[1])
        *firsts, end = accumulate(map(len, filled), initial=0)
        found = [torch.arange(first, first + counts[choice]) for choice, first in zip(held, firsts, strict=True)]
        where = torch.full_like(flat, end)  # the row of nothing, for what is not held
        where[torch.cat([at[choice] for choice in held])] = torch.cat(found).to(x.device)
        return torch.cat([*parts, nothing]).index_select(0, where).view(*chosen.shape, -1)

    def _sum(self, choice: int, rows: Tensor) -> Tensor:
        first, *others = self._by_choice[choice]
        total = first.forward(rows)
        for expert in others:
            total += expert.forward(rows)
        return total

    def _guarded(self, x: Tensor, gates: Tensor, chosen: Tensor) -> Tensor:
        outputs = self._outputs(x, chosen)
        bad = self.agree((~torch.isfinite(outputs).all(-1)).float()) > 0
        kept = gates.masked_fill(bad, 0)
        kept *= gates.sum(-1, keepdim=True) / kept.sum(-1, keepdim=True).clamp_min(_LEAST_SHARE)
        blamed = bad & torch.isfinite(x).all(-1, keepdim=True)  # not for what came in already
        self.faults = self.router.experts_of(chosen[blamed].view(-1, 1)).flatten().tolist()
        return (outputs.float().masked_fill(bad.unsqueeze(-1), 0) * kept.unsqueeze(-1)).sum(1).to(x.dtype)


def _expert(config: ModelConfig) -> GatedFfn:
    return GatedFfn(
        config.hidden, config.expert_ffn, config.activation, bias=config.expert_bias, limit=config.swiglu_limit
    )


def _joined(experts: list[GatedFfn]) -> GatedFfn:
    """One FFN that gives the sum of these: they see the same tokens with the same gate."""
    first = experts[0]
    if len(experts) == 1:
        return first
    assert not first.gate.has_bias, "experts that share a gate come from upcycling, which makes no biases"
    with torch.device("meta"):
        joined = GatedFfn(0, 0, first.activation)
    for name, dim in (("gate", 0), ("up", 0), ("down", 1)):
        weight = torch.cat([getattr(expert, name).weight for expert in experts], dim)
        getattr(joined, name).weight = nn.Parameter(weight, requires_grad=False)
    return joined


def _filled_up(rows: Tensor) -> Tensor:
    """With more of the first, to a number of rows that recurs: oneDNN prepares itself for each new number, which takes
    longer than the product of a few more rows."""
    count = len(rows)
    step = 1 if count <= ROWS_ALIKE else 16 if count <= 256 else 64
    missing = -count % step
    return torch.cat([rows, rows[:1].expand(missing)]) if missing else rows


def _same(x: Tensor) -> Tensor:
    return x
