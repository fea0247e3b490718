"""ShardWorker: a Ray actor that holds one shard of the model on one device and computes as one rank. Ranks: all actors
of a group, placed, loaded and ended together. Knows no requests beyond handing them to the engine."""

import asyncio
import logging
import os
import threading
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
import torch
from ray.exceptions import RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from model_runtime.boosts import Boosts
from model_runtime.cache_size import affordable_blocks
from model_runtime.card import ModelCard
from model_runtime.channel import Channel, ChannelAddress, ChannelClosed, GroupChannel, Listener
from model_runtime.collectives import Meeting, Rendezvous, join
from model_runtime.engine import Cancel, Engine, Output, follow
from model_runtime.expert_metrics import ExpertMetrics
from model_runtime.kv_cache import BLOCK_TOKENS, PagedCache, Span, Step
from model_runtime.load import load_model
from model_runtime.scheduler import CPU_LIMITS, GPU_LIMITS, Limits
from model_runtime.settings import ModelSettings
from model_runtime.tokenizer import Tokenizer

JOIN_TIMEOUT_S = 120.0
ACCEPT_TIMEOUT_S = 30.0
SEND_TIMEOUT_S = 30.0
LOAD_TIMEOUT_S = 600.0
END_TIMEOUT_S = 10.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank has come to be."""

    node_id: str
    host: str
    pid: int
    fast_bfloat16: bool


@dataclass(frozen=True, slots=True)
class Shard:
    """What one rank is to load, and with whom to compute."""

    path: Path
    settings: ModelSettings
    rank: int
    rendezvous: Rendezvous
    dtype: str  # "bfloat16", "float32"
    ranks_on_node: int
    timeout_s: float


class ShardWorker:
    """Called in order: place, (rank 0: open), load, warm_up, run. Each blocks until it is done, `run` until the group
    ends."""

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        self._meeting: Meeting | None = None
        self._listener: Listener | None = None

    def place(self) -> Place:
        context = ray.get_runtime_context()
        return Place(
            context.get_node_id(),
            ray.util.get_node_ip_address(),  # type: ignore[no-untyped-call]
            os.getpid(),
            self._device.type == "cuda" or torch.cpu._is_avx512_bf16_supported(),
        )

    def open(
        self, size: int, one_node: bool, meeting_host: str, channel_host: str
    ) -> tuple[Rendezvous, ChannelAddress]:
        """Rank 0: where the ranks meet, and where the group reaches their leader."""
        self._meeting = Meeting(size, one_node=one_node, device=self._device, host=meeting_host)
        self._listener = Listener(channel_host)
        return self._meeting.rendezvous, self._listener.address

    def load(self, shard: Shard) -> tuple[ModelCard, int]:
        """The card, and the number of cache blocks that fit beside this shard.

        Raises CheckpointError or OSError for the file, ValueError if it does not divide, CollectiveTimeout."""
        if self._device.type == "cpu":
            torch.set_num_threads(max(1, _cores() // shard.ranks_on_node))
        self._ranks = join(shard.rendezvous, shard.rank, self._device, shard.timeout_s, JOIN_TIMEOUT_S)
        if self._meeting is not None:
            self._meeting.close()
        self._dtype = getattr(torch, shard.dtype)
        settings = shard.settings
        self._model = load_model(
            shard.path,
            dtype=self._dtype,
            device=self._device,
            upcycle=settings.upcycle,
            quantize=settings.quantize,
            collective=self._ranks,
        )
        config = self._model.config
        self._tokenizer = Tokenizer.from_checkpoint(shard.path)
        self._boosts = Boosts.from_file(settings.boosts_file, config.num_experts) if settings.boosts_file else None
        card = ModelCard(
            name=shard.path.stem,
            file=shard.path.name,
            context_tokens=config.context_tokens,
            vocab=config.vocab,
            num_experts=config.num_experts,
            active_experts=config.active_experts,
            shards=shard.rendezvous.size,
            dtype=shard.dtype,
            tokenizer=self._tokenizer,
        )
        return card, affordable_blocks(config, self._dtype, self._device, shard.ranks_on_node)

    def warm_up(self) -> None:
        """A prompt and a next token, together with all ranks, once all have loaded: the first request shall not pay for
        what torch prepares once."""
        cache = PagedCache(self._model.config, 1, self._dtype, self._device)
        self._model.forward(Step((0,) * 8, (Span((0,), 0, 8),)), cache)
        self._model.forward(Step((0,), (Span((0,), 8, 1),)), cache)

    def run(self, num_blocks: int, limits: Limits) -> None:
        """Until the group closes the channel. Raises CollectiveTimeout when a peer is gone, ChannelClosed when the
        group takes no more outputs."""
        cache = PagedCache(self._model.config, num_blocks, self._dtype, self._device)
        if self._listener is None:
            follow(self._model, cache, self._ranks)
            return
        context_tokens = self._model.config.context_tokens
        engine = Engine(self._model, cache, self._tokenizer, self._ranks, context_tokens, limits, self._boosts)
        channel = self._listener.accept(ACCEPT_TIMEOUT_S, SEND_TIMEOUT_S)
        threading.Thread(target=_obey, args=(channel, engine), name="requests", daemon=True).start()
        metrics = ExpertMetrics(engine.experts) if engine.experts is not None else None

        def deliver(outputs: list[Output]) -> None:
            channel.send(outputs)
            if metrics is not None:
                metrics.update()

        engine.lead(deliver)


def _obey(channel: Channel, engine: Engine) -> None:
    """Hands the group's requests to the engine until the group is gone, and then ends the engine."""
    try:
        while True:
            command = channel.receive()
            if isinstance(command, Cancel):
                engine.cancel(command.id)
            else:
                engine.submit(command)
    except ChannelClosed:
        logger.info("the group has closed the channel")
    finally:
        engine.stop()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class NotPlaced(RuntimeError):
    """The cluster has no room for the group."""

    def __init__(self, shards: int, bundle: dict[str, float], timeout_s: float) -> None:
        super().__init__(shards, bundle, timeout_s)
        self.shards, self.bundle, self.timeout_s = shards, bundle, timeout_s

    def __str__(self) -> str:
        return f"the cluster had no room for {self.shards} shards of {self.bundle} within {self.timeout_s} s"


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a group. `limits` None: those of the device. `dtype` None: bfloat16 if all devices are fast at it,
    else float32. `timeout_s`: how long a step may take, and how long a rank may keep its peers waiting within one.
    `load_timeout_s`: how long the actors may take to start and to load."""

    settings: ModelSettings
    path: Path
    limits: Limits | None
    dtype: str | None
    timeout_s: float
    place_timeout_s: float
    load_timeout_s: float = LOAD_TIMEOUT_S


class Ranks:
    """One generation of shard actors: placed together, ended together."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        shards = launch.settings.shards
        self._on_gpus = ray.cluster_resources().get("GPU", 0) >= shards  # type: ignore[no-untyped-call]
        self.limits = launch.limits or (GPU_LIMITS if self._on_gpus else CPU_LIMITS)
        self._bundle = {"GPU": 1.0, "CPU": 1.0} if self._on_gpus else {"CPU": 0.1}
        self._placement: PlacementGroup = placement_group([self._bundle] * shards, strategy=launch.settings.placement)
        self._actors: list[Any] = []
        self.places: tuple[Place, ...] = ()
        self.runs: list[asyncio.Future[Any]] = []
        self.card: ModelCard
        self.channel: GroupChannel

    @classmethod
    async def start(cls, launch: Launch) -> "Ranks":
        """Raises NotPlaced, TimeoutError when an actor did not start or load in time, what loading raised (see
        ShardWorker.load), or RayError when an actor died."""
        ranks = cls(launch)
        try:
            await ranks._place()
            async with asyncio.timeout(launch.load_timeout_s):
                await ranks._load()
        except BaseException as error:  # also when cancelled: no actor is left behind
            await ranks.end()
            if isinstance(error, RayTaskError):
                raise error.cause from error
            raise
        return ranks

    async def _place(self) -> None:
        launch = self._launch
        if not await asyncio.to_thread(self._placement.wait, launch.place_timeout_s):
            raise NotPlaced(launch.settings.shards, self._bundle, launch.place_timeout_s)
        for rank in range(launch.settings.shards):
            worker = ray.remote(ShardWorker).options(
                num_cpus=self._bundle["CPU"],
                num_gpus=self._bundle.get("GPU", 0),
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._placement, rank),
            )
            self._actors.append(worker.remote("cuda" if self._on_gpus else "cpu"))

    async def _load(self) -> None:
        launch = self._launch
        places = self.places = tuple(await asyncio.gather(*[actor.place.remote() for actor in self._actors]))
        on_node = Counter(place.node_id for place in places)
        near = places[0].node_id == ray.get_runtime_context().get_node_id()
        rendezvous, address = await self._actors[0].open.remote(
            size=len(places),
            one_node=len(on_node) == 1,
            meeting_host="127.0.0.1" if len(on_node) == 1 else places[0].host,
            channel_host="127.0.0.1" if near else places[0].host,
        )
        dtype = launch.dtype or ("bfloat16" if all(place.fast_bfloat16 for place in places) else "float32")
        shards = [
            Shard(launch.path, launch.settings, rank, rendezvous, dtype, on_node[place.node_id], launch.timeout_s)
            for rank, place in enumerate(places)
        ]
        loads = [actor.load.remote(shard) for actor, shard in zip(self._actors, shards, strict=True)]
        loaded = await asyncio.gather(*loads)
        await asyncio.gather(*[actor.warm_up.remote() for actor in self._actors])
        num_blocks = min(blocks for _, blocks in loaded)
        card: ModelCard = loaded[0][0]
        self.card = replace(card, context_tokens=min(card.context_tokens, num_blocks * BLOCK_TOKENS))
        self.runs = [asyncio.wrap_future(actor.run.remote(num_blocks, self.limits).future()) for actor in self._actors]
        self.channel = await GroupChannel.connect(address)

    async def end(self) -> None:
        """Returns when the actors are dead, as far as Ray knows."""
        if hasattr(self, "channel"):
            self.channel.close()
        for actor in self._actors:
            ray.kill(actor)
        remove_placement_group(self._placement)
        last_calls = [asyncio.wrap_future(actor.place.remote().future()) for actor in self._actors]
        if last_calls:
            dead = asyncio.gather(*last_calls, *self.runs, return_exceptions=True)
            await asyncio.wait([dead], timeout=END_TIMEOUT_S)
