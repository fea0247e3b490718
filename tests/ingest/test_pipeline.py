"""The stages of the ingest loop overlap, keep the order, and hold no more than they may."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest
from ingest_parts import FakeIndex, until
from running_loop import Running, account, ingested, post, records

from ingest.feed_batch import FeedRecord
from ingest.loop import LANE_BYTES, LANE_RECORDS, STALL_S, IngestStalled

ANA = {"author": {"id": "ana"}}


async def test_while_one_batch_is_embedded_the_next_is_screened_and_the_one_before_applied() -> None:
    running = Running()
    gates = running.screen.gate, running.embedder.gate, running.index.gate
    for gate in gates:
        gate.shut()
    task = asyncio.create_task(running.loop.run())
    for number, (screens, embeds) in enumerate([(1, 1), (1, 0), (0, 0)]):
        running.feed.push(records(post(f"t:{number}", f"text {number}")))
        await running.screen.gate.let(screens)
        await running.embedder.gate.let(embeds)
        await until(lambda number=number: sum(gate.begun for gate in gates) == (3, 5, 6)[number])
    assert [gate.begun for gate in gates] == [3, 2, 1] and not running.index.calls
    for gate in gates:
        await gate.let()
    await until(lambda: len(running.feed.committed) == 3)
    assert running.feed.committed == running.feed.batches
    assert list(running.index.texts) == ["t:0", "t:1", "t:2"]
    await running.feed.close()
    await task


async def test_what_waits_together_is_worked_on_together_and_committed_in_order() -> None:
    """Small calls while posts trickle in, large ones in a backlog."""
    running = Running(records(post("t:0", "text 0")))
    running.embedder.gate.shut()
    task = asyncio.create_task(running.loop.run())
    await until(lambda: running.embedder.gate.begun)
    for number in range(1, 40):
        running.feed.push(records(post(f"t:{number}", f"text {number}"), first=number))
    await until(lambda: len(running.screen.asked) > 1 and running.feed.handed_over == 40)
    await running.embedder.gate.let()
    await until(lambda: len(running.feed.committed) == 40)
    assert running.feed.committed == running.feed.batches
    assert len(running.embedder.asked) <= 4 and running.loop.stats().posts == 40
    await running.feed.close()
    await task


async def test_a_removal_overtakes_the_posts_before_it() -> None:
    """T18, X: gone at once, though older batches still wait for the embedder; a later version comes back."""
    running = Running(records(post("t:1", "one", 1, **ANA), post("t:2", "two", 1), post("t:3", "three", 1)))
    task = asyncio.create_task(running.loop.run())
    await until(lambda: len(running.index.texts) == 3)
    running.embedder.gate.shut()
    running.feed.push(records(post("t:2", "two again", 4), post("t:4", "four", 1), post("t:5", "five", 1, **ANA)))
    await until(lambda: running.embedder.gate.begun == 2)
    running.feed.push(records(("t:3", 2), ("t:2", 3), ("t:4", None), post("t:3", "", 2)))
    await until(lambda: set(running.index.texts) == {"t:1", "t:2"})  # not t:2, of which a newer version is on its way
    running.feed.push(records(account("ana", "hidden", 1)))  # T19
    await until(lambda: set(running.index.texts) == {"t:2"})
    assert len(running.feed.committed) == 1
    await running.embedder.gate.let()
    await until(lambda: len(running.feed.committed) == 4)
    assert running.index.texts == {"t:2": "two again"}
    running.feed.push(records(account("ana", "active", 2), post("t:3", "three again", 3)))
    await until(lambda: len(running.feed.committed) == 5)
    assert running.index.texts == {"t:1": "one", "t:2": "two again", "t:3": "three again", "t:5": "five"}
    running.feed.push(records(account("ana", "deleted", 3), account("ana", "active", 4), post("t:6", "six", 9, **ANA)))
    await until(lambda: len(running.feed.committed) == 6)
    assert running.index.texts == {"t:2": "two again", "t:3": "three again"}
    await running.feed.close()
    await task


@pytest.mark.parametrize(("count", "of_batch", "size"), [(400, 20, 10), (80, 4, 100_000)])
async def test_an_index_that_does_not_answer_stops_the_reading(count: int, of_batch: int, size: int) -> None:
    """Bounded in records and in bytes: five stages and four lanes hold what one lane may, and a batch each."""
    padding = [{"x": "y" * 1000}] * (size // 1000)
    topic = [
        records(*(post(f"t:{number}:{i}", "text", padding=padding) for i in range(of_batch))) for number in range(count)
    ]
    running = Running(*topic)
    running.index.gate.shut()
    task = asyncio.create_task(running.loop.run())
    seen: list[int] = []
    while len(seen) < 100 or len(set(seen[-100:])) > 1:  # until it stands still
        await asyncio.sleep(0.005)
        seen.append(running.feed.handed_over)
    stats = running.loop.stats()
    assert stats.records_in_flight == running.feed.handed_over * of_batch < count * of_batch
    assert stats.records_in_flight <= 9 * LANE_RECORDS + of_batch
    assert stats.bytes_in_flight <= 9 * (LANE_BYTES + of_batch * size)
    assert stats.oldest_unapplied_ms == 100_000_000_000 and not running.feed.committed
    await running.index.gate.let()
    await until(lambda: len(running.feed.committed) == count)
    stats = running.loop.stats()
    assert (stats.records_in_flight, stats.bytes_in_flight, stats.oldest_unapplied_ms) == (0, 0, None)
    assert len(running.index.texts) == count * of_batch
    await running.feed.close()
    await task


async def test_it_is_stalled_when_what_was_read_is_not_finished_for_long() -> None:
    running = Running(records(post("t:1", "one")))
    task = asyncio.create_task(running.loop.run())
    await until(lambda: running.feed.committed)
    running.now_s += 10 * STALL_S
    running.loop.check()  # nothing waits
    running.index.gate.shut()
    running.feed.push(records(post("t:2", "two")))
    await until(lambda: running.index.gate.begun == 2)
    running.now_s += STALL_S - 1
    running.loop.check()
    running.now_s += 2
    with pytest.raises(IngestStalled, match="no batch was finished for 121 s"):
        running.loop.check()
    await running.index.gate.let()
    await until(lambda: len(running.feed.committed) == 2)
    running.loop.check()
    running.feed.stalled = RuntimeError("the feed is stalled")
    with pytest.raises(RuntimeError, match="the feed is stalled"):
        running.loop.check()
    await running.feed.close()
    await task


async def test_a_dead_letter_topic_that_is_down_is_a_stall_too() -> None:
    running = Running(records(b"no json"))
    running.feed.failures = 10**9
    task = asyncio.create_task(running.loop.run())
    await until(lambda: running.pauses)
    running.now_s += STALL_S + 1
    with pytest.raises(IngestStalled, match="dead letters: Down"):
        running.loop.check()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


Record = dict[str, Any] | bytes | tuple[str, int | None]


def many_records(rng: random.Random, count: int) -> tuple[list[Record], dict[str, str]]:
    """Edits, removals, accounts and poison in any order, and what must be found in the end: of each post, its newest
    version, unless that has nothing to show or its account is not active."""
    made: list[Record] = []
    newest: dict[str, tuple[int, str | None]] = {}
    states = {f"a{number}": rng.choice(["active", "hidden", "deleted"]) for number in range(40)}
    for author, state in states.items():
        made.append(account(author, state, 2))
        made.append(account(author, rng.choice(["active", "hidden"]), 1))
    for number in range((count - len(made)) // 4):
        post_id, author = f"t:{number}", f"a{rng.randrange(200)}"
        versions: list[tuple[int, str | None]] = []
        for edit in range(4):
            text = rng.choice([f"text {number}, {edit}", f"text {number}, {edit}", "bad", "", "\u200b", None])
            versions.append((edit, text))
            made.append((post_id, edit) if text is None else post(post_id, text, edit, author={"id": author}))
        shown = versions[-1][1]
        is_found = shown not in (None, "bad", "", "\u200b") and states.get(author, "active") == "active"
        if is_found:
            newest[post_id] = versions[-1]
    made += [b"poison", b"{}"] * 20
    rng.shuffle(made)
    return made, {post_id: str(text) for post_id, (_, text) in newest.items()}


def in_batches(rng: random.Random, made: Sequence[Record]) -> list[list[FeedRecord]]:
    batches, start = [], 0
    while start < len(made):
        size = rng.choice([1, 2, 5, 64, 256])
        batches.append(records(*made[start : start + size], first=start))
        start += size
    return batches


async def test_ten_thousand_records_in_any_order_with_failing_parts_leave_exactly_the_right_set_twice_over() -> None:
    """T5, T6, T13: cancelled and started again where it had not committed, and then all of it once more."""
    rng = random.Random(20260704)
    made, expected = many_records(rng, 10_000)
    index = FakeIndex()
    for _ in range(2):
        batches = in_batches(rng, made)
        poison, committed = 0, 0
        while committed < len(batches):
            running = Running(*batches[committed:], index=index)
            for part in (running.screen, running.embedder, running.index):
                part.shaky = random.Random(rng.random())
            task = asyncio.create_task(running.loop.run())
            stop_at = min(rng.choice([1, 10, 100]), len(running.feed.batches))
            while len(running.feed.committed) < stop_at:  # noqa: ASYNC110 - each step of the loop counts
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            done = [list(batch.records) for batch in running.feed.committed]
            assert done == batches[committed : committed + len(done)]
            committed += len(done)
            poison += len(running.feed.aside)
        assert index.texts == expected
        assert poison >= 40
    assert len(expected) > 700


async def test_a_repost_without_a_text_is_neither_screened_as_text_nor_embedded() -> None:
    repost = post("t:2", "", repost_of="t:1", author={"name": "Ana secret"})
    running = await ingested(records(post("t:1", "one"), repost))
    assert running.embedder.asked == [["one"]] and running.screen.asked == [["one", "Ana secret"]]
    passage = running.index.passages[-1]
    assert (passage.post.id, passage.number, passage.text, passage.vector) == ("t:2", 0, "", ())
    assert passage.post.author.name == "Ana [secret]"
    assert running.index.texts == {"t:1": "one"} and running.index.reposts == {"t:2": "t:1"}


async def test_a_language_is_looked_for_where_the_source_gives_none() -> None:
    given = post("t:1", "one", lang="de"), post("t:2", "two secret"), post("t:3", "bad"), post("t:4", "two secret")
    running = await ingested(records(*given))
    assert {passage.post.id: passage.post.lang for passage in running.index.passages} == {
        "t:1": "de",
        "t:2": "xx",
        "t:4": "xx",
    }
    assert running.languages.asked == ["two [secret]", "two [secret]"]  # and nothing that was blocked
    assert running.loop.stats().languages == {"xx": 2}


async def test_rates_and_counts() -> None:
    running = Running(records(*(post(f"t:{number}", "text") for number in range(30)), b"{", account("ana", "hidden")))
    running.now_s += 5
    await running.until_committed()
    stats = running.loop.stats()
    assert (stats.records, stats.dead_letters, stats.account_changes) == (32, 1, 1)
    assert (stats.records_per_s, stats.posts_per_s, stats.posts_per_s_minute) == (6.4, 6.0, 6.0)
    running.now_s += 20
    stats = running.loop.stats()
    assert (stats.records_per_s, stats.posts_per_s, stats.posts_per_s_minute) == (0.0, 0.0, 1.2)
