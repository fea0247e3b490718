"""What becomes of a deployment's faults on this side of its handle."""

import asyncio
import pickle
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, RayTaskError

from ingest.ask import Ask
from ingest.index_server_calls import IndexUnavailable
from ingest.retrieve import Found
from safety.screen import Screen
from safety.verdict import Action, Surface, Verdict
from services.remote import RemoteIndex, RemoteRetriever, RemoteScreen, Unavailable

Answer = Callable[[Sequence[str], Surface], Awaitable[list[Verdict]]]


class Brittle:
    """A layer that raises on texts that say "boom"."""

    name = "brittle"

    def examine(self, seen: Any, surface: Surface) -> list[Any]:
        if "boom" in seen.text:
            raise ValueError("boom")
        return []


def screen_of(answer: Answer, timeout_s: float = 10.0) -> RemoteScreen:
    """Over a handle as Serve's: `handle.check_many.remote(...)` gives something to await."""
    handle: Any = SimpleNamespace(check_many=SimpleNamespace(remote=answer))
    return RemoteScreen(handle, timeout_s)


async def brittle(texts: Sequence[str], surface: Surface) -> list[Verdict]:
    return Screen([Brittle()]).check_many(texts, surface)


async def raising_in_the_call(texts: Sequence[str], surface: Surface) -> list[Verdict]:
    raise RayTaskError("check_many", "trace", ValueError("fault"))  # type: ignore[no-untyped-call]


async def dead(texts: Sequence[str], surface: Surface) -> list[Verdict]:
    raise ActorDiedError


async def one_short(texts: Sequence[str], surface: Surface) -> list[Verdict]:
    return [Verdict(Action.ALLOW, text) for text in texts[1:]]


async def silent(texts: Sequence[str], surface: Surface) -> list[Verdict]:
    await asyncio.Event().wait()
    return []


async def test_a_text_on_which_a_layer_fails_is_a_block_and_does_not_hold_up_ingest() -> None:
    verdicts = await screen_of(brittle).check_posts(["fine", "boom", "fine too"])
    assert [verdict.action for verdict in verdicts] == [Action.ALLOW, Action.BLOCK, Action.ALLOW]
    assert [verdict.text for verdict in verdicts] == ["fine", "", "fine too"]


@pytest.mark.parametrize("answer", [raising_in_the_call, dead, one_short, silent])
async def test_a_call_that_fails_holds_up_ingest_and_blocks_everything_else(answer: Answer) -> None:
    screen = screen_of(answer, 0.05 if answer is silent else 10.0)
    with pytest.raises(Unavailable, match="SafetyFilter is not available"):
        await screen.check_posts(["one", "two"])
    verdicts = await screen.check_many(["one", "two"], "question")
    assert [(verdict.action, verdict.text) for verdict in verdicts] == [(Action.BLOCK, "")] * 2
    assert {verdict.reason for verdict in verdicts} == {"safety_unavailable"}


@pytest.mark.parametrize(
    ("ask", "until_ms", "is_told"),
    [
        (Ask("harbour"), None, True),
        (Ask("harbour", sources=("rss", "x")), None, True),
        (Ask("harbour", sources=("bluesky",)), None, False),
        (Ask("harbour yesterday"), 1_700_000_000_000, False),
    ],
)
async def test_the_network_is_told_of_a_question_only_if_it_could_answer(
    ask: Ask, until_ms: int | None, is_told: bool
) -> None:
    told: list[str] = []

    async def search(ask: Ask) -> Found:
        return Found(until_ms=until_ms)

    async def look_up(question: str) -> list[str]:
        told.append(question)
        return []

    async def present(post_ids: Sequence[str]) -> set[str]:
        return set()

    retriever: Any = SimpleNamespace(search=SimpleNamespace(remote=search), present=SimpleNamespace(remote=present))
    publisher: Any = SimpleNamespace(look_up=SimpleNamespace(remote=look_up))
    await RemoteRetriever(retriever, publisher).search(ask)
    assert told == ([ask.question] if is_told else [])


async def test_an_index_server_that_is_away_is_a_part_that_is_not_available() -> None:
    async def away() -> None:
        fault = IndexUnavailable("http://qdrant:6333", "does not answer in time")
        raise RayTaskError("summary", "trace", pickle.loads(pickle.dumps(fault)))  # type: ignore[no-untyped-call]

    handle: Any = SimpleNamespace(summary=SimpleNamespace(remote=away))
    with pytest.raises(Unavailable) as raised:
        await RemoteIndex(handle).summary()
    assert "http://qdrant:6333: does not answer" in str(raised.value.__cause__.cause)  # type: ignore[union-attr]
