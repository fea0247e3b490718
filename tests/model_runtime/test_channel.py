"""The line between the group and rank 0: in order, whole, only for who knows the secret, and its end is seen."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from model_runtime.channel import Channel, ChannelClosed, GroupChannel, Listener

BIG = {"tokens": list(range(200_000))}


@pytest.fixture
async def ends():
    listener = Listener("127.0.0.1")
    accepting = asyncio.create_task(asyncio.to_thread(listener.accept, 10.0, 5.0))
    group = await GroupChannel.connect(listener.address)
    rank: Channel = await accepting
    yield group, rank
    group.close()
    rank.close()


async def test_values_arrive_whole_and_in_order_both_ways(ends):
    group, rank = ends
    for value in (1, BIG, "last"):
        group.send(value)
    assert [await asyncio.to_thread(rank.receive) for _ in range(3)] == [1, BIG, "last"]
    sending = asyncio.create_task(asyncio.to_thread(lambda: [rank.send(value) for value in (BIG, [], 3)]))
    assert [await group.receive() for _ in range(3)] == [BIG, [], 3]
    await sending


async def test_each_side_sees_the_other_go(ends):
    group, rank = ends
    rank.close()
    with pytest.raises(ChannelClosed):
        await group.receive()
    group.send("lost, and no error: the watch sees the end")


async def test_rank_0_sees_the_group_go(ends):
    group, rank = ends
    group.close()
    with pytest.raises(ChannelClosed):
        await asyncio.to_thread(rank.receive)


async def test_a_group_that_takes_nothing_is_gone_in_the_end():
    listener = Listener("127.0.0.1")
    with ThreadPoolExecutor(1) as threads:
        accepting = threads.submit(listener.accept, 10.0, 0.1)
        group = await GroupChannel.connect(listener.address)
        rank = await asyncio.wrap_future(accepting)
        with pytest.raises(ChannelClosed):
            await asyncio.to_thread(lambda: [rank.send(bytes(1 << 20)) for _ in range(200)])
    group.close()
    rank.close()


async def test_a_stranger_is_not_let_in():
    listener = Listener("127.0.0.1")
    accepting = asyncio.create_task(asyncio.to_thread(listener.accept, 10.0, 5.0))
    stranger = await GroupChannel.connect(replace(listener.address, secret=bytes(32)))
    silent = await GroupChannel.connect(replace(listener.address, secret=b""))
    silent.close()
    with pytest.raises(ChannelClosed):
        await stranger.receive()
    group = await GroupChannel.connect(listener.address)
    rank = await accepting
    group.send("hello")
    assert await asyncio.to_thread(rank.receive) == "hello"
    for end in (stranger, group, rank):
        end.close()


async def test_nobody_calls():
    with pytest.raises(ChannelClosed, match="did not call"):
        await asyncio.to_thread(Listener("127.0.0.1").accept, 0.05, 1.0)


def test_the_secret_is_not_shown():
    listener = Listener("127.0.0.1")
    assert "secret" not in repr(listener.address)
    with pytest.raises(ChannelClosed):
        listener.accept(0.01, 1.0)
