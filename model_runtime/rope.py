"""How far each position turns the pairs of a query or key, scaled for long contexts. Formulas as in transformers'
modeling_rope_utils, which follows the papers: linear (Chen et al., 2023), dynamic NTK (bloc97, emozilla, 2023), YaRN
(Peng et al., 2023), llama3 (Llama 3.1's own)."""

import math

import torch
from torch import Tensor

from model_runtime.families import Rope


def rotary_turns(rope: Rope, head_dim: int, context_tokens: int) -> Tensor:
    """[context_tokens, 1, head_dim / 2] complex64; of length 1 but for YaRN, which stretches queries and keys."""
    positions = torch.arange(context_tokens, dtype=torch.float64)
    if rope.scaling == "dynamic":
        angles = positions[:, None] * _dynamic_frequencies(rope, head_dim, positions)
    else:
        angles = torch.outer(positions, _frequencies(rope, head_dim))
    length = rope.attention_factor if rope.scaling == "yarn" else 1.0
    return torch.polar(torch.full_like(angles, length), angles).to(torch.complex64).unsqueeze(1)


def _frequencies(rope: Rope, head_dim: int) -> Tensor:
    plain = rope.base ** -_exponents(head_dim)
    if rope.frequency_factors:
        plain = plain / torch.tensor(rope.frequency_factors, dtype=torch.float64)
    if rope.scaling == "linear":
        return plain / rope.factor
    if rope.scaling == "yarn":
        return _yarn(rope, head_dim, plain)
    if rope.scaling == "llama3":
        return _llama3(rope, plain)
    return plain


def _exponents(head_dim: int) -> Tensor:
    return torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim


def _dynamic_frequencies(rope: Rope, head_dim: int, positions: Tensor) -> Tensor:
    """[positions, head_dim / 2]: beyond the original context the base grows with the length so far. A position's turn
    depends on the position alone, so that a prompt computed in portions, or again, gives the same keys."""
    original = rope.original_context_tokens
    length = (positions + 1).clamp_min(original)
    growth = rope.factor * length / original - (rope.factor - 1)
    bases = rope.base * growth ** (head_dim / (head_dim - 2))
    return bases[:, None] ** -_exponents(head_dim)


def _yarn(rope: Rope, head_dim: int, plain: Tensor) -> Tensor:
    """Pairs that turn often within the original context stay, those that turn seldom are interpolated, with a ramp
    between them."""

    def dimension_of(rotations: float) -> float:
        ratio = rope.original_context_tokens / (rotations * 2 * math.pi)
        return head_dim * math.log(ratio) / (2 * math.log(rope.base))

    low, high = dimension_of(rope.beta_fast), dimension_of(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    width = high - low if high != low else 0.001
    interpolated = ((torch.arange(head_dim // 2, dtype=torch.float64) - low) / width).clamp(0, 1)
    return plain / rope.factor * interpolated + plain * (1 - interpolated)


def _llama3(rope: Rope, plain: Tensor) -> Tensor:
    """Long waves are stretched by `factor`, short ones stay, those between are blended."""
    turns_in_context = rope.original_context_tokens * plain / (2 * math.pi)
    low, high = rope.low_freq_factor, rope.high_freq_factor
    kept = ((turns_in_context - low) / (high - low)).clamp(0, 1)
    return plain / rope.factor * (1 - kept) + plain * kept
