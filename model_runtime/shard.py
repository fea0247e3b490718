"""Spreads a model over ranks from outside: slices its weights, hooks the collectives onto its modules."""

from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor, nn

from model_runtime.linear import GatedFfn, Linear
from model_runtime.model import Attention, Model
from model_runtime.moe import Moe


class Collective(Protocol):
    """What the ranks do together. Every rank gets the same bits back: they route by what they get."""

    rank: int
    size: int

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum over ranks; may be in place."""

    def all_gather(self, x: Tensor) -> list[Tensor]:
        """Every rank's `x`, by rank."""


def apply_sharding(model: Model, collective: Collective) -> None:
    """Leaves in `model` what rank `collective.rank` computes: a contiguous range of the experts (or of a dense FFN's
    neurons), some attention heads if the key-value heads divide by the ranks (else attention is replicated), and rows
    of the language-model head if the vocabulary divides. Call it before `model.pack`.

    Raises ValueError if the experts or neurons do not divide by the ranks."""
    config, rank, size = model.config, collective.rank, collective.size
    if size == 1:
        return
    if config.num_experts % size:
        raise ValueError(f"{config.num_experts} experts do not divide over {size} shards")
    if not config.num_experts and config.ffn % size:
        raise ValueError(f"{config.ffn} FFN neurons do not divide over {size} shards")
    split_heads = config.kv_heads % size == 0
    for layer in model.layers:
        if split_heads:
            _shard_attention(layer.attention, rank, size)
            _sum_output(layer.attention, collective)
        if isinstance(layer.ffn, Moe):
            _shard_experts(layer.ffn, rank, size)
        else:
            _shard_neurons(layer.ffn, rank, size)
        _sum_output(layer.ffn, collective)
    if split_heads:
        model.config = replace(config, heads=config.heads // size, kv_heads=config.kv_heads // size)
    if config.vocab % size == 0:
        _keep(model.head, model.head.weight.chunk(size)[rank])
        _join_output(model.head, collective)


def _shard_attention(attention: Attention, rank: int, size: int) -> None:
    width = attention.head_dim
    by_kind = torch.split(
        attention.qkv.weight, [n * width for n in (attention.heads, attention.kv_heads, attention.kv_heads)]
    )
    _keep(attention.qkv, torch.cat([rows.chunk(size)[rank] for rows in by_kind]))
    _keep(attention.out, attention.out.weight.chunk(size, dim=1)[rank])
    attention.heads //= size
    attention.kv_heads //= size


def _shard_experts(moe: Moe, rank: int, size: int) -> None:
    held = len(moe.experts) // size
    moe.first = rank * held
    moe.experts = moe.experts[moe.first : moe.first + held]


def _shard_neurons(ffn: GatedFfn, rank: int, size: int) -> None:
    _keep(ffn.gate, ffn.gate.weight.chunk(size)[rank])
    _keep(ffn.up, ffn.up.weight.chunk(size)[rank])
    _keep(ffn.down, ffn.down.weight.chunk(size, dim=1)[rank])


def _keep(linear: Linear, part: Tensor) -> None:
    """A copy: a view would keep the whole weight in memory."""
    assert linear.packed is None, "shard before packing"
    linear.weight = nn.Parameter(part.detach().clone(memory_format=torch.contiguous_format), requires_grad=False)


def _sum_output(module: nn.Module, collective: Collective) -> None:
    module.register_forward_hook(lambda _module, _inputs, output: collective.all_reduce(output))


def _join_output(module: nn.Module, collective: Collective) -> None:
    module.register_forward_hook(lambda _module, _inputs, output: torch.cat(collective.all_gather(output), dim=-1))
