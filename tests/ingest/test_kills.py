"""Any process may be killed at any moment: no change is lost, none is undone (DESIGN.md, promise 6)."""

import asyncio
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.ingest.kill_parts import RemoteStore, changes, left_of

ROOT = Path(__file__).resolve().parents[2]
POSTS = 20_000
KILLS = 3  # of each
PATIENCE_S = 300.0


class Cast:
    """The processes by role. What has ended by a signal is started again; what has failed by itself fails the test."""

    def __init__(self, roles: dict[str, list[str]]) -> None:
        self.roles = roles
        self.running = {role: self._start(role) for role in roles}

    def _start(self, role: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.ingest.kill_parts", role.split("-")[0], *self.roles[role]]
        return subprocess.Popen(command, cwd=ROOT)

    def kill(self, role: str) -> None:
        process = self.running[role]
        if process.poll() is None:
            process.kill()
            process.wait()
            self.running[role] = self._start(role)

    def look(self) -> None:
        for role, process in self.running.items():
            assert process.poll() in (None, 0), f"{role} ended with {process.returncode}"

    def end(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()


@contextmanager
def cast(roles: dict[str, list[str]]) -> Iterator[Cast]:
    players = Cast(roles)
    try:
        yield players
    finally:
        players.end()


async def found(store: RemoteStore, ids: list[str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for start in range(0, len(ids), 500):
        matches = await store.ask("fetch", ids[start : start + 500])
        texts |= {post_id: match.text for post_id, match in matches.items()}
    return texts


async def until_true(store: RemoteStore, ids: list[str], right: dict[str, str], players: Cast) -> None:
    """Once the index holds exactly the right set."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        players.look()
        try:
            if (held := await found(store, ids)) == right:
                return
        except OSError:
            held = {}
        wrong = {post_id for post_id in ids if held.get(post_id) != right.get(post_id)}
        assert time.monotonic() < deadline, f"{len(wrong)} posts are wrong, e.g. {sorted(wrong)[:3]}"
        await asyncio.sleep(0.5)


async def test_kill_9_of_any_process_loses_nothing_and_brings_nothing_back(brokers, topic, tmp_path):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    now_ms = time.time_ns() // 1_000_000 - 60_000
    given = changes(seed, POSTS, now_ms)
    right, ids = left_of(given), [f"t:{number}" for number in range(POSTS)]
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="gsk") as short:
        socket = f"{short}/index"
        store = RemoteStore(socket)
        roles = {
            "owner": [socket, str(tmp_path / "index")],
            "ingester": [socket, brokers, topic, "first"],
            "publisher": [brokers, topic, str(tmp_path), str(seed), str(POSTS), str(now_ms)],
        }
        with cast(roles) as players:
            for role in rng.sample([*roles] * KILLS, k=len(roles) * KILLS):
                await asyncio.sleep(rng.uniform(0.5, 3.0))
                players.kill(role)
                players.look()
            await until_true(store, ids, right, players)

            # The whole topic again, by another group: nothing may change, nor come back for a moment.
            players.roles["ingester-again"] = [socket, brokers, topic, "second"]
            players.running["ingester-again"] = players._start("ingester-again")
            while not await _has_read_everything(brokers, topic, "second"):
                players.look()
                await asyncio.sleep(0.5)
            assert await found(store, ids) == right


async def _has_read_everything(brokers: str, topic: str, group: str) -> bool:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(bootstrap_servers=brokers, group_id=group, enable_auto_commit=False)
    await consumer.start()
    try:
        partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or range(4)]
        ends = await consumer.end_offsets(partitions)
        return all([(await consumer.committed(one) or 0) >= ends[one] for one in partitions])
    finally:
        await consumer.stop()
