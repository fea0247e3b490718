"""The processes that test_kills.py kills: the index's owner, the ingester, the client that publishes.

    python -m tests.ingest.kill_parts owner SOCKET FOLDER
    python -m tests.ingest.kill_parts ingester SOCKET BROKERS TOPIC GROUP
    python -m tests.ingest.kill_parts publisher BROKERS TOPIC FOLDER SEED POSTS NOW_MS

All parts are the real ones but the screen and the embedder, which would only take time.
"""

import asyncio
import ctypes
import hashlib
import pickle
import random
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ingest.cursor import CursorFile
from ingest.feed import KafkaFeed
from ingest.index_embedded import EmbeddedIndex
from ingest.loop import IngestLoop
from ingest.post import AccountChange, Author, Post, Removal
from ingest.sources.arrival import Arrival, SourceStats
from ingest.transfer import transfer

Change = Post | Removal | AccountChange
DIM = 16


def changes(seed: int, posts: int, now_ms: int) -> list[Change]:
    """Posts with their edits and removals, some twice and some too late, and the fates of a few accounts. Every change
    states its version, so that what must be left does not depend on the order."""
    rng = random.Random(seed)
    happenings: list[tuple[float, Change]] = []
    for number in range(posts):
        author, at = f"a{rng.randrange(posts // 50)}", number + rng.random()
        history: list[Change] = [_post(number, author, 0, now_ms)]
        history += [_post(number, author, edit, now_ms) for edit in range(1, rng.choice((1, 1, 1, 2, 3)))]
        if rng.random() < 0.15:
            history.append(Removal(f"t:{number}", (now_ms + 500 + rng.randrange(2000)) * 1000 + 7, if_newer=True))
        happenings += [(at + rng.expovariate(0.01), change) for change in history]
        if rng.random() < 0.05:
            happenings.append((at + rng.expovariate(0.001), rng.choice(history)))
    for account in range(0, posts // 50, 9):
        states = ("hidden", "active", "hidden", "deleted")[: 1 + account // 9 % 4]
        for step, state in enumerate(states):
            happenings.append((rng.uniform(0, posts), AccountChange("t", f"a{account}", state, now_ms * 1000 + step)))
    return [change for _, change in sorted(happenings, key=lambda happening: happening[0])]


def _post(number: int, author: str, edit: int, now_ms: int) -> Post:
    text = f"post {number} as of edit {edit}"
    version_us = (now_ms + edit * 1000) * 1000
    return Post(f"t:{number}", "t", version_us, text, now_ms, now_ms, Author(author, author, author), lang="en")


def left_of(given: Sequence[Change]) -> dict[str, str]:
    """Post id -> text of what must be found, read off the versions alone."""
    newest: dict[str, Post | Removal] = {}
    accounts: dict[str, list[AccountChange]] = defaultdict(list)
    for change in given:
        if isinstance(change, AccountChange):
            accounts[change.author_id].append(change)
            continue
        post_id = change.id if isinstance(change, Post) else change.post_id
        held = newest.get(post_id)
        if held is None or change.version_us >= held.version_us:
            newest[post_id] = change
    gone = {
        author
        for author, states in accounts.items()
        if max(states, key=lambda change: change.version_us).state != "active"
    }
    return {
        post_id: change.text
        for post_id, change in newest.items()
        if isinstance(change, Post) and change.author.id not in gone
    }


class Script:
    """A Source that tells the changes one by one; its cursor is how many it has told."""

    name = "script"

    def __init__(self, given: Sequence[Change]) -> None:
        self.stats = SourceStats()
        self._given = given

    async def arrivals(self, cursor: str | None) -> AsyncGenerator[Arrival, None]:
        for number in range(int(cursor or 0), len(self._given)):
            if number % 100 == 0:
                await asyncio.sleep(0)
            yield Arrival((self._given[number],), str(number + 1))


class RemoteStore:
    """An index owner at the other end of a socket. Raises OSError while it is gone."""

    def __init__(self, socket: str) -> None:
        self._socket = socket

    async def ask(self, method: str, *arguments: Any) -> Any:
        reader, writer = await asyncio.open_unix_connection(self._socket)
        try:
            writer.write(_frame((method, arguments)))
            size = int.from_bytes(await reader.readexactly(8))
            return pickle.loads(await reader.readexactly(size))
        except asyncio.IncompleteReadError as error:
            raise ConnectionError("the owner has gone") from error
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def apply(self, *arguments: Any) -> Any:
        return await self.ask("apply", *arguments)


class NoScreen:
    async def check_posts(self, texts: Sequence[str]) -> list[Any]:
        return [Passed(text) for text in texts]


class Passed:
    action = 0

    def __init__(self, text: str) -> None:
        self.text = text


class Hashes:
    """[n, DIM] unit rows."""

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        digests = [np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8)[:DIM] for text in texts]
        rows = np.array(digests, np.float64).reshape(-1, DIM) + 1
        unit: np.ndarray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return unit


class English:
    def detect(self, texts: Sequence[str]) -> list[str]:
        return ["en" for _ in texts]


async def own(socket: str, folder: str) -> None:
    index = EmbeddedIndex(Path(folder), DIM)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            size = int.from_bytes(await reader.readexactly(8))
            method, arguments = pickle.loads(await reader.readexactly(size))
            writer.write(_frame(await getattr(index, method)(*arguments)))
            await writer.drain()
        writer.close()

    await asyncio.to_thread(Path(socket).unlink, missing_ok=True)
    server = await asyncio.start_unix_server(serve, socket)
    await server.serve_forever()


async def ingest(socket: str, brokers: str, topic: str, group: str) -> None:
    feed = KafkaFeed(brokers, topic, group, session_timeout_s=2.0, stall_s=5.0)
    await IngestLoop(feed, NoScreen(), Hashes(), RemoteStore(socket), English()).run()


async def publish(brokers: str, topic: str, folder: str, seed: str, posts: str, now_ms: str) -> None:
    given = changes(int(seed), int(posts), int(now_ms))
    await transfer(Script(given), brokers, topic, CursorFile(Path(folder) / "cursor"))


def _frame(value: Any) -> bytes:
    packed = pickle.dumps(value)
    return len(packed).to_bytes(8) + packed


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # never outlives the test
    roles = {"owner": own, "ingester": ingest, "publisher": publish}
    asyncio.run(roles[sys.argv[1]](*sys.argv[2:]))
