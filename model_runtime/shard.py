"""Spreads a model over ranks from outside: says who holds what, slices the modules, hooks the collectives onto them."""

from dataclasses import dataclass, replace
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model_runtime.attention import Attention
from model_runtime.families import ModelConfig
from model_runtime.linear import GatedFfn
from model_runtime.model import Model
from model_runtime.moe import Moe
from model_runtime.weights import Part

_BLOCK = 32  # neurons that a quantised kernel takes together (quantize.py): never split over two ranks


class Collective(Protocol):
    """What the ranks do together. Every rank gets the same bits back: they route by what they get."""

    rank: int
    size: int

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum over ranks; may be in place."""

    def all_gather(self, x: Tensor) -> list[Tensor]:
        """Every rank's `x`, by rank."""


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads of one rank: half-open ranges."""

    query: tuple[int, int]
    kv: tuple[int, int]


def apply_sharding(model: Model, collective: Collective) -> dict[str, Part]:
    """Leaves in `model`, whose parameters may be on the meta device, what rank `collective.rank` computes: a contiguous
    range of the experts, or of a dense FFN's neurons; some attention heads; some rows of the language-model head. What
    cannot be split, all ranks compute alike. Call it before `model.pack`.

    Returns which part of each parameter is left; those not named are whole, or gone. Raises ValueError if the experts
    do not divide by the ranks, or if there are fewer neurons than ranks."""
    config, rank, size = model.config, collective.rank, collective.size
    parts: dict[str, Part] = {}
    if size == 1:
        return parts
    if config.num_experts % size:
        raise ValueError(f"{config.num_experts} experts do not divide over {size} shards")
    heads = split_heads(config, rank, size)
    for number, layer in enumerate(model.layers):
        if heads is not None:
            parts |= _prefixed(f"layers.{number}.attention", _shard_attention(layer.attention, heads, rank))
            _sum_output(layer.attention, collective)
        if isinstance(layer.ffn, Moe):
            ffn_parts = _shard_experts(layer.ffn, config, collective)
        else:
            ffn_parts = _shard_neurons(layer.ffn, config.ffn, rank, size)
        parts |= _prefixed(f"layers.{number}.ffn", ffn_parts)
        _sum_output(layer.ffn, collective)
    if heads is not None:
        query, kv = (stop - start for start, stop in (heads.query, heads.kv))
        model.config = replace(config, heads=query, kv_heads=kv)
    return parts | _shard_head(model, collective)


def split_heads(config: ModelConfig, rank: int, size: int) -> Heads | None:
    """Key-value heads as evenly as can be, each with its query heads; if there are more ranks than key-value heads,
    several ranks hold the same one and share its query heads. None if that does not come out even, or if queries and
    keys are normalised over all heads: every rank computes attention whole then."""
    group = config.heads // config.kv_heads
    if config.qk_norm == "width":
        return None
    if size <= config.kv_heads:
        first, last = _share(config.kv_heads, rank, size)
        return Heads((first * group, last * group), (first, last))
    ranks = size // config.kv_heads  # that share a key-value head
    if size % config.kv_heads or group % ranks:
        return None
    kv, place = divmod(rank, ranks)
    first = kv * group + place * (group // ranks)
    return Heads((first, first + group // ranks), (kv, kv + 1))


def _share(count: int, rank: int, size: int) -> tuple[int, int]:
    """Rank 0, which also leads, never gets more than the others."""
    return rank * count // size, (rank + 1) * count // size


def _shard_attention(attention: Attention, heads: Heads, rank: int) -> dict[str, Part]:
    width, all_queries, all_kv = attention.head_dim, attention.heads, attention.kv_heads
    firsts = (0, all_queries, all_queries + all_kv)  # where queries, keys and values begin, in heads
    rows = tuple(
        ((first + start) * width, (first + stop) * width)
        for first, (start, stop) in zip(firsts, (heads.query, heads.kv, heads.kv), strict=True)
    )
    parts = {"qkv.weight": Part(0, rows), "out.weight": Part(1, (rows[0],))}
    if attention.qkv.bias is not None:
        parts["qkv.bias"] = Part(0, rows)
    if attention.sinks is not None:
        parts["sinks"] = Part(0, (heads.query,))
    if rank > 0:  # it is added to a sum over ranks: once
        attention.out.bias, attention.out.has_bias = None, False
    attention.heads = heads.query[1] - heads.query[0]
    attention.kv_heads = heads.kv[1] - heads.kv[0]
    return _keep(attention, parts)


def _shard_experts(moe: Moe, config: ModelConfig, collective: Collective) -> dict[str, Part]:
    first, last = _share(config.num_experts, collective.rank, collective.size)
    moe.hold(range(first, last))
    moe.agree = collective.all_reduce
    if moe.shared is None:
        return {}
    return _prefixed("shared", _shard_neurons(moe.shared, config.shared_ffn, collective.rank, collective.size))


def _shard_neurons(ffn: GatedFfn, neurons: int, rank: int, size: int) -> dict[str, Part]:
    if neurons < size:
        raise ValueError(f"{neurons} FFN neurons do not divide over {size} shards")
    block = _BLOCK if neurons % _BLOCK == 0 and neurons // _BLOCK >= size else 1
    first, last = _share(neurons // block, rank, size)
    held = ((first * block, last * block),)
    return _keep(ffn, {"gate.weight": Part(0, held), "up.weight": Part(0, held), "down.weight": Part(1, held)})


def _shard_head(model: Model, collective: Collective) -> dict[str, Part]:
    """Ranks gather tensors of one shape only: the last rank's logits are padded if the vocabulary does not divide."""
    vocab = model.config.vocab
    rows = -(-vocab // collective.size)
    first, last = collective.rank * rows, min((collective.rank + 1) * rows, vocab)
    if (collective.size - 1) * rows >= vocab:
        return {}

    def join(_module: nn.Module, _inputs: object, logits: Tensor) -> Tensor:
        gathered = collective.all_gather(F.pad(logits, (0, rows - logits.shape[-1])))
        return torch.cat(gathered, dim=-1)[..., :vocab]

    model.head.register_forward_hook(join)
    return _prefixed("head", _keep(model.head, {"weight": Part(0, ((first, last),))}))


def _keep(module: nn.Module, parts: dict[str, Part]) -> dict[str, Part]:
    for name, part in parts.items():
        owner, _, leaf = name.rpartition(".")
        holder = module.get_submodule(owner)
        whole = getattr(holder, leaf).detach()
        if whole.is_meta:  # not by slicing: torch imports its compiler to join tensors without values, for a second
            held = torch.empty(part.shape(tuple(whole.shape)), dtype=whole.dtype, device="meta")
        else:  # a copy: a view would keep the whole parameter in memory
            held = part.of(whole).clone(memory_format=torch.contiguous_format)
        setattr(holder, leaf, nn.Parameter(held, requires_grad=False))
    return parts


def _prefixed(prefix: str, parts: dict[str, Part]) -> dict[str, Part]:
    return {f"{prefix}.{name}": part for name, part in parts.items()}


def _sum_output(module: nn.Module, collective: Collective) -> None:
    module.register_forward_hook(lambda _module, _inputs, output: collective.all_reduce(output))
