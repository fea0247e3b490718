"""A gate for training a router: it samples experts by Gumbel noise, and takes the best ones when it is not training.

Top-k of scores plus Gumbel noise is a sample without replacement from their softmax (Kool et al., "Stochastic Beams and
Where to Find Them", 2019). The gradient is that of a relaxed sample, straight through (Jang et al., "Categorical
Reparameterization with Gumbel-Softmax", 2017), relaxed for k > 1 by softmaxes one after the other (Xie and Ermon,
"Reparameterizable Subset Sampling via Continuous Relaxations", 2019)."""

import torch
from torch import Tensor, nn

from model_runtime.router import Router

# T tokens of a batch, D hidden, E choices of a router, A that it takes for a token

WINDOW_BATCHES = 1000  # whose use counts
PATIENCE_BATCHES = 50  # in a row that an expert is short of work before its temperature is lowered
LEAST_SHARE = 0.6  # of the mean use; below it an expert is short of work
TEMPERATURE_STEP = 0.05
TEMPERATURE_FLOOR = 0.1
_RELAXATION = 0.5  # Jang's temperature: of the relaxed sample, in the backward pass only


class Temperatures(nn.Module):
    """One temperature per expert, which falls while the expert is short of work and else recovers towards 1. The state
    is in buffers, saved with the gate's.

    `value[e]` scales how surprising expert e is, -log p: the gate samples from p ** value, normalised. At 1 that is p
    itself; the lower, the likelier, whatever p is. (Dividing the score instead, as one does with a temperature that all
    share, would help a positive score and harm a negative one.)"""

    value: Tensor
    used: Tensor
    total: Tensor
    short_for: Tensor
    batches: Tensor

    def __init__(self, num_experts: int) -> None:
        super().__init__()
        self.register_buffer("value", torch.ones(num_experts))
        self.register_buffer("used", torch.zeros(WINDOW_BATCHES, num_experts, dtype=torch.long))  # a ring
        self.register_buffer("total", torch.zeros(num_experts, dtype=torch.long))  # its sum
        self.register_buffer("short_for", torch.zeros(num_experts, dtype=torch.long))  # batches in a row
        self.register_buffer("batches", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def adapt(self, use: Tensor) -> None:
        """After a batch of which expert e computed `use[e]` tokens. Each PATIENCE_BATCHES in a row that an expert's use
        over the window is under LEAST_SHARE of the mean lower its temperature by TEMPERATURE_STEP, to
        TEMPERATURE_FLOOR at least; it rises at the same pace when it is not."""
        row = self.used[self.batches % WINDOW_BATCHES]
        self.total += use - row
        row.copy_(use)
        self.batches += 1
        short = self.total < LEAST_SHARE * self.total.float().mean()
        self.short_for = torch.where(short, self.short_for + 1, 0)
        fall = TEMPERATURE_STEP * (short & (self.short_for % PATIENCE_BATCHES == 0))
        rise = TEMPERATURE_STEP / PATIENCE_BATCHES * ~short
        # A new tensor: the backward pass still needs the old one.
        self.value = (self.value + rise - fall).clamp_(TEMPERATURE_FLOOR, 1.0)


class GumbelGate(nn.Module):
    """Wraps a router for its training (before Model.pack) and makes its weights trainable: they are the router's own,
    so there is nothing to copy when it serves. Not in training it is the router, exactly. In training the choice is a
    sample, and with `adaptive` the temperatures follow the use; without they stay 1."""

    def __init__(self, router: Router, *, adaptive: bool = True) -> None:
        super().__init__()
        self.router, self.adaptive = router, adaptive
        router.score.requires_grad_(True)
        self.temperatures = Temperatures(router.choices)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x [T, D] -> gates [T, A] float32 and choices [T, A], best first, as Router gives them. In training their
        gradient reaches the scores of all choices, and the temperatures adapt to the sample."""
        router = self.router
        if not self.training:
            with torch.no_grad():
                return router.forward(x)
        scores = router.score.forward(x.to(router.score.weight.dtype)).float()
        noisy = scores.log_softmax(dim=-1) * self.temperatures.value
        noisy = noisy + _gumbel_like(noisy)
        sampled = noisy.detach().topk(router.taken, dim=-1).indices
        best, order = scores.gather(1, sampled).sort(dim=-1, descending=True)
        chosen = sampled.gather(1, order)
        if self.adaptive:
            self.temperatures.adapt(chosen.flatten().bincount(minlength=router.choices))
        gates = best.softmax(dim=-1) if router.renormalised else scores.softmax(dim=-1).gather(1, chosen)
        relaxed = _relaxed_top(noisy, router.taken).gather(1, chosen)
        return gates * router.scaling * (1 + (relaxed - relaxed.detach())), chosen  # times 1, but for the gradient


def _gumbel_like(x: Tensor) -> Tensor:
    """Standard Gumbel noise: minus the logarithm of an exponential sample, which is never 0."""
    return torch.empty_like(x, requires_grad=False).exponential_().log_().neg_()


def _relaxed_top(noisy: Tensor, count: int) -> Tensor:
    """[T, E] -> [T, E]: how much each is among the first `count`; from 0 to about 1, sums to `count`."""
    total = torch.zeros_like(noisy)
    for number in range(count):
        share = (noisy / _RELAXATION).softmax(dim=-1)
        total = total + share
        if number < count - 1:
            noisy = noisy + (1 - share).clamp_min(torch.finfo(share.dtype).tiny).log()
    return total
