import asyncio
import logging
from typing import Any

import pytest
from scripted_chat import SCRIPT, ScriptedChat

from services.events import ChatRequest, Delta, Done, Failed, Message
from services.relay import ClientGone, Relay, until_gone

QUESTION = ChatRequest("chatcmpl-1", (Message("user", "hi"),))
DONE = Done("stop", 1, 1)


def relay(*script: Any) -> tuple[Relay, ScriptedChat]:
    chat = ScriptedChat(list(script))
    return Relay(chat.stream(QUESTION), "chatcmpl-1"), chat


async def drain(script: list[Any]) -> list[Any]:
    events = []
    subject, chat = relay(*script)
    async with subject:
        while not isinstance(event := await subject.next(5), Done | Failed):
            events.append(event)
    assert chat.closed.is_set()
    return [*events, event]


async def test_events_come_in_order():
    paced = [step for event in SCRIPT for step in (event, 0)]
    assert await drain(paced) == SCRIPT


async def test_deltas_that_wait_come_as_one():
    assert await drain([Delta("a"), Delta("b"), Delta("c"), DONE]) == [Delta("abc"), DONE]


async def test_silence_is_reported_and_costs_no_event():
    subject, _ = relay(0.05, Delta("late"), DONE)
    async with subject:
        assert await subject.next(0) is None
        assert await subject.next(5) == Delta("late")
        assert await subject.next(5) == DONE


async def test_an_exception_becomes_failed_and_its_words_stay_out_of_the_log(caplog: pytest.LogCaptureFixture):
    events = await drain([Delta("a"), RuntimeError("my secret is 4711")])
    assert isinstance(events[-1], Failed) and events[-1].status == 500
    assert "RuntimeError" in caplog.text and "4711" not in caplog.text and "4711" not in events[-1].message


async def test_a_chat_without_a_last_event_is_failed(caplog: pytest.LogCaptureFixture):
    assert isinstance((await drain([Delta("a")]))[-1], Failed)
    assert "without Done or Failed" in caplog.text


async def test_nothing_follows_the_last_event():
    assert await drain([DONE, Delta("more"), RuntimeError("late")]) == [DONE]


async def test_leaving_early_ends_the_chat():
    subject, chat = relay(Delta("a"), 3600)
    async with subject:
        assert await subject.next(5) == Delta("a")
    assert chat.closed.is_set() and not chat.completed


async def test_a_chat_may_clean_up_after_its_last_event():
    subject, chat = relay(DONE, 0.01)
    async with subject:
        assert await subject.next(5) == DONE
    assert chat.completed


async def test_deadlines_inside_a_chat_hold():
    """asyncio.timeout around a yield needs every step to run in one task."""

    async def stream():
        try:
            async with asyncio.timeout(0.05):
                yield Delta("a")
                await asyncio.sleep(3600)
        except TimeoutError:
            yield Failed(504, "server_error", "deadline", "too slow")

    async with Relay(stream(), "x") as subject:
        assert await subject.next(5) == Delta("a")
        event = await subject.next(5)
        assert isinstance(event, Failed) and event.code == "deadline"


async def test_a_client_that_leaves_cancels_the_work_and_waits_for_it():
    leave, cleaned = asyncio.Event(), []

    async def receive() -> dict[str, Any]:
        await leave.wait()
        return {"type": "http.disconnect"}

    async def work() -> None:
        try:
            leave.set()
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    with pytest.raises(ClientGone):
        await until_gone(receive, work())
    assert cleaned == [True]


async def test_work_that_ends_first_gives_its_result_or_raises():
    async def receive() -> dict[str, Any]:
        await asyncio.sleep(3600)
        raise AssertionError

    async def work(fails: bool) -> int:
        if fails:
            raise ValueError("x")
        return 7

    assert await until_gone(receive, work(False)) == 7
    with pytest.raises(ValueError):
        await until_gone(receive, work(True))


async def test_being_cancelled_from_outside_ends_the_chat_without_an_error_log(caplog: pytest.LogCaptureFixture):
    chat = ScriptedChat([Delta("a"), 3600])

    async def use() -> None:
        async with Relay(chat.stream(QUESTION), "x") as subject:
            while True:
                await subject.next(5)

    task = asyncio.create_task(use())
    await chat.started.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled() and chat.closed.is_set()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
