"""Who may use the embedder, and for how long."""

import asyncio
import threading

import numpy as np
import pytest

from ingest.embed_queue import QUIET_S, QUIET_TURN_S, TURN_S, EmbedQueue


class Recorder:
    """Vectors that say which text they are for; holds its first call until released."""

    def __init__(self):
        self.calls = []
        self.release = threading.Event()
        self.started = threading.Event()

    def embed(self, texts):
        self.calls.append(list(texts))
        self.started.set()
        assert self.release.wait(10)
        return np.array([[float(text)] for text in texts], dtype=np.float32).reshape(len(texts), 1)


async def test_a_question_waits_for_one_short_turn_of_ingest_at_most():
    recorder = Recorder()
    queue = EmbedQueue(recorder)
    ingest = asyncio.create_task(queue.embed([str(i) for i in range(200)], urgent=False))
    await asyncio.to_thread(recorder.started.wait)
    more = asyncio.create_task(queue.embed(["1000"], urgent=False))
    query = asyncio.create_task(queue.embed(["2000"], urgent=True))
    await asyncio.sleep(0)
    recorder.release.set()
    assert (await query).tolist() == [[2000]]
    assert (await more).tolist() == [[1000]]
    assert (await ingest)[:, 0].tolist() == [float(i) for i in range(200)]
    assert len(recorder.calls[0]) <= 100
    assert recorder.calls[1] == ["2000"]
    queue.close()


async def test_a_cancelled_wait_does_not_stop_the_others():
    recorder = Recorder()
    queue = EmbedQueue(recorder)
    running = asyncio.create_task(queue.embed(["1"], urgent=False))
    await asyncio.to_thread(recorder.started.wait)
    left, stays = (asyncio.create_task(queue.embed([text], urgent=True)) for text in "23")
    await asyncio.sleep(0)
    left.cancel()
    running.cancel()
    recorder.release.set()
    assert (await stays).tolist() == [[3]]
    assert (await queue.embed(["4"], urgent=False)).tolist() == [[4]]
    assert ["2"] not in recorder.calls
    queue.close()


async def test_a_turn_given_to_one_who_is_cancelled_in_that_moment_is_passed_on():
    recorder = Recorder()
    recorder.release.set()
    queue = EmbedQueue(recorder)
    first = asyncio.create_task(queue.embed(["1"], urgent=True))
    second = asyncio.create_task(queue.embed(["2"], urgent=True))
    third = asyncio.create_task(queue.embed(["3"], urgent=True))
    first.add_done_callback(lambda _: second.cancel())  # its turn has been set, it has not run yet
    assert (await third).tolist() == [[3]]
    assert (await first).tolist() == [[1]]
    with pytest.raises(asyncio.CancelledError):
        await second
    queue.close()


async def test_a_failing_model_fails_that_call_only():
    recorder = Recorder()
    recorder.release.set()
    queue = EmbedQueue(recorder)
    with pytest.raises(ValueError, match="not a number"):
        await queue.embed(["not a number"], urgent=True)
    assert (await queue.embed(["7"], urgent=True)).tolist() == [[7]]
    queue.close()


class Machine:
    """Embeds so many bytes a second, by its own clock."""

    def __init__(self, bytes_per_s):
        self.bytes_per_s, self.now_s, self.turns_s = bytes_per_s, 0.0, []

    def embed(self, texts):
        took_s = sum(map(len, texts)) / self.bytes_per_s
        self.now_s += took_s
        self.turns_s.append(took_s)
        return np.ones((len(texts), 1), dtype=np.float32)


@pytest.mark.parametrize("bytes_per_s", [20_000, 50_000, 100_000])
@pytest.mark.parametrize("is_asked", [False, True])
async def test_turns_of_ingest_are_short_while_people_ask_whatever_the_machine(bytes_per_s, is_asked):
    machine = Machine(bytes_per_s)
    queue = EmbedQueue(machine, now_s=lambda: machine.now_s)
    turns_s = []
    for _ in range(200):
        if is_asked:
            await queue.embed(["q"], urgent=True)
        before = len(machine.turns_s)
        await queue.embed(["x" * 100] * 10, urgent=False)
        turns_s += machine.turns_s[before:]
    for _ in range(10):
        before = len(machine.turns_s)
        await queue.embed(["x" * 100] * 100, urgent=False)
        if not is_asked:
            turns_s += machine.turns_s[before:]
    aim_s, last = (TURN_S if is_asked else QUIET_TURN_S), turns_s[-20:]
    assert max(last) <= 1.2 * aim_s and np.mean(last) > 0.5 * min(aim_s, 1000 / bytes_per_s)
    queue.close()


async def test_the_first_question_after_a_while_makes_turns_short_again():
    machine = Machine(50_000)
    queue = EmbedQueue(machine, now_s=lambda: machine.now_s)
    for _ in range(5):
        await queue.embed(["x" * 100] * 100, urgent=False)
    assert machine.turns_s[-2] > 2 * TURN_S
    await queue.embed(["q"], urgent=True)
    before = len(machine.turns_s)
    await queue.embed(["x" * 100] * 100, urgent=False)
    assert max(machine.turns_s[before:]) <= 1.2 * TURN_S
    machine.now_s += QUIET_S
    before = len(machine.turns_s)
    await queue.embed(["x" * 100] * 100, urgent=False)
    assert machine.turns_s[before] > 2 * TURN_S
    queue.close()


async def test_a_long_text_is_a_turn_by_itself_and_short_ones_are_not_too_many():
    machine = Machine(10**9)
    queue = EmbedQueue(machine, now_s=lambda: machine.now_s)
    rows = await queue.embed(["x" * 8000, "y" * 8000, *["z"] * 500], urgent=False)
    assert rows.shape == (502, 1) and len(machine.turns_s) >= 500 / 64
    assert (await queue.embed([], urgent=False)).shape == (0, 1)
    queue.close()


class Lengths:
    def embed(self, texts):
        return np.array([[float(len(text))] for text in texts], dtype=np.float32).reshape(len(texts), 1)


async def test_rows_come_back_in_the_order_of_the_texts():
    texts = ["storm " * (i % 7) for i in range(200)]
    queue = EmbedQueue(Lengths())
    for urgent in (False, True):
        assert (await queue.embed(texts, urgent=urgent))[:, 0].tolist() == [len(text) for text in texts]
    queue.close()
