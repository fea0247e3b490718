"""Which experts computed what: per request for its record, and over a sliding window for the whole engine."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from model_runtime.kv_cache import Span

# L layers that have experts, E experts, T tokens of a step, A active experts, S spans, R requests there is room for

WINDOW_TOKENS = 100_000
_BUCKETS = 20  # the window slides by whole buckets
_ROOM = 16  # requests, before the table grows
_SAMPLED = 64  # tokens of a step whose routing entropy is taken: a mean needs no more

Counts: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ExpertSummary:
    """The engine's last WINDOW_TOKENS tokens (a bucket more or less), everything it computed: drafts that were turned
    down and prompts computed twice are load, too. `use[l][e]`: how many of the `tokens` expert e of the l-th layer that
    has experts computed.

    `switches_per_100_tokens`: how often, on the way from one token of a request to its next, the expert with the
    highest gate changes; mean over the layers. `routing_entropy`: of the router's distribution over its choices for one
    token, mean over tokens and layers, as a share of its maximum: 0 is certain, 1 is a blind guess; None if no scores
    were recorded."""

    tokens: int
    use: tuple[tuple[int, ...], ...]
    switches_per_100_tokens: float = 0.0
    routing_entropy: float | None = None

    @property
    def utilisation(self) -> tuple[tuple[float, ...], ...]:
        """[layer][expert]: the share of the tokens that the expert computed; a layer sums to its active experts."""
        return tuple(tuple(count / max(1, self.tokens) for count in layer) for layer in self.use)

    @property
    def use_entropy(self) -> tuple[float, ...]:
        """By layer: entropy of the distribution of work over experts, as a share of log E. 1 is even; low means that a
        few do everything. It says nothing about single tokens: that is `routing_entropy`."""
        return tuple(_evenness(layer) for layer in self.use)

    @property
    def imbalance(self) -> tuple[float, ...]:
        """By layer: the busiest expert's work over the mean's. 1 is even; 0 when nothing was computed."""
        return tuple(max(layer) * len(layer) / max(1, sum(layer)) for layer in self.use)


def _evenness(counts: Sequence[int]) -> float:
    total = sum(counts)
    if total == 0 or len(counts) == 1:
        return 1.0
    shares = [count / total for count in counts if count]
    return -sum(share * math.log(share) for share in shares) / math.log(len(counts))


@dataclass(slots=True)
class _Bucket:
    use: Counts  # [L * E]
    tokens: int = 0
    pairs: int = 0  # tokens whose predecessor is known
    switches: int = 0  # of them, in all layers
    entropy: float = 0.0  # sum over tokens and layers
    entropies: int = 0


@dataclass(slots=True)
class _Requests:
    """One row per request under way; `rows` says which."""

    width: int
    layers: int
    rows: dict[str, int] = field(default_factory=dict)
    free: list[int] = field(default_factory=list)
    use: Counts = field(init=False)  # [R, L * E]
    top: Counts = field(init=False)  # [R, L]: the first choice of the last token
    next: Counts = field(init=False)  # [R]: the first position not counted yet

    def __post_init__(self) -> None:
        self.use = np.zeros((0, self.width), dtype=np.int64)
        self.top = np.zeros((0, self.layers), dtype=np.int64)
        self.next = np.zeros(0, dtype=np.int64)

    def row(self, request_id: str) -> int:
        row = self.rows.get(request_id)
        if row is None:
            if not self.free:
                self._grow()
            row = self.rows[request_id] = self.free.pop()
            self.use[row] = 0
            self.next[row] = 0
        return row

    def drop(self, request_id: str) -> int | None:
        row = self.rows.pop(request_id, None)
        if row is not None:
            self.free.append(row)
        return row

    def _grow(self) -> None:
        old = len(self.next)
        room = max(_ROOM, 2 * old)
        self.use, self.top, self.next = (_longer(rows, room) for rows in (self.use, self.top, self.next))
        self.free = list(range(room - 1, old - 1, -1))


def _longer(rows: Counts, room: int) -> Counts:
    made = np.zeros((room, *rows.shape[1:]), dtype=rows.dtype)
    made[: len(rows)] = rows
    return made


class ExpertLog:
    """Rank 0 keeps it. `record` and `use` are called by the engine's thread; `summary` by any: it may miss a step."""

    def __init__(self, moe_layers: int, num_experts: int) -> None:
        assert moe_layers > 0 and num_experts > 0, "a dense model has no experts to log"
        self.moe_layers, self.num_experts = moe_layers, num_experts
        self._width = moe_layers * num_experts
        self._layer_starts = (np.arange(moe_layers) * num_experts)[:, None, None]
        self._requests = _Requests(self._width, moe_layers)
        self._buckets: deque[_Bucket] = deque(maxlen=_BUCKETS)

    def record(
        self,
        routes: Sequence[Tensor],
        spans: Sequence[Span],
        request_ids: Sequence[str],
        kept: Sequence[int] | None = None,
    ) -> None:
        """Once a step. `routes` (Model.routes): an int64 tensor [T, A] per layer that has experts, best choice first.
        `request_ids[i]` owns `spans[i]`; of the span's tokens the first `kept[i]` stay in the sequence, the others
        are drafts that were turned down (None: all stay). A token that was counted before, because the request was
        preempted, is not counted again."""
        chosen: Counts = torch.stack(list(routes)).cpu().numpy()  # [L, T, A]
        rows = [self._requests.row(request_id) for request_id in request_ids]
        firsts = np.cumsum([0, *(span.length for span in spans[:-1])])
        counted = self._counted(spans, rows, kept)
        flat = chosen + self._layer_starts
        use = np.bincount(flat.ravel(), minlength=self._width)
        bucket = self._bucket(chosen.shape[1])
        bucket.use += use
        self._add_to_requests(flat, use, spans, rows, counted)
        self._add_switches(bucket, chosen[:, :, 0], firsts, rows, spans, counted)

    def record_scores(self, scores: Sequence[Tensor]) -> None:
        """The router's scores [T, choices] per layer that has experts, before its softmax, in the step that `record`
        was called for. Of many tokens some are taken, evenly."""
        every = -(-scores[0].shape[0] // _SAMPLED)
        logs = torch.stack([layer[::every] for layer in scores]).float().log_softmax(-1)
        most = math.log(logs.shape[-1])
        if most and self._buckets:
            bucket = self._buckets[-1]
            bucket.entropy -= float((logs.exp() * logs).nansum()) / most
            bucket.entropies += logs.shape[0] * logs.shape[1]

    def use(self, request_id: str) -> tuple[tuple[int, ...], ...]:
        """[layer][expert]: how many of the request's tokens the expert computed; all 0 if there were none. Tokens that
        were in the cache already are not among them. The request is forgotten."""
        row = self._requests.drop(request_id)
        counts = np.zeros(self._width, dtype=np.int64) if row is None else self._requests.use[row]
        return _table(counts, self.num_experts)

    def forget(self, request_id: str) -> None:
        self._requests.drop(request_id)

    def summary(self) -> ExpertSummary:
        buckets = list(self._buckets)
        use = sum((bucket.use for bucket in buckets), start=np.zeros(self._width, dtype=np.int64))
        pairs, entropies = sum(bucket.pairs for bucket in buckets), sum(bucket.entropies for bucket in buckets)
        switches = sum(bucket.switches for bucket in buckets)
        return ExpertSummary(
            tokens=sum(bucket.tokens for bucket in buckets),
            use=_table(use, self.num_experts),
            switches_per_100_tokens=100 * switches / (pairs * self.moe_layers) if pairs else 0.0,
            routing_entropy=sum(bucket.entropy for bucket in buckets) / entropies if entropies else None,
        )

    def _bucket(self, tokens: int) -> _Bucket:
        if not self._buckets or self._buckets[-1].tokens >= WINDOW_TOKENS // _BUCKETS:
            self._buckets.append(_Bucket(np.zeros(self._width, dtype=np.int64)))
        self._buckets[-1].tokens += tokens
        return self._buckets[-1]

    def _counted(self, spans: Sequence[Span], rows: list[int], kept: Sequence[int] | None) -> list[tuple[int, int]]:
        """By span, which of its tokens count for the request: a half-open range."""
        ranges = []
        for number, (span, row) in enumerate(zip(spans, rows, strict=True)):
            stop = span.length if kept is None else kept[number]
            ranges.append((min(stop, max(0, int(self._requests.next[row]) - span.start)), stop))
        return ranges

    def _add_to_requests(
        self, flat: Counts, use: Counts, spans: Sequence[Span], rows: list[int], counted: list[tuple[int, int]]
    ) -> None:
        """flat [L, T, A]: layer * E + expert. `use`: its histogram."""
        table = self._requests.use
        whole = all(part == (0, span.length) for span, part in zip(spans, counted, strict=True))
        if whole and len(rows) == 1:
            table[rows[0]] += use
            return
        owners = np.repeat(np.array(rows) * self._width, [span.length for span in spans])
        places = flat + owners[:, None]
        if not whole:
            places = places[:, _mask(spans, counted)]
        np.add.at(table.reshape(-1), places.ravel(), 1)

    def _add_switches(
        self,
        bucket: _Bucket,
        top: Counts,
        firsts: Counts,
        rows: list[int],
        spans: Sequence[Span],
        counted: list[tuple[int, int]],
    ) -> None:
        """top [L, T]: each token's first choice."""
        requests = self._requests
        before = np.empty_like(top)
        before[:, 1:] = top[:, :-1]
        before[:, firsts] = requests.top[rows].T
        follows = _mask(spans, counted)
        for first, row, span, (start, stop) in zip(firsts.tolist(), rows, spans, counted, strict=True):
            follows[first] &= 0 < span.start == requests.next[row]
            if stop > start:
                requests.top[row] = top[:, first + stop - 1]
                requests.next[row] = span.start + stop
        bucket.pairs += int(np.count_nonzero(follows))
        bucket.switches += int(np.count_nonzero((top != before) & follows))


def _mask(spans: Sequence[Span], counted: list[tuple[int, int]]) -> Mask:
    """[T]"""
    mask = np.ones(sum(span.length for span in spans), dtype=np.bool_)
    first = 0
    for span, (start, stop) in zip(spans, counted, strict=True):
        mask[first : first + start] = False
        mask[first + stop : first + span.length] = False
        first += span.length
    return mask


def _table(counts: Counts, num_experts: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(layer) for layer in counts.reshape(-1, num_experts).tolist())
