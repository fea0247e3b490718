"""What a consumer sees of its answer: everything, once, in order; then the end or the error."""

import asyncio

import pytest

from model_runtime.request import Finished, GenerationFailed, GenerationRequest, Token
from model_runtime.streams import MAX_REPLAYS, Stream

A, B, END = Token(1, "a"), Token(2, "b"), Finished("stop", 3, 2)


@pytest.fixture
def stream() -> Stream:
    return Stream(GenerationRequest("x", (1, 2, 3)))


async def test_items_come_together_and_once(stream):
    stream.put(A)
    stream.put(B)
    assert await stream.take() == [A, B]
    stream.put(END)
    assert await stream.take() == [END]
    assert stream.generated == [1, 2] and stream.ended


async def test_a_consumer_that_waits_gets_the_first_item_at_once(stream):
    waiting = asyncio.create_task(stream.take())
    await asyncio.sleep(0)
    assert not waiting.done()
    stream.put(A)
    assert await waiting == [A]


async def test_an_error_comes_after_what_was_handed_out(stream):
    stream.put(A)
    stream.fail(GenerationFailed("gone"))
    assert await stream.take() == [A]
    with pytest.raises(GenerationFailed, match="gone"):
        await stream.take()


async def test_a_stream_survives_as_many_replays_as_promised(stream):
    for _ in range(MAX_REPLAYS):
        stream.sent = True
        stream.replay("a rank died")
        assert not stream.ended and not stream.sent
    stream.replay("a rank died")
    with pytest.raises(GenerationFailed, match="a rank died"):
        await stream.take()
