"""The ingest loop: what a batch leaves in the index, and that nothing is lost when a part fails."""

import asyncio
import itertools
import logging
import re
from collections.abc import Sequence
from typing import Any

import pytest
from ingest_parts import until
from running_loop import Running, ingested, post, records

from ingest.post import Author


async def test_posts_become_passages() -> None:
    author = {"id": "a", "handle": "ana", "name": "Ana"}
    running = await ingested(records(post("t:1", "one", author=author), post("t:2", "two")))
    assert running.index.texts == {"t:1": "one", "t:2": "two"}
    first = running.index.passages[0]
    assert (first.number, first.text, first.vector) == (0, "one", (1.0, 3.0))
    assert first.post.author.name == "Ana" and first.post.received_ms == 1_800_000_000_000
    stats = running.loop.stats()
    assert (stats.records, stats.posts, stats.removals, stats.healthy, stats.reason) == (2, 2, 0, True, "")
    assert stats.last_applied_ms == 1_900_000_000_000


BATCHES: list[tuple[list[Any], dict[str, str]]] = [
    ([post("t:1", "old", 1), post("t:1", "new", 2)], {"t:1": "new"}),
    ([post("t:1", "new", 2), post("t:1", "old", 1)], {"t:1": "new"}),  # T5
    ([post("t:1", "first", 1), post("t:1", "second", 1)], {"t:1": "second"}),
    ([post("t:1", "text", 1), ("t:1", 2)], {}),
    ([("t:1", 2), post("t:1", "text", 1)], {}),  # T6
    ([("t:1", 2), post("t:1", "text", 2)], {}),
    ([("t:1", 1), post("t:1", "back", 2)], {"t:1": "back"}),
    ([post("t:1", "text", 3), ("t:1", 1), post("t:1", "late", 2)], {"t:1": "text"}),  # a late deletion of version 1
    ([post("t:1", "text", 10**10), ("t:1", None), post("t:1", "late", 10**10)], {}),  # whatever is there, it goes
    ([post("t:1", "old", 1), ("t:1", 2), post("t:1", "back", 3), post("t:1", "late", 2)], {"t:1": "back"}),
    ([post("t:1", "old", 1), post("t:1", "", 2)], {}),
    ([post("t:1", "new", 2), post("t:1", "", 1)], {"t:1": "new"}),
    ([post("t:1", "old", 1), post("t:1", "bad", 2)], {}),
    ([post("t:1", "bad", 1), post("t:1", "good", 2)], {"t:1": "good"}),
    ([post("t:1", "good", 2), post("t:1", "bad", 1)], {"t:1": "good"}),
    ([post("t:1", "text", 1), post("t:1", "text", 1, consent={"indexable": False})], {}),
    ([post("t:1", "old", 1), post("t:1", "nan", 2)], {}),
    ([("t:none", 1), ("t:none", None)], {}),  # T2
]


@pytest.mark.parametrize(("batch", "found"), BATCHES)
async def test_what_is_found_after_a_batch_and_after_the_same_records_one_by_one(
    batch: list[Any], found: dict[str, str]
) -> None:
    whole = await ingested(records(*batch))
    assert whole.index.texts == found
    one_by_one = await ingested(*([record] for record in records(*batch)))
    assert one_by_one.index.texts == found


@pytest.mark.parametrize(("batch", "found"), BATCHES)
async def test_a_batch_delivered_again_changes_nothing(batch: list[Any], found: dict[str, str]) -> None:
    twice = await ingested(records(*batch), records(*batch))
    assert twice.index.texts == found


@pytest.mark.parametrize(
    "order", list(itertools.permutations([post("t:1", "a", 1), post("t:1", "b", 2), post("t:1", "c", 3)]))
)
async def test_edits_in_any_order_end_with_the_newest(order: Sequence[Any]) -> None:
    assert (await ingested(records(*order))).index.texts == {"t:1": "c"}


async def test_nothing_leaves_that_has_not_passed_the_screen() -> None:
    shy = {"name": "Ana secret", "handle": "ana"}
    running = await ingested(records(post("t:1", "my secret", author=shy), post("t:2", "x", author={"name": "bad"})))
    first, second = running.index.passages
    assert (first.text, first.post.text, first.post.author.name) == ("my [secret]", "my [secret]", "Ana [secret]")
    assert (second.post.author.name, running.index.texts["t:2"]) == ("", "x")
    assert running.loop.stats().rewritten == 1


async def test_the_byline_is_shown_as_the_screen_allows() -> None:
    author = {"id": "secret id", "handle": "ana secret", "name": "Ana"}
    told = post("t:1", "one", author=author, url="https://ex.am/?q=sec%72et")
    hidden = post("t:2", "two", author={"id": "bad", "handle": "bad"}, url="https://ex.am/b%2561d")
    plain = {"author": {"id": "7", "handle": "ana.example", "name": "Ana"}, "url": "https://ex.am/1?a=%20"}
    running = await ingested(records(told, hidden, post("t:3", "three", **plain)), records(told | {"id": "t:4"}))
    first, second, third, again = (passage.post for passage in running.index.passages)
    assert (first.author.handle, first.author.name, first.url) == ("ana [secret]", "Ana", "")
    assert (second.author.handle, second.url) == ("", "")
    assert re.fullmatch("author-[a-z2-7]{26}", first.author.id) and first.author.id == again.author.id
    assert second.author.id not in (first.author.id, "bad", "")
    assert (third.author, third.url) == (Author("7", "ana.example", "Ana"), "https://ex.am/1?a=%20")


async def test_a_batch_of_long_posts_goes_out_in_many_calls() -> None:
    """Each within the part's timeout, and only the one that failed is made again."""
    texts = [f"{number} " + "One sentence of several words. " * 300 for number in range(20)]
    running = Running(records(*(post(f"t:{number}", text) for number, text in enumerate(texts))))
    running.embedder.fail_at = 3
    await running.until_committed()
    asked, embedded = running.screen.asked, running.embedder.asked
    assert [text for call in asked for text in call] == texts
    for calls, most_texts, most_characters in ((asked, 64, 20_000), (embedded, 256, 60_000)):
        for call in calls:
            assert len(call) <= most_texts and sum(map(len, call)) <= most_characters
    pieces = [piece for call in embedded for piece in call]
    assert pieces == [passage.text for passage in running.index.passages] and len(embedded) > 2
    assert running.loop.stats().retries == 1


async def test_a_batch_of_many_posts_goes_out_in_many_calls() -> None:
    running = await ingested(records(*(post(f"t:{number}", f"text {number}") for number in range(150))))
    assert [len(call) for call in running.screen.asked] == [64, 64, 22]
    assert [len(call) for call in running.embedder.asked] == [150]
    assert running.index.texts == {f"t:{number}": f"text {number}" for number in range(150)}


async def test_a_blocked_post_takes_its_older_version_away() -> None:
    running = await ingested(records(post("t:1", "good", 1)), records(post("t:1", "bad", 2)))
    assert running.index.texts == {}
    stats = running.loop.stats()
    assert (stats.blocked, stats.removals) == (1, 1)


async def test_a_long_post_is_several_passages() -> None:
    running = await ingested(records(post("t:1", "One sentence of several words. " * 100)))
    passages = running.index.passages
    assert len(passages) > 1 and [passage.number for passage in passages] == list(range(len(passages)))
    assert running.loop.stats().posts == 1


async def test_malformed_records_are_set_aside_counted_and_passed(caplog: pytest.LogCaptureFixture) -> None:
    """T1: the offset moves on; the log names the place and never the content."""
    caplog.set_level(logging.DEBUG)
    batch = records(
        b"not json: private words", b"", post("t:1", "one"), post("", "private words"), post("t:2", "two", mood=1)
    )
    running = await ingested(batch)
    assert running.index.texts == {"t:1": "one", "t:2": "two"}
    assert running.feed.aside == [(0, "json"), (1, "null"), (3, "id")]
    stats = running.loop.stats()
    assert stats.malformed == {"json": 1, "null": 1, "id": 1} and stats.dropped_fields == {"mood": 1}
    assert "json, topic posts, partition 0, offset 0" in caplog.text and "private" not in caplog.text


async def test_a_flood_of_field_names_is_counted_under_one() -> None:
    names = {f"field{number}": 1 for number in range(500)}
    dropped = (await ingested(records(post("t:1", "one", **names)))).loop.stats().dropped_fields
    assert sum(dropped.values()) == 500 and len(dropped) <= 201 and dropped["(others)"] == 300


@pytest.mark.parametrize("part", ["screen", "embedder", "index", "feed"])
async def test_a_part_that_fails_is_asked_again_until_it_works(part: str) -> None:
    running = Running(records(post("t:1", "one"), b"bad json", ("t:9", 1)), records(post("t:2", "two")))
    getattr(running, part).failures = 9
    await running.until_committed()
    assert running.index.texts == {"t:1": "one", "t:2": "two"}
    assert running.pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    label = {"feed": "dead letters"}.get(part, part)
    assert set(running.unhealthy) == {f"{label}: Down"}
    stats = running.loop.stats()
    assert (stats.retries, stats.healthy, stats.posts) == (9, True, 2)


async def test_nothing_is_committed_before_it_is_in_the_index() -> None:
    running = Running(records(post("t:1", "one")))
    running.index.failures = 10**9
    task = asyncio.create_task(running.loop.run())
    await until(lambda: running.pauses)
    assert not running.feed.committed and not running.loop.stats().healthy
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not running.feed.committed


async def test_too_few_answers_are_a_failure() -> None:
    """A screen that answers for fewer texts must not shift verdicts from one post to the next."""
    running = Running(records(post("t:1", "bad"), post("t:2", "fine")))
    whole, answers = running.screen.check_posts, []

    async def first_one_short(texts: Sequence[str]) -> Any:
        answers.append(await whole(texts))
        return answers[-1][1:] if len(answers) == 1 else answers[-1]

    running.screen.check_posts = first_one_short  # type: ignore[method-assign]
    await running.until_committed()
    assert running.index.texts == {"t:2": "fine"} and len(answers) == 2


async def test_an_unhealthy_feed_is_an_unhealthy_loop() -> None:
    running = Running(records(post("t:1", "one")))
    running.feed.fault, running.feed.lag_records = "the broker has not answered for 7 s", 12
    stats = running.loop.stats()
    assert (stats.healthy, stats.reason, stats.lag_records) == (False, "the broker has not answered for 7 s", 12)
