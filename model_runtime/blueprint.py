"""What a checkpoint holds and what a shard of it would, before any of it is read: for people who choose hardware."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from model_runtime.convert import tokenizer_files
from model_runtime.families import ModelConfig, Rope
from model_runtime.gguf_file import GgufFile
from model_runtime.json_keys import Keys
from model_runtime.load import open_checkpoint
from model_runtime.model import Model, stays_float32
from model_runtime.moe import Moe
from model_runtime.safetensors_file import open_tensors
from model_runtime.shard import apply_sharding
from model_runtime.upcycle import upcycle_dense
from model_runtime.weights import Checkpoint, CheckpointError

_DTYPE = torch.bfloat16  # what the sizes in memory are for

_KINDS = {  # the first that a parameter's name contains
    "norm.weight": "norms",
    ".attention.": "attention",
    ".router.": "routers",
    ".experts.": "experts",
    ".shared": "shared experts",
    ".ffn.": "dense FFN",
    "embedding": "embedding",
    "head": "head",
}


@dataclass(frozen=True, slots=True)
class Size:
    parameters: int
    memory_bytes: int  # in bfloat16, but for what stays in float32


@dataclass(frozen=True, slots=True)
class ShardSize:
    rank: int
    memory_bytes: int
    experts: int  # of a layer
    query_heads: int
    kv_heads: int
    cache_bytes_per_token: int

    def line(self, of: int) -> str:
        heads = f"{self.query_heads} query and {self.kv_heads} key-value heads"
        held = f"{self.experts} experts a layer, {heads}" if self.experts else heads
        cached = f"{self.cache_bytes_per_token} bytes of cache for a token"
        return f"  shard {self.rank} of {of}  {_mb(self.memory_bytes)}, {held}, {cached}"


@dataclass(frozen=True, slots=True)
class Blueprint:
    """`stored`: numbers of tensors by their type in the file, and `file_bytes` in all.
    `active_parameters`: what one token is multiplied with. `shards`: the first and the last of N."""

    path: str
    format: str
    architecture: str
    config: ModelConfig
    by_kind: dict[str, Size]
    active_parameters: int
    stored: dict[str, int]
    file_bytes: int
    tokenizer: str
    num_shards: int
    shards: tuple[ShardSize, ...]

    @property
    def total(self) -> Size:
        sizes = self.by_kind.values()
        return Size(sum(size.parameters for size in sizes), sum(size.memory_bytes for size in sizes))

    def lines(self) -> list[str]:
        """For people."""
        config, total = self.config, self.total
        stored = ", ".join(f"{count} {kind}" for kind, count in self.stored.items())
        ffn = f"a dense FFN of {config.ffn}"
        if config.num_experts:
            ffn = f"{config.num_experts} experts of {config.expert_ffn}, {config.active_experts} active"
        return [
            f"{self.path}: {self.format}, {self.architecture}",
            f"  file        {_mb(self.file_bytes)}; tensors: {stored}",
            f"  layers      {config.layers}, hidden {config.hidden}, {ffn}",
            f"  attention   {config.heads} query and {config.kv_heads} key-value heads of {config.head_dim}",
            f"  positions   {config.context_tokens} tokens, {_rope(config.rope)}",
            f"  tokenizer   {self.tokenizer}",
            f"  parameters  {_millions(total.parameters)}, {_millions(self.active_parameters)} active for a token",
            f"  memory      {_mb(total.memory_bytes)} in bfloat16:",
            *(
                f"    {kind:15} {_millions(s.parameters):>12} {_mb(s.memory_bytes):>12}"
                for kind, s in self.by_kind.items()
            ),
            *(shard.line(self.num_shards) for shard in self.shards),
        ]


def draw_blueprint(path: Path, *, shards: int, upcycle: bool = False) -> Blueprint:
    """Reads headers only. `upcycle`: as if a dense checkpoint were upcycled. Raises CheckpointError, OSError, and
    ValueError if the model cannot be upcycled or does not divide over the shards."""
    checkpoint = open_checkpoint(path)
    if upcycle and not checkpoint.config.num_experts:
        checkpoint = upcycle_dense(checkpoint)
    config = checkpoint.config
    model = _empty(checkpoint)
    by_kind = _by_kind(model)
    experts = by_kind["experts"].parameters if config.num_experts else 0
    idle = experts - experts * config.active_experts // max(1, config.num_experts)
    total = sum(size.parameters for size in by_kind.values())
    return Blueprint(
        str(path),
        *_described(path),
        config=config,
        by_kind=by_kind,
        active_parameters=total - idle,
        stored=_stored(path),
        file_bytes=_file_bytes(path),
        tokenizer=_tokenizer(path),
        num_shards=shards,
        shards=tuple(_shard(checkpoint, rank, shards) for rank in sorted({0, shards - 1})),
    )


def _empty(checkpoint: Checkpoint) -> Model:
    with torch.device("meta"):
        return Model(checkpoint.config)


def _by_kind(model: Model) -> dict[str, Size]:
    parameters: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        if name == "head.weight" and model.config.tied_embeddings:
            continue  # the embedding's own memory
        kind = next(kind for part, kind in _KINDS.items() if part in name)
        parameters[kind] += parameter.numel()
        memory[kind] += _memory_bytes(model, name, parameter)
    return {kind: Size(parameters[kind], memory[kind]) for kind in _KINDS.values() if kind in parameters}


def _memory_bytes(model: Model, name: str, parameter: nn.Parameter) -> int:
    dtype = torch.float32 if stays_float32(name, model.config) else _DTYPE
    return parameter.numel() * dtype.itemsize


def _shard(checkpoint: Checkpoint, rank: int, size: int) -> ShardSize:
    model = _empty(checkpoint)
    apply_sharding(model, _Rank(rank, size))
    config = model.config
    return ShardSize(
        rank,
        memory_bytes=sum(size.memory_bytes for size in _by_kind(model).values()),
        experts=max((len(layer.ffn.experts) for layer in model.layers if isinstance(layer.ffn, Moe)), default=0),
        query_heads=config.heads,
        kv_heads=config.kv_heads,
        cache_bytes_per_token=config.layers * 2 * config.kv_heads * config.head_dim * _DTYPE.itemsize,
    )


@dataclass(slots=True)
class _Rank:
    """A rank that has nothing to compute."""

    rank: int
    size: int

    def all_reduce(self, x: Tensor) -> Tensor:
        return x

    def all_gather(self, x: Tensor) -> list[Tensor]:
        return [x] * self.size


def _described(path: Path) -> tuple[str, str]:
    """Format and architecture, as the checkpoint names it."""
    if path.is_dir():
        return "safetensors", str(Keys.of(path / "config.json").require("model_type", str))
    return "GGUF", str(GgufFile(path).require("general.architecture", str))


def _stored(path: Path) -> dict[str, int]:
    if path.is_dir():
        kinds = Counter(tensor.dtype for tensor in open_tensors(path).values())
    else:
        file = GgufFile(path)
        kinds = Counter(file.rows(name)[0].name for name in file.tensors)
    return dict(kinds.most_common())


def _file_bytes(path: Path) -> int:
    files = {tensor.file.path for tensor in open_tensors(path).values()} if path.is_dir() else {str(path)}
    return sum(Path(file).stat().st_size for file in files)


def _tokenizer(path: Path) -> str:
    try:
        files = tokenizer_files(path)
    except CheckpointError as error:
        return f"cannot be used: {error}"
    kind = json.loads(files.spelling)["model"]["type"]
    template = "a" if files.chat_template else "no"
    return (
        f"{kind}, {len(files.silent)} control tokens, {len(files.eos_ids)} that end an answer, {template} chat template"
    )


def _rope(rope: Rope) -> str:
    scaled = "" if rope.scaling == "none" else f", {rope.scaling} x{rope.factor:g} from {rope.original_context_tokens}"
    return f"rotary base {rope.base:g}{scaled}"


def _millions(count: int) -> str:
    return f"{count / 1e6:,.1f} M"


def _mb(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
