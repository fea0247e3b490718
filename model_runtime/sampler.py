"""Logits -> the next token. The draw of a position depends on the seed and the position only: neither on what else is
in the batch nor on what was drawn before, so that an answer replayed after a failure goes on as it began, and a guessed
token is right exactly when it would have been drawn."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat

import numpy as np
import torch
from torch import Tensor

from model_runtime.distribution import argmax, sample
from model_runtime.grammar import GrammarState, forbid
from model_runtime.request import GenerationFailed, Logprob, Sampling

_MASK = (1 << 64) - 1
_SURE = 4096.0  # a bias of 100 or -100 decides at any temperature in use, and logits still count among equals


@dataclass(frozen=True, slots=True)
class Draw:
    """What one row's choice depends on. `position`: generated tokens before this one."""

    sampling: Sampling
    position: int
    prompt_ids: Sequence[int]
    generated: Sequence[int]
    grammar: GrammarState | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """`id` None: the logits are not finite, or the grammar's parser gave up."""

    id: int | None
    logprob: Logprob | None = None


def choose(logits: Tensor, draws: Sequence[Draw]) -> list[Choice]:
    """`logits` is [len(draws), vocab] float32; may be changed."""
    highest, best = argmax(logits)  # NaN counts as highest
    usable = torch.isfinite(highest)
    wanting = [row for row, draw in enumerate(draws) if draw.sampling.logprobs is not None]
    raw = logits[wanting] if wanting else None  # a copy
    if _change(logits, draws):
        highest, best = argmax(logits)
        usable &= torch.isfinite(highest)
    ids = best.tolist()
    works = usable.tolist()
    random = [row for row, draw in enumerate(draws) if draw.sampling.temperature > 0 and works[row]]
    if random:
        points = [uniform(draws[row].sampling.seed, draws[row].position) for row in random]
        rows = logits if len(random) == len(draws) else logits[random]
        found = sample(rows, highest[random], [draws[row].sampling for row in random], points)
        for row, token_id in zip(random, found, strict=True):
            ids[row] = token_id
    chosen = [token_id if works[row] else None for row, token_id in enumerate(ids)]
    logprobs = {} if raw is None else _logprobs(raw, wanting, chosen, draws)
    return [Choice(token_id, logprobs.get(row)) for row, token_id in enumerate(chosen)]


def accept(logits: Tensor, draw: Draw, draft: Sequence[int]) -> list[Choice]:
    """The 1 to len(draft) + 1 tokens that follow: row i of `logits` [len(draft) + 1, vocab] is chosen from as `choose`
    would after draft[:i], up to the first choice that differs from the draft. So they are the tokens that would have
    come without a draft."""
    assert len(logits) == len(draft) + 1, f"{len(logits)} rows for a draft of {len(draft)}"
    together = len(logits) if draw.sampling.temperature == 0 and draw.grammar is None else 1
    choices: list[Choice] = []
    draws = _along(draw, draft)
    for first in range(0, len(logits), together):
        rows = logits[first : first + together]
        for choice in choose(rows, [next(draws) for _ in rows]):
            choices.append(choice)
            if len(choices) > len(draft) or choice.id != draft[len(choices) - 1]:
                return choices
    raise AssertionError("the row after the draft ends it")


def _along(draw: Draw, draft: Sequence[int]) -> Iterator[Draw]:
    """The draw after each beginning of the draft. A grammar is advanced when the next one is asked for."""
    sampling = draw.sampling
    grammar = None if draw.grammar is None else draw.grammar.copy()
    counts = sampling.repetition_penalty != 1 or sampling.presence_penalty or sampling.frequency_penalty
    for done in range(len(draft) + 1):
        generated = [*draw.generated, *draft[:done]] if counts else draw.generated
        yield replace(draw, position=draw.position + done, generated=generated, grammar=grammar)
        if grammar is not None and done < len(draft):
            with suppress(GenerationFailed):  # then it allows nothing any more, and the next choice is None
                grammar.advance(draft[done])


def _change(logits: Tensor, draws: Sequence[Draw]) -> bool:
    """Penalties, then biases, then grammars, in place: a bias of 100 outweighs every penalty, a grammar everything.
    False if there is nothing to do."""
    seen = [part for row, draw in enumerate(draws) for part in _repeated(row, draw)]
    if seen:
        places, penalty = _join(seen, logits.device)
        scores = logits[places]
        logits[places] = torch.where(scores > 0, scores / penalty, scores * penalty)
    added = [part for row, draw in enumerate(draws) for part in _added(row, draw)]
    if added:
        places, amounts = _join(added, logits.device)
        logits.index_put_(places, amounts, accumulate=True)
    bound = [(row, draw.grammar) for row, draw in enumerate(draws) if draw.grammar is not None]
    for row, grammar in bound:
        forbid(logits[row], grammar.allowed())
    return bool(seen or added or bound)


_Part = tuple[int, Iterable[int], Iterable[float], int]  # row, ids, a number for each, how many they are


def _repeated(row: int, draw: Draw) -> Iterator[_Part]:
    """Keskar et al., "CTRL", 2019: what was seen is divided by the penalty, or multiplied where negative."""
    if draw.sampling.repetition_penalty != 1:
        seen = {*draw.prompt_ids, *draw.generated}
        yield row, seen, repeat(draw.sampling.repetition_penalty), len(seen)


def _added(row: int, draw: Draw) -> Iterator[_Part]:
    """The penalties of the OpenAI API: frequency for each time a token was generated, presence once; and biases."""
    sampling = draw.sampling
    frequency, presence = sampling.frequency_penalty, sampling.presence_penalty
    if frequency or presence:
        counts = Counter(draw.generated)
        yield row, counts, (-count * frequency - presence for count in counts.values()), len(counts)
    if sampling.logit_bias:
        ids, biases = zip(*sampling.logit_bias, strict=True)
        yield row, ids, (bias if abs(bias) < 100 else bias / 100 * _SURE for bias in biases), len(ids)


def _join(parts: list[_Part], device: torch.device) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Where the ids' logits are, and their numbers."""
    lengths = [length for *_, length in parts]
    rows = np.repeat([row for row, *_ in parts], lengths)
    ids = np.fromiter(chain.from_iterable(ids for _, ids, *_ in parts), np.int64, sum(lengths))
    numbers = np.fromiter(chain.from_iterable(islice(n, length) for *_, n, length in parts), np.float32, sum(lengths))
    places = torch.from_numpy(rows).to(device), torch.from_numpy(ids).to(device)
    return places, torch.from_numpy(numbers).to(device)


def _logprobs(raw: Tensor, rows: list[int], chosen: list[int | None], draws: Sequence[Draw]) -> dict[int, Logprob]:
    """Of `rows`, whose unchanged logits are `raw`."""
    whole = raw.logsumexp(1, keepdim=True)
    ids = torch.tensor([[chosen[row] or 0] for row in rows], device=raw.device)
    own = (raw.gather(1, ids) - whole)[:, 0].tolist()
    counts = [min(draws[row].sampling.logprobs or 0, raw.shape[1]) for row in rows]
    best, places = raw.topk(max(counts), dim=1)
    tops = zip(places.tolist(), (best - whole).tolist(), strict=True)
    return {
        row: Logprob(mine, tuple(zip(top_ids[:count], top[:count], strict=True)))
        for row, mine, count, (top_ids, top) in zip(rows, own, counts, tops, strict=True)
        if chosen[row] is not None
    }


def uniform(seed: int, position: int) -> float:
    """In [0, 1): splitmix64 (Steele et al., 2014) of the seed, then of the position in that stream."""
    return _mix(_mix(seed & _MASK) + position * 0x9E3779B97F4A7C15) / 2**64


def _mix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return (x ^ (x >> 31)) >> 11 << 11  # 53 bits: exact as a float, and below 1
