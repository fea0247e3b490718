"""The group on a real Ray: the same answers over two shards as in one process, also when ranks are killed or hang.
In float32: in bfloat16 a near tie may fall differently when a token is computed in other company."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
import ray
import torch
from ray.util import placement_group_table

from model_runtime.collectives import Meeting, join
from model_runtime.engine import Engine, Submit
from model_runtime.group import WorkerGroup
from model_runtime.kv_cache import PagedCache
from model_runtime.load import load_model
from model_runtime.request import (
    Finished,
    GenerationFailed,
    GenerationRequest,
    PromptTooLong,
    QueueFull,
    Sampling,
    Token,
)
from model_runtime.scheduler import Limits
from model_runtime.settings import ModelSettings
from model_runtime.tokenizer import Tokenizer
from model_runtime.worker import NotPlaced

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS = Limits(running=3, waiting=2)
GREEDY = Sampling(max_tokens=32)
SEEDED = Sampling(max_tokens=32, temperature=0.8, top_p=0.9, seed=11)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    folder = tempfile.mkdtemp(prefix="gsw", dir="/tmp")  # a short path: unix sockets live below it
    os.environ["RAY_AUTH_MODE"] = "disabled"
    ray.init(address="local", num_cpus=2, include_dashboard=False, _temp_dir=folder, log_to_driver=False)
    yield
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def group(cluster, gguf_path) -> AsyncIterator[WorkerGroup]:
    group = WorkerGroup(ModelSettings(shards=2), gguf_path, limits=LIMITS, dtype="float32", timeout_s=5)
    await group.start()
    yield group
    await group.stop()


def question(group: WorkerGroup, text: str, sampling: Sampling = GREEDY) -> GenerationRequest:
    ids = group.card().tokenizer.render([("user", text)])
    return GenerationRequest(text, tuple(ids), sampling)


async def answer(group: WorkerGroup, request: GenerationRequest) -> list[Token | Finished]:
    return said([item async for items in group.generate(request) for item in items])


def said(items: list[Token | Finished]) -> list[Token | Finished]:
    """Without what depends on the company: how much of the prompt was cached, and so not computed by any expert."""
    end = items[-1]
    assert isinstance(end, Finished) and end.experts is not None
    computed = end.prompt_tokens - end.cached_tokens
    for layer in end.experts.tokens:
        assert sum(layer) >= 2 * computed, "each token of the prompt goes to two experts"
    return [*items[:-1], replace(end, cached_tokens=0, experts=None)]


def in_this_process(path: Path, requests: list[GenerationRequest]) -> list[list[Token | Finished]]:
    """The answers of the whole model on one device, one after the other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    model = load_model(path, dtype=torch.float32, device="cpu", upcycle=True)
    model.pack()
    meeting = Meeting(1, one_node=True, device=torch.device("cpu"), host="127.0.0.1")
    ranks = join(meeting.rendezvous, 0, torch.device("cpu"), timeout_s=5)
    cache = PagedCache(model.config, 64, torch.float32, "cpu")
    engine = Engine(model, cache, Tokenizer.from_checkpoint(path), ranks, model.config.context_tokens, LIMITS)
    answers = []
    for request in requests:
        engine.submit(Submit(request))
        items: list[Token | Finished] = []
        while not (items and isinstance(items[-1], Finished)):
            items += [item for _, item in engine.step()]
        answers.append(said(items))
    meeting.close()
    torch.set_num_threads(threads)
    return answers


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def expected(group, gguf_path) -> dict[str, list[Token | Finished]]:
    """By the text of the question."""
    requests = [question(group, "What is a river?"), question(group, "Name three birds.", SEEDED)]
    answers = await asyncio.to_thread(in_this_process, gguf_path, requests)
    return dict(zip([request.id for request in requests], answers, strict=True))


async def test_the_card_tells_what_is_served(group):
    card = group.card()
    assert (card.num_experts, card.active_experts, card.shards) == (8, 2, 2)
    assert card.vocab == 49152 and card.context_tokens > 1000
    assert group.is_running and len(group.places()) == 2
    group.check()


async def test_two_shards_answer_like_one_process(group, expected):
    requests = [question(group, "What is a river?"), question(group, "Name three birds.", SEEDED)]
    answers = await asyncio.gather(*[answer(group, request) for request in requests])
    assert answers == [expected["What is a river?"], expected["Name three birds."]]


async def test_what_the_experts_do_is_among_the_nodes_metrics(group):
    await answer(group, question(group, "What is a river?"))
    (node,) = ray.nodes()
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    by_layer: list[float] = []
    async with httpx.AsyncClient(trust_env=False) as client, asyncio.timeout(60):
        while not any(by_layer):  # 0 is what the gauges began with
            await asyncio.sleep(1)
            lines = (await client.get(url)).text.splitlines()
            by_layer = [float(line.split()[-1]) for line in lines if "groundswell_expert_imbalance{" in line]
    assert len(by_layer) == 30, "one a layer"
    assert all(1 <= imbalance <= 8 for imbalance in by_layer)


async def test_a_second_request_starts_and_ends_while_the_first_runs(group):
    order: list[str] = []

    async def follow(name: str, max_tokens: int, started: asyncio.Event) -> None:
        async with aclosing(group.generate(question(group, name, Sampling(max_tokens=max_tokens)))) as stream:
            async for items in stream:
                order.extend([name] * sum(isinstance(item, Token) for item in items))
                started.set()

    first_runs, second_runs = asyncio.Event(), asyncio.Event()
    first = asyncio.create_task(follow("Tell a long story about a storm.", 60, first_runs))
    await first_runs.wait()
    await follow("Tell a long story about a bridge.", 10, second_runs)
    assert not first.done()
    await first
    shared = order[order.index("Tell a long story about a bridge.") :][:16]
    assert 5 <= shared.count("Tell a long story about a bridge.") <= 11


async def test_closing_an_answer_lets_the_next_one_in(group):
    long = Sampling(max_tokens=400)
    requests = [question(group, f"Write a very long story about number {n}.", long) for n in range(4)]
    streams = [group.generate(request) for request in requests]
    for stream in streams[:3]:
        await anext(stream)
    waiting = asyncio.create_task(anext(streams[3]))
    await anext(streams[1])
    assert not waiting.done()
    await streams[0].aclose()
    assert isinstance((await waiting)[0], Token)
    for stream in streams[1:]:
        assert not isinstance((await anext(stream))[-1], Finished)
        await stream.aclose()


async def test_a_full_line_and_a_bad_request_are_refused_before_the_first_item(group):
    long = question(group, "Write a very long story.", Sampling(max_tokens=400))
    streams = [group.generate(long) for _ in range(LIMITS.running + LIMITS.waiting)]
    taken = [asyncio.create_task(anext(stream)) for stream in streams]
    await asyncio.wait(taken[: LIMITS.running])
    with pytest.raises(QueueFull):
        await answer(group, long)
    for task in taken:
        task.cancel()
    await asyncio.wait(taken)
    for stream in streams:
        await stream.aclose()
    limit = group.card().context_tokens
    with pytest.raises(PromptTooLong) as refused:
        await answer(group, GenerationRequest("long", (1,) * limit, Sampling(max_tokens=1)))
    assert (refused.value.length, refused.value.limit) == (limit + 1, limit)
    with pytest.raises(ValueError, match="vocabulary"):
        await answer(group, GenerationRequest("odd", (1, 10**9)))
    assert len(await answer(group, question(group, "Hi", Sampling(max_tokens=3)))) == 4


async def interrupted(
    group: WorkerGroup, request: GenerationRequest, interrupt: asyncio.Event
) -> list[Token | Finished]:
    """Sets `interrupt` once ten tokens have come."""
    items: list[Token | Finished] = []
    async with aclosing(group.generate(request)) as stream:
        async for more in stream:
            items += more
            if len(items) >= 10:
                interrupt.set()
    return said(items)


@pytest.mark.parametrize(("rank", "fate"), [(0, signal.SIGKILL), (1, signal.SIGKILL), (1, signal.SIGSTOP)])
async def test_answers_go_on_where_they_stopped_when_a_rank_is_gone(group, expected, rank, fate):
    """Four streams: two greedy ones, two that are sampled."""
    interrupts = [asyncio.Event() for _ in range(4)]
    requests = [question(group, "What is a river?"), question(group, "Name three birds.", SEEDED)] * 2
    running = [
        asyncio.create_task(interrupted(group, request, interrupt))
        for request, interrupt in zip(requests, interrupts, strict=True)
    ]
    await asyncio.gather(*[interrupt.wait() for interrupt in interrupts])
    before = group.places()
    os.kill(before[rank].pid, fate)
    while group.is_running:  # noqa: ASYNC110 - the group tells nobody when it starts again
        await asyncio.sleep(0.05)
    late = asyncio.create_task(answer(group, question(group, "What is a river?")))  # while nothing runs
    answers = await asyncio.gather(*running, late)
    assert answers == [expected[name] for name in ["What is a river?", "Name three birds."] * 2 + ["What is a river?"]]
    assert not {place.pid for place in before} & {place.pid for place in group.places()}
    await until_gone(*[place.pid for place in before])
    group.check()


async def until_gone(*pids: int) -> None:
    async with asyncio.timeout(20):
        while any(is_alive(pid) for pid in pids):  # noqa: ASYNC110 - a process of another's child
            await asyncio.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


async def test_a_group_that_has_no_room_says_so(cluster, gguf_path):
    group = WorkerGroup(ModelSettings(shards=64), gguf_path, place_timeout_s=0.5)
    with pytest.raises(NotPlaced, match="64 shards"):
        await group.start()


async def test_a_checkpoint_that_is_none_is_named_and_leaves_no_actor(cluster, tmp_path):
    (tmp_path / "broken.gguf").write_bytes(b"not a model")
    group = WorkerGroup(ModelSettings(shards=1), tmp_path / "broken.gguf")
    with pytest.raises(ValueError, match=r"broken\.gguf"):
        await group.start()
    left = [table["state"] for table in placement_group_table().values()]
    assert left.count("CREATED") == 1  # that of the group of this module


async def test_one_shard_works_and_stopping_ends_everything(cluster, gguf_path, expected):
    group = WorkerGroup(ModelSettings(shards=1), gguf_path, dtype="float32")
    await group.start()
    request = question(group, "What is a river?", Sampling(max_tokens=6))
    assert (await answer(group, request))[:6] == expected["What is a river?"][:6]
    (place,) = group.places()
    stream = group.generate(question(group, "Write a long story.", Sampling(max_tokens=400)))
    await anext(stream)
    await group.stop()
    with pytest.raises(GenerationFailed, match="stopped"):
        while True:
            await anext(stream)
    with pytest.raises(GenerationFailed, match="stopped"):
        await answer(group, request)
    await until_gone(place.pid)
