"""A source -> the topic: in order, nothing lost, and where to go on kept only once the broker has everything before it.

Knows no network's protocol.
"""

import asyncio
from contextlib import aclosing, suppress
from typing import Protocol

from ingest.outbox import Outbox, Transferred
from ingest.publish import BrokerUnreachable, Publisher
from ingest.sources.arrival import Source

SAVE_EVERY_S = 1.0
LOOK_EVERY_S = 3.0


class Cursors(Protocol):
    def load(self) -> str | None: ...
    def save(self, cursor: str) -> None: ...


async def transfer(
    source: Source, brokers: str, topic: str, cursors: Cursors, counts: Transferred | None = None
) -> Transferred:
    """Returns when the source has ended and all of it is acknowledged; cancel it at any time. While the broker cannot
    be reached it waits, holding what is not acknowledged, and then sends that again. `counts` can be watched meanwhile.

    Raises SourceEnded once what came before is acknowledged, OSError when a cursor cannot be read or written.
    """
    cursor = await asyncio.to_thread(cursors.load)
    publisher = Publisher(brokers, topic)
    outbox = Outbox(publisher, counts or Transferred(), cursor)
    reading = asyncio.create_task(_read(source, cursor, outbox))
    parts = (outbox.deliver(), _save(cursors, outbox), _keep_topic(publisher))
    working = {asyncio.create_task(part) for part in parts}
    try:
        await asyncio.wait({reading, *working}, return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            working.add(asyncio.create_task(outbox.drained()))
            await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in {reading, *working}:
            task.cancel()
        await asyncio.wait({reading, *working})
        outbox.settle()
        if outbox.unsaved is not None:  # also on the way out of a cancellation
            cursors.save(outbox.unsaved)
        await outbox.close()
    for task in (*working, reading):
        if not task.cancelled():
            task.result()  # raises what has gone wrong
    return outbox.counts


async def _read(source: Source, cursor: str | None, outbox: Outbox) -> None:
    async with aclosing(source.arrivals(cursor)) as arrivals:
        async for arrival in arrivals:
            await outbox.put(arrival)


async def _save(cursors: Cursors, outbox: Outbox) -> None:
    while True:
        await asyncio.sleep(SAVE_EVERY_S)
        if (cursor := outbox.unsaved) is not None:
            await asyncio.to_thread(cursors.save, cursor)
            outbox.saved = cursor


async def _keep_topic(publisher: Publisher) -> None:
    """The embedded broker forgets the topic when it starts again, and then acknowledges what it drops."""
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        with suppress(BrokerUnreachable):
            await publisher.ensure_topic()
