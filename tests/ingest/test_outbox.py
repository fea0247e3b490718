"""Arrivals wait for their acknowledgement, in order, through every failure of the broker."""

import asyncio
import random
from asyncio import Future
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from ingest_parts import until

from ingest.outbox import WINDOW, Outbox, Transferred
from ingest.payload import Refused
from ingest.post import AccountChange, Author, Malformed, Post, Removal
from ingest.publish import BrokerUnreachable
from ingest.sources.arrival import Arrival


def post(number: int) -> Post:
    return Post(f"t:{number}", "t", number, "text", 0, 0, Author(""))


def arrival(number: int, *records: Any) -> Arrival:
    return Arrival(records or (post(number),), str(number))


class ScriptedSender:
    """A broker that takes records (`log`), acknowledges when it is told to, and can be away."""

    def __init__(self) -> None:
        self.log: list[Any] = []  # what the broker has taken, repeats included
        self.waiting: list[tuple[Any, Future[None]]] = []
        self.is_away, self.is_started, self.starts = False, False, 0
        self.acknowledges_at_once = True
        self.refused: set[str] = set()

    async def start(self) -> None:
        assert not self.is_started
        if self.is_away:
            raise BrokerUnreachable("b", "away")
        self.is_started, self.starts = True, self.starts + 1

    async def send(self, record: Any) -> tuple[Any, Future[None]]:
        assert self.is_started
        if self.is_away:
            raise BrokerUnreachable("b", "away")
        if getattr(record, "id", "") in self.refused:
            raise Refused("created_at")
        acknowledgement: Future[None] = asyncio.get_running_loop().create_future()
        acknowledgement.add_done_callback(lambda done: done.cancelled() or done.exception())
        if self.acknowledges_at_once:
            self.log.append(record)
            acknowledgement.set_result(None)
        else:
            self.waiting.append((record, acknowledgement))
        return record, acknowledgement

    async def acknowledged(self, sent: Future[None]) -> None:
        await sent

    async def close(self) -> None:
        self.is_started = False

    def take(self, count: int) -> None:
        """Acknowledges the oldest."""
        for record, acknowledgement in self.waiting[:count]:
            self.log.append(record)
            acknowledgement.set_result(None)
        del self.waiting[:count]

    def lose(self) -> None:
        """The connection, with what is on its way."""
        for _, acknowledgement in self.waiting:
            acknowledgement.set_exception(BrokerUnreachable("b", "lost"))
        self.waiting.clear()


@asynccontextmanager
async def delivering(sender: ScriptedSender) -> AsyncIterator[Outbox]:
    outbox = Outbox(sender, Transferred(), None)
    delivery = asyncio.create_task(outbox.deliver())
    try:
        yield outbox
        assert not delivery.done()
    finally:
        delivery.cancel()
        await asyncio.wait([delivery])


async def test_a_cursor_moves_once_everything_before_it_is_acknowledged() -> None:
    sender = ScriptedSender()
    sender.acknowledges_at_once = False
    async with delivering(sender) as outbox:
        await until(lambda: sender.is_started)
        await outbox.put(arrival(1, post(1), post(2)))
        await outbox.put(arrival(2))
        assert len(sender.waiting) == 3 and outbox.unsaved is None
        sender.take(1)
        await asyncio.sleep(0.01)
        assert outbox.unsaved is None  # half of an arrival
        sender.take(1)
        await until(lambda: outbox.unsaved == "1")
        outbox.saved = "1"
        assert outbox.unsaved is None
        sender.take(1)
        await outbox.drained()
        assert outbox.unsaved == "2" and outbox.counts == Transferred(3, fault="")


async def test_a_later_acknowledgement_does_not_pass_an_earlier_one() -> None:
    """Two partitions: the second record is there, the first is not."""
    sender = ScriptedSender()
    sender.acknowledges_at_once = False
    async with delivering(sender) as outbox:
        await until(lambda: sender.is_started)
        await outbox.put(arrival(1))
        await outbox.put(arrival(2))
        sender.waiting[1][1].set_result(None)
        await asyncio.sleep(0.01)
        outbox.settle()
        assert outbox.unsaved is None
        sender.waiting[0][1].set_result(None)
        await outbox.drained()
        assert outbox.unsaved == "2"


async def test_an_arrival_without_records_or_cursor_is_no_obstacle() -> None:
    sender = ScriptedSender()
    async with delivering(sender) as outbox:
        await outbox.put(Arrival((), "7"))
        await outbox.put(Arrival((post(1),), None))
        await outbox.drained()
        assert (outbox.unsaved, sender.log) == ("7", [post(1)])


async def test_what_cannot_be_sent_is_counted_and_passed() -> None:
    sender = ScriptedSender()
    sender.refused = {"t:2"}
    records = (post(1), post(2), Malformed("json"), Removal("t:1", 5), AccountChange("t", "ana", "hidden", 5))
    async with delivering(sender) as outbox:
        await outbox.put(arrival(1, *records))
        await outbox.drained()
        assert outbox.counts == Transferred(1, 1, 1, Counter(created_at=1), "")
        assert outbox.unsaved == "1"


async def test_a_broker_that_is_away_is_waited_for_and_nothing_more_is_read() -> None:
    sender = ScriptedSender()
    sender.is_away = True
    async with delivering(sender) as outbox:
        for number in range(WINDOW):
            await outbox.put(arrival(number))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await outbox.put(arrival(WINDOW))
        assert outbox.counts.fault == "away" and outbox.unsaved is None
        sender.is_away = False
        await outbox.put(arrival(WINDOW))
        await outbox.drained()
        assert sender.log == [post(number) for number in range(WINDOW + 1)]
        assert outbox.counts.fault == ""


async def test_what_was_lost_on_the_way_is_sent_again_with_everything_after_it() -> None:
    sender = ScriptedSender()
    sender.acknowledges_at_once = False
    async with delivering(sender) as outbox:
        await until(lambda: sender.is_started)
        for number in range(5):
            await outbox.put(arrival(number))
        sender.take(2)
        await until(lambda: outbox.unsaved == "1")
        sender.waiting[1][1].set_result(None)  # number 3 is there already: it comes twice
        del sender.waiting[1]
        sender.acknowledges_at_once = True
        sender.lose()
        await outbox.drained()
        assert sender.log == [post(number) for number in (0, 1, 2, 3, 4)]
        assert (sender.starts, outbox.unsaved, outbox.counts.posts) == (2, "4", 5)


async def test_a_broker_that_goes_in_the_middle_of_an_arrival_gets_all_of_it_later() -> None:
    sender = ScriptedSender()
    async with delivering(sender) as outbox:
        await until(lambda: sender.is_started)
        sender.is_away = True
        await outbox.put(arrival(1, post(1), post(2)))
        await until(lambda: outbox.counts.fault)
        sender.is_away = False
        await outbox.drained()
        assert sender.log == [post(1), post(2)] and outbox.counts.posts == 2


@pytest.mark.parametrize("seed", range(3))
async def test_through_any_faults_nothing_is_lost_and_the_last_word_stands(seed: int) -> None:
    """At least once, and of the last sending of each record in order: what a reader of one key ends with is right."""
    rng = random.Random(seed)
    sender = ScriptedSender()
    sender.acknowledges_at_once = False
    cursors: list[int] = []
    async with delivering(sender) as outbox:

        async def make_trouble() -> None:
            while True:
                await asyncio.sleep(0)
                fault = rng.random()
                if fault < 0.02:
                    sender.lose()
                elif fault < 0.04:
                    sender.is_away = not sender.is_away
                elif not sender.is_away:
                    sender.take(rng.randrange(4))
                if outbox.unsaved is not None:
                    outbox.saved = outbox.unsaved
                    cursors.append(int(outbox.saved))
                    taken = {record.id for record in sender.log}
                    assert taken >= {f"t:{number}" for number in range(cursors[-1] + 1)}

        trouble = asyncio.create_task(make_trouble())
        for number in range(300):
            await outbox.put(arrival(number))
        while len(cursors) == 0 or cursors[-1] < 299:
            sender.is_away = False
            await asyncio.sleep(0.001)
            assert not trouble.done() or trouble.result() is None
        trouble.cancel()
    last = {record.id: position for position, record in enumerate(sender.log)}
    assert list(last) == [f"t:{number}" for number in range(300)]  # first seen in order
    assert cursors == sorted(cursors)
