"""A vacuum makes a tier anew: without what was removed, with what was changed meanwhile, whatever dies."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ingest.index_edge import EdgeIndex
from ingest.index_edge_changes import Changes
from ingest.index_embedded import EmbeddedIndex
from ingest.index_generations import Generations
from ingest.index_tier import Tier
from ingest.index_vacuum import HOUR_MS, MAX_JOURNAL, MIN_ADDED, MIN_DEAD, is_due, vacuum
from ingest.index_wear import Wear
from ingest.post import AccountChange, Removal
from tests.ingest.index_parts import clear, everything, in_files, meaning, quick_folder, words
from tests.ingest.made import NOW_MS, passages

OLD_MS = NOW_MS - 5 * 24 * HOUR_MS


@pytest.fixture(scope="module")
def folder():
    with quick_folder() as path:
        yield path / "index"


@pytest.fixture(scope="module")
def shared(folder):
    index = EdgeIndex(folder, warm_days=30, clock=lambda: NOW_MS)
    yield index
    index.close()


@pytest.fixture
def index(shared):
    clear(shared)
    for tier in shared.tiers:
        tier.wear.begin()
        tier.wear.reset()
    return shared


def run(tier, between=lambda number: None):
    """`between` is called before every call on the owner's thread, with its number."""
    calls = 0

    async def on_owner(call, *arguments):
        nonlocal calls
        between(calls)
        calls += 1
        return call(*arguments)

    return asyncio.run(vacuum(tier, on_owner))


def fill(index, posts=300):
    for i in range(posts):
        ms = OLD_MS if i % 2 else NOW_MS
        index.apply(passages(f"p{i}", f"text number{i}", ms=ms, author=f"author{i % 7}"), [])
    while index.age(NOW_MS):
        pass


def contents(tier):
    records, _ = tier.page(None, 10_000)
    return {str(record.id): (record.payload, vectors_in(record)) for record in records}


def vectors_in(record):
    dense, terms = record.vector.get("dense", []), record.vector.get("bm25")
    return [round(x, 5) for x in dense], sorted(zip(terms.indices, terms.values, strict=True)) if terms else None


def test_the_words_of_a_removed_post_are_gone_from_the_files(index, folder):
    fill(index, 20)
    index.apply([*passages("a", "unmistakable"), *passages("b", "irrevocable", ms=OLD_MS)], [])
    index.apply(passages("c", "first draught"), [])
    while index.age(NOW_MS):
        pass
    index.apply(passages("c", "second draught", version_us=2), [Removal("a", 2), Removal("b", 2)])
    removed = {"unmistakable", "irrevocable", "first draught"}
    assert in_files(folder, *removed) == removed, "nothing to do"
    for tier in index.tiers:
        assert is_due(tier, NOW_MS + HOUR_MS)
        assert run(tier)
        assert not is_due(tier, NOW_MS + HOUR_MS)
    assert in_files(folder, *removed, "second draught") == {"second draught"}
    assert index.apply(passages("a", "unmistakable", version_us=2), []).stale == 1
    assert words(index, "second") == ["c"]


@pytest.mark.parametrize("kind", ["hot", "warm"])
def test_everything_else_is_there_as_it_was(index, kind):
    fill(index)
    index.apply([], [Removal("p7", 9), Removal("p8", 9)], [AccountChange("test", "author1", "hidden", 1)])
    (tier,) = (tier for tier in index.tiers if tier.kind == kind)
    before, found = contents(tier), words(index, "text", limit=500, since_ms=0)
    generation = tier.generations.current
    assert run(tier)
    assert contents(tier) == before
    # In any order: how rare a word is counts dead points too, until a vacuum takes them away.
    assert sorted(words(index, "text", limit=500, since_ms=0)) == sorted(found)
    assert tier.generations.current != generation
    assert not generation.exists()


@pytest.mark.parametrize("kind", ["hot", "warm"])
def test_changes_meanwhile_are_in_the_new_shard_and_are_found_at_once(index, kind):
    fill(index)
    (tier,) = (tier for tier in index.tiers if tier.kind == kind)

    def change(number):
        """Every kind of change, before, between and after the pages, some to posts that are read, some to others."""
        index.apply(passages(f"new{number}", f"fresh fresh{number}"), [Removal(f"p{number}", 5)])
        author = f"author{(20 + number) % 7}"
        index.apply(passages(f"p{20 + number}", f"edited{number}", version_us=5, author=author), [])
        check(number)
        if number == 2:
            index.apply([], [], [AccountChange("test", "author3", "hidden", 1)])
            index.apply([], [], [AccountChange("test", "author4", "deleted", 1)])
        changes.append(number)

    def check(number):
        assert words(index, f"fresh{number}") == [f"new{number}"]
        assert words(index, f"number{number}", since_ms=0) == []
        assert meaning(index, f"edited{number}") == ([] if (20 + number) % 7 in (3, 4) else [f"p{20 + number}"])

    changes = []
    assert run(tier, change)
    assert len(changes) > 5
    for number in changes:
        check(number)
    shown = {f"p{i}" for i in range(60, 300) if i % 7 not in (3, 4)}
    assert index.present([f"p{i}" for i in range(60, 300)]) == shown
    assert set(words(index, "text", limit=500, since_ms=0)) >= shown
    assert index.receipt("p4").reason == "deleted"


def test_a_vacuum_whose_process_dies_changes_nothing_and_can_be_repeated(index):
    fill(index, 200)
    before = contents(index.hot)

    def kill(number):
        if number == 1:
            children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
            (pid,) = (pid for pid in children if b"index_vacuum" in Path(f"/proc/{pid}/cmdline").read_bytes())
            os.kill(int(pid), signal.SIGKILL)

    generation = index.hot.generations.current
    assert not run(index.hot, kill)
    assert (contents(index.hot), index.hot.journal, index.hot.generations.current) == (before, None, generation)
    assert [path.name for path in index.hot.path.iterdir() if path.is_dir()] == [generation.name]
    assert run(index.hot)
    assert contents(index.hot) == before


def test_a_vacuum_is_put_off_when_too_much_changes(index):
    fill(index, 20)

    def change(number):
        if number == 1:
            index.hot.journal_points = MAX_JOURNAL + 1

    assert not run(index.hot, change)
    assert index.hot.journal is None
    assert words(index, "number2") == ["p2"]


def test_due_is_what_is_worn(index):
    hot, warm = index.tiers
    assert not is_due(hot, NOW_MS)
    hot.wear.dead = MIN_DEAD + 1
    assert is_due(hot, NOW_MS)
    hot.wear.dead, hot.wear.added = 0, MIN_ADDED + 1
    assert not is_due(hot, NOW_MS), "it has no graph"
    warm.wear.added = MIN_ADDED + 1
    assert is_due(warm, NOW_MS)


def test_removed_text_is_remembered_over_a_kill(index):
    index.apply(passages("a", "text"), [])
    assert json.loads((index.hot.path / "wear.json").read_text())["removed_ms"] is None
    index.apply([], [Removal("a", 2)])
    assert json.loads((index.hot.path / "wear.json").read_text())["removed_ms"] == NOW_MS
    assert not is_due(index.hot, NOW_MS + HOUR_MS - 1)
    assert is_due(index.hot, NOW_MS + HOUR_MS)


def test_what_is_removed_while_a_vacuum_runs_is_gone_with_the_next(index_folder):
    """It was handed over before, so it is in the new files, too."""
    index = EdgeIndex(index_folder, clock=lambda: NOW_MS)
    index.apply(passages("late", "overlooked"), [])

    def remove(number):
        if number == 2:  # after the only page
            index.apply([], [Removal("late", 2)])

    assert run(index.hot, remove)
    assert in_files(index_folder, "overlooked") == {"overlooked"}, "nothing to do"
    assert is_due(index.hot, NOW_MS + HOUR_MS)
    assert run(index.hot)
    assert in_files(index_folder, "overlooked") == set()
    assert not is_due(index.hot, NOW_MS + HOUR_MS)
    index.close()


class Dying(Tier):
    def upsert(self, points):
        super().upsert(points)
        if points:
            raise SystemExit("killed")


def test_removed_text_is_known_although_a_kill_came_right_after_the_removal(index_folder):
    index = EdgeIndex(index_folder, clock=lambda: NOW_MS)
    index.apply(passages("a", "text"), [])
    index.close()
    dying = Dying(index_folder / "hot", 384, "hot")
    with pytest.raises(SystemExit, match="killed"):
        Changes(dying, None, lambda: NOW_MS).slice([], [Removal("a", 2)])
    dying._shard.close()
    again = EdgeIndex(index_folder, clock=lambda: NOW_MS)
    again.apply([], [Removal("a", 2)])
    assert is_due(again.hot, NOW_MS + HOUR_MS)
    again.close()


def test_wear_that_cannot_be_read_counts_as_removed_text(tmp_path):
    """A power cut may leave the file empty; the index opens all the same."""
    (tmp_path / "wear.json").write_text("")
    assert Wear(tmp_path / "wear.json").removed_ms == 0


def test_a_generation_that_cannot_be_swept_away_stops_nothing_and_is_never_used_again(tmp_path):
    generations = Generations(tmp_path)
    (tmp_path / "1").mkdir()
    generations.switch(tmp_path / "1")
    (tmp_path / "2").write_text("rmtree fails on it")
    generations.sweep()
    assert generations.next() == tmp_path / "3"
    (tmp_path / "2").unlink()
    (tmp_path / "2").mkdir()
    generations.sweep()
    assert not (tmp_path / "2").exists()


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from ingest.index_edge import EdgeIndex
from ingest.index_vacuum import vacuum
from ingest.post import Removal
from tests.ingest.made import NOW_MS, passages

index = EdgeIndex(Path(sys.argv[1]), clock=lambda: NOW_MS)
for i in range(200):
    index.apply(passages(f"p{i}", f"number{i}"), [])
index.apply([], [Removal(f"p{i}", 2) for i in range(0, 200, 10)])
at, calls = int(sys.argv[2]), 0

async def on_owner(call, *arguments):
    global calls
    calls += 1
    print(call.__name__, flush=True)
    index.apply(passages(f"new{calls}", f"fresh{calls}"), [Removal(f"p{calls}", 2)])
    if calls == at:
        os.kill(os.getpid(), signal.SIGKILL)
    answer = call(*arguments)
    if -calls == at:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer

done = asyncio.run(vacuum(index.hot, on_owner))
print("done", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
STEPS = ["_start", "_page", "_page", "open_shard", "_replay", "_stop", "done"]


@pytest.mark.parametrize("at", [-1, -3, 4, -4, 5, -5, -6, 99])
def test_killed_at_any_step_the_folder_opens_with_everything_in_it(index_folder, at):
    command = [sys.executable, "-c", KILLED, str(index_folder), str(at)]
    killed = subprocess.run(command, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert killed.stdout.split() == STEPS[: abs(at)]
    calls = min(abs(at), 6)
    index = EdgeIndex(index_folder, clock=lambda: NOW_MS)
    removed = {*range(0, 200, 10), *range(1, calls + 1)}
    assert index.present([f"p{i}" for i in range(200)]) == {f"p{i}" for i in range(200) if i not in removed}
    for i in range(1, calls + 1):
        assert (words(index, f"fresh{i}"), words(index, f"number{i}")) == ([f"new{i}"], [])
    assert words(index, "number100") == []
    assert len(everything(index.hot)) == 200 + calls
    assert len([path for path in index.hot.path.iterdir() if path.is_dir()]) == 1, "what is left over is swept away"
    index.close()


def test_the_child_dies_with_its_parent(index_folder):
    """Killed while the child waits for the next page."""
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(index_folder), "2"], capture_output=True, text=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    until = time.monotonic() + 20
    while children := vacuums_of(index_folder):
        assert time.monotonic() < until, children
        time.sleep(0.05)


def vacuums_of(folder):
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if b"ingest.index_vacuum" in line and os.fsencode(folder) in line:
            found.append(path.parent.name)
    return found


async def test_a_vacuum_of_the_embedded_index_lets_searches_and_changes_through(index_folder):
    index = await asyncio.to_thread(EmbeddedIndex, index_folder, clock=lambda: NOW_MS)
    await index.apply([p for i in range(300) for p in passages(f"p{i}", f"number{i}")], [])
    await index.apply([], [Removal("p0", 2)])
    maintaining = asyncio.create_task(index.maintain(NOW_MS + 2 * HOUR_MS))
    searched = 0
    while not maintaining.done():
        await index.apply(passages(f"new{searched}", f"fresh{searched}"), [])
        assert await index.present([f"new{searched}", "p0", "p1"]) == {f"new{searched}", "p1"}
        searched += 1
        await asyncio.sleep(0.01)
    await maintaining
    assert searched > 5
    assert index.tiers[0].generations.current.name == "2"
    assert len(await index.present([f"new{i}" for i in range(searched)])) == searched
    await index.close()


async def test_a_vacuum_that_is_cancelled_at_any_moment_leaves_everything(index_folder):
    index = await asyncio.to_thread(EmbeddedIndex, index_folder, warm_days=0, clock=lambda: NOW_MS)
    ids = [f"p{i}" for i in range(300)]
    await index.apply([p for i in ids for p in passages(i, i)], [])
    (tier,) = index.tiers
    for calls in (1, 2, 4, 5, 6):
        vacuuming = asyncio.create_task(counted(index, tier, calls))
        with pytest.raises(asyncio.CancelledError):
            await vacuuming
        await index.apply(passages(f"late{calls}", "late"), [])
        assert await index.present(ids) == set(ids)
        assert tier.journal is None
        assert [path for path in tier.path.iterdir() if path.is_dir()] == [tier.generations.current]
    await index.close()
    again = EdgeIndex(index_folder, clock=lambda: NOW_MS)
    assert len(again.present([*ids, *(f"late{calls}" for calls in (1, 2, 4, 5, 6))])) == 305
    again.close()


async def counted(index, tier, calls):
    """Cancelled while the call of that number is on the owner's thread."""
    left = calls

    async def on_owner(call, *arguments):
        nonlocal left
        left -= 1
        if left == 0:
            asyncio.get_running_loop().call_soon(task.cancel)
        return await index._run(call, *arguments)

    task = asyncio.current_task()
    await vacuum(tier, on_owner)
