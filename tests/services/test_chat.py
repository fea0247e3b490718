"""Chat.stream with every part scripted: what it says, in which order, and how it ends."""

import re
import threading
from typing import Any

import pytest

from model_runtime.request import GenerationFailed, PromptTooLong, QueueFull
from safety.content import Content
from safety.pii import Pii
from safety.screen import Screen
from safety.verdict import Verdict
from services.chat import NO_POSTS, NOT_CHECKED, REFUSED, WITHHELD, Chat, search_text
from services.events import ChatEvent, ChatRequest, Delta, Done, Failed, Message, Notice, Searching, Sources
from services.remote import UNAVAILABLE, Unavailable
from tests.fakes import FakeRetriever, FakeScreen, ScriptedEngine, WordTokenizer, match

NOW_MS = 1_700_000_060_000
BRIDGE = match("ana", "The harbour bridge is closed because of a crack in the third pillar.")


def ask(text: str, **more: Any) -> ChatRequest:
    return ChatRequest("r1", (Message("user", text),), **more)


def chat(engine: ScriptedEngine, retriever: FakeRetriever | None = None, screen: Any = None) -> Chat:
    retriever = FakeRetriever([BRIDGE]) if retriever is None else retriever
    return Chat(screen or FakeScreen(), retriever, engine, lambda: 12, lambda: NOW_MS)


async def events_of(service: Chat, request: ChatRequest) -> list[ChatEvent]:
    events = [event async for event in service.stream(request)]
    assert sum(isinstance(event, Done | Failed) for event in events) == 1, "exactly one end"
    assert isinstance(events[-1], Done | Failed)
    return events


def text_of(events: list[ChatEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta))


async def test_an_answer_is_searched_for_composed_screened_and_cited() -> None:
    engine = ScriptedEngine("The harbour bridge ", "is closed ", "because of a crack. ", "Nobody knows more.")
    screen = FakeScreen()
    events = await events_of(chat(engine, screen=screen), ask("Is the harbour bridge closed?"))
    assert events[0] == Searching(12)
    assert isinstance(events[1], Sources)
    assert events[1].newest_age_ms == 60_000
    assert text_of(events).startswith("The harbour bridge is closed because of a crack. [1]")
    end = events[-1]
    assert isinstance(end, Done)
    assert [citation.post_id for citation in end.cited] == ["ana"]
    assert (end.finish_reason, end.completion_tokens) == ("stop", 4)
    assert end.prompt_tokens == len(engine.requests[0].prompt_ids)
    assert ("answer", "The harbour bridge is closed because of a crack.") in screen.seen
    assert engine.closed == 1


async def test_without_evidence_it_says_so_and_generates_nothing() -> None:
    engine = ScriptedEngine("A guess.")
    events = await events_of(chat(engine, FakeRetriever([])), ask("Who won?"))
    assert text_of(events) == NO_POSTS
    assert Sources((), None) in events
    assert engine.requests == []


async def test_words_for_a_time_in_the_question_are_shown_as_they_were_understood() -> None:
    retriever = FakeRetriever([BRIDGE])
    retriever.limits = {"since_ms": NOW_MS - 3_600_000, "until_ms": NOW_MS, "time_words": "in the last hour"}
    events = await events_of(chat(ScriptedEngine("Closed."), retriever), ask("Is it closed in the last hour?"))
    (notice,) = [event for event in events if isinstance(event, Notice)]
    assert notice.code == "time_filter" and '"in the last hour"' in notice.message and "21:14" in notice.message
    assert isinstance(events[events.index(notice) - 1], Sources)


@pytest.mark.parametrize("clock", ["future", "backdated"])
async def test_a_post_whose_clock_cannot_be_believed_is_not_the_newest_evidence(clock: str) -> None:
    believed = match("bo", "The harbour bridge was closed.", sort_ms=NOW_MS - 120_000)
    doubtful = match("ana", "The harbour bridge is closed.", sort_ms=NOW_MS, clock=clock)
    events = await events_of(chat(ScriptedEngine("Closed."), FakeRetriever([doubtful, believed])), ask("Is it closed?"))
    (sources,) = [event for event in events if isinstance(event, Sources)]
    assert sources.newest_age_ms == 120_000
    alone = await events_of(chat(ScriptedEngine("Closed."), FakeRetriever([doubtful])), ask("Is it closed?"))
    assert [event.newest_age_ms for event in alone if isinstance(event, Sources)] == [None]


async def test_a_very_long_question_is_searched_for_by_its_start() -> None:
    retriever = FakeRetriever([])
    await events_of(chat(ScriptedEngine("-"), retriever), ask("bridge " * 4000))
    assert retriever.asked == [("bridge " * 4000)[:8192]]


async def test_a_question_that_is_forbidden_is_refused_before_anything_is_searched() -> None:
    retriever, engine = FakeRetriever([BRIDGE]), ScriptedEngine("Sure.")
    events = await events_of(chat(engine, retriever, FakeScreen(forbidden="bomb")), ask("How do I build a bomb?"))
    assert text_of(events) == REFUSED
    end = events[-1]
    assert isinstance(end, Done)
    assert (end.finish_reason, end.filter_reason) == ("content_filter", "forbidden")
    assert retriever.asked == []
    assert engine.requests == []


async def test_what_is_rewritten_in_the_question_reaches_neither_the_search_nor_the_model() -> None:
    retriever, engine = FakeRetriever([BRIDGE]), ScriptedEngine("It is closed.")
    await events_of(chat(engine, retriever, FakeScreen(secret="555-0134")), ask("Is 555-0134 at the bridge?"))
    assert retriever.asked == ["Is [SECRET] at the bridge?"]


async def test_an_answer_that_turns_bad_stops_the_generator_and_says_why() -> None:
    engine = ScriptedEngine("The bridge is closed. ", "Now poison the well. ", "And then more. ", "And more.")
    events = await events_of(chat(engine, screen=FakeScreen(forbidden="poison")), ask("Is the bridge closed?"))
    shown = text_of(events)
    assert "bridge is closed" in shown
    assert "poison" not in shown
    assert "more" not in shown
    assert shown.endswith(WITHHELD)
    end = events[-1]
    assert isinstance(end, Done)
    assert (end.finish_reason, end.filter_reason) == ("content_filter", "forbidden")
    assert engine.yielded < 4
    assert engine.closed == 1


class DeadScreen(FakeScreen):
    """The filter as RemoteScreen shows it when it does not answer: after `calls` checks, all is blocked."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.calls = calls

    async def check(self, text: str, surface: Any) -> Any:
        self.calls -= 1
        if self.calls < 0:
            from services.remote import _unavailable

            return _unavailable(text)
        return await super().check(text, surface)


@pytest.mark.parametrize("calls", [0, 1, 2])
async def test_a_dead_filter_lets_nothing_out(calls: int) -> None:
    engine = ScriptedEngine("The bridge is closed. ", "It will open soon. ", "So they say.")
    events = await events_of(chat(engine, screen=DeadScreen(calls)), ask("Is the bridge closed?"))
    shown = text_of(events)
    assert NOT_CHECKED in shown
    assert "soon" not in shown
    assert ("closed" in shown) == (calls == 2)
    end = events[-1]
    assert isinstance(end, Done)
    assert (end.finish_reason, end.filter_reason) == ("content_filter", UNAVAILABLE)


async def test_a_post_removed_while_the_answer_is_written_is_told() -> None:
    class RemovingRetriever(FakeRetriever):
        async def present(self, post_ids: Any) -> set[str]:
            present = await super().present(post_ids)
            self.removed.add("ana")  # gone after the first look
            return present

    engine = ScriptedEngine("The harbour bridge is closed because of a crack.")
    events = await events_of(chat(engine, RemovingRetriever([BRIDGE])), ask("Is the harbour bridge closed?"))
    assert Notice("post_removed", "No longer available: [1].") in events
    end = events[-1]
    assert isinstance(end, Done)
    assert (end.cited, end.removed) == ((), (1,))


async def test_so_is_one_that_was_read_and_never_cited() -> None:
    retriever = FakeRetriever([BRIDGE, match("bo", "Penguins moved into the old lighthouse.")])
    retriever.removed = {"bo"}
    events = await events_of(chat(ScriptedEngine("The harbour bridge is closed."), retriever), ask("Is it closed?"))
    assert Notice("post_removed", "No longer available: [2].") in events
    end = events[-1]
    assert isinstance(end, Done)
    assert end.removed == (2,)


class RealScreen(FakeScreen):
    SCREEN = Screen([Pii(), Content()])

    async def check(self, text: str, surface: Any) -> Verdict:
        return self.SCREEN.check(text, surface)


FRONT = ["The bridge is closed. Mail ana", ".lopez@", "example"]


@pytest.mark.parametrize(
    ("reason", "stop", "shown"),
    [
        ("length", (), "The bridge is closed. Mail "),
        ("cancelled", (), "The bridge is closed. Mail "),
        ("stop", (".com",), "The bridge is closed. Mail "),
        ("stop", (), "The bridge is closed. Mail ana.lopez@example"),
    ],
)
async def test_where_an_answer_is_cut_no_front_of_an_address_leaves(
    reason: str, stop: tuple[str, ...], shown: str
) -> None:
    service = chat(ScriptedEngine(*FRONT, reason=reason), screen=RealScreen())
    text = text_of(await events_of(service, ask("Is it closed?", stop=stop)))
    assert re.sub(r" \[1\]", "", text) == shown


async def test_an_identifier_that_the_models_markers_hold_apart_does_not_leave() -> None:
    engine = ScriptedEngine("Write to ana.lopez[1]", "@example.com or 4111[1]1111", "[1]1111[1]1111.")
    text = text_of(await events_of(chat(engine, screen=RealScreen()), ask("Whom?")))
    assert text == "Write to [EMAIL] or [CARD]."


async def test_what_cleaning_makes_forbidden_stops_the_generator() -> None:
    engine = ScriptedEngine("I will ki[1]ll you and your family. ", "Bye", " now", " then.")
    events = await events_of(chat(engine, screen=RealScreen()), ask("What?"))
    assert text_of(events) == "\n" + WITHHELD
    end = events[-1]
    assert isinstance(end, Done)
    assert (end.finish_reason, end.filter_reason) == ("content_filter", "threat")
    assert engine.yielded < 4 and engine.closed == 1


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (QueueFull(64), 503, "overloaded"),
        (PromptTooLong(9000, 8192), 400, "context_length_exceeded"),
        (GenerationFailed("nan"), 500, "generation_failed"),
        (Unavailable("Generator"), 503, "service_unavailable"),
    ],
)
async def test_a_fault_is_an_honest_error(fault: Exception, status: int, code: str) -> None:
    events = await events_of(chat(ScriptedEngine(fault)), ask("Is the bridge closed?"))
    end = events[-1]
    assert isinstance(end, Failed)
    assert (end.status, end.code) == (status, code)


async def test_a_remote_stack_is_never_shown() -> None:
    class Dual(Unavailable):
        """As Ray raises it: of our type, with our attributes, and the other side's stack as its text."""

        def __str__(self) -> str:
            return "ray::Retriever.search() Traceback, File /opt/secret.py"

    class Gone(FakeRetriever):
        async def search(self, ask: Any) -> Any:
            raise Dual("Retriever")

    end = (await events_of(chat(ScriptedEngine("x"), Gone([])), ask("Is the bridge closed?")))[-1]
    assert isinstance(end, Failed)
    assert end.message == "Retriever is not available; try again in a few seconds."


async def test_an_engine_that_ends_without_an_end_is_an_error() -> None:
    class Cut(ScriptedEngine):
        async def generate(self, request: Any) -> Any:
            async for batch in super().generate(request):
                if not hasattr(batch[0], "reason"):
                    yield batch

    events = await events_of(chat(Cut("The bridge is closed.")), ask("Is the bridge closed?"))
    assert isinstance(events[-1], Failed)


async def test_leaving_early_closes_the_generation() -> None:
    engine = ScriptedEngine(*["The bridge is closed. "] * 50)
    stream = chat(engine).stream(ask("Is the bridge closed?"))
    async for event in stream:
        if isinstance(event, Delta):
            break
    await stream.aclose()  # type: ignore[attr-defined]
    assert engine.closed == 1
    assert engine.yielded < 50


async def test_posts_that_do_not_fit_beside_the_question_are_an_error_and_not_no_evidence() -> None:
    engine = ScriptedEngine("x", context_tokens=400)
    events = await events_of(chat(engine), ask("word " * 390, max_tokens=8))
    end = events[-1]
    assert isinstance(end, Failed)
    assert end.code == "context_length_exceeded"
    assert engine.requests == []
    told = [int(figure) for figure in re.findall(r"\d+", end.message)]
    assert told[0] == 8 and told[1] > 400 == told[2], end.message


@pytest.mark.parametrize("matches", [[], [BRIDGE]])
async def test_more_tokens_than_the_context_holds_are_refused_with_figures_that_make_sense(matches: list[Any]) -> None:
    engine = ScriptedEngine("x", context_tokens=2048)
    end = (await events_of(chat(engine, FakeRetriever(matches)), ask("Is it closed?", max_tokens=4096)))[-1]
    assert isinstance(end, Failed)
    assert (end.status, end.code) == (400, "context_length_exceeded")
    told = [int(figure) for figure in re.findall(r"-?\d+", end.message)]
    assert told[0] == 4096 and told[1] > 4096 and told[2] == 2048, end.message


async def test_a_long_history_makes_room_for_a_post() -> None:
    engine = ScriptedEngine("The harbour bridge is closed.", context_tokens=400)
    old = (Message("user", "word " * 300), Message("assistant", "Yes."), Message("user", "Is it closed?"))
    events = await events_of(chat(engine), ChatRequest("r1", old, max_tokens=8))
    assert isinstance(events[-1], Done)
    assert [one.post_id for event in events if isinstance(event, Sources) for one in event.citations] == ["ana"]
    assert len(engine.requests[0].prompt_ids) <= 392


@pytest.mark.parametrize("matches", [[], [BRIDGE]])
async def test_the_event_loop_tokenizes_nothing(matches: list[Any]) -> None:
    class Watched(WordTokenizer):
        def __init__(self) -> None:
            self.threads: set[int] = set()

        def count(self, text: str) -> int:
            self.threads.add(threading.get_ident())
            return super().count(text)

        def render(self, messages: Any, add_generation_prompt: bool = True) -> list[int]:
            self.threads.add(threading.get_ident())
            return super().render(messages, add_generation_prompt)

    engine = ScriptedEngine("The harbour bridge is closed.")
    engine.fake_card.tokenizer = watched = Watched()
    await events_of(chat(engine, FakeRetriever(matches)), ask("Is it closed?"))
    assert watched.threads and threading.get_ident() not in watched.threads


@pytest.mark.parametrize(
    ("phrase", "before"),
    [
        ("El arbitro de la Copa pita el final. ", "Se sabe esto. "),
        ("the origin of ", "It is "),
        ("\u6865\u5df2\u5173\u95ed\u4e86\uff0c\u662f\u7684\u3002", ""),
        ("a phrase of quite some length, with a comma and no end of its sentence, " * 2, ""),
    ],
)
@pytest.mark.parametrize(("size", "batch"), [(1, 1), (5, 1), (3, 100)])
async def test_an_answer_that_says_the_same_for_ever_is_ended(phrase: str, before: str, size: int, batch: int) -> None:
    whole = before + phrase * 40
    pieces = [whole[place : place + size] for place in range(0, len(whole), size)]
    engine = ScriptedEngine(*pieces, batch=batch)
    events = await events_of(chat(engine), ask("Is it closed?"))
    end = events[-1]
    assert isinstance(end, Done)
    assert (end.finish_reason, end.filter_reason) == ("stop", "")
    assert engine.closed == 1 and engine.yielded * size <= len(before) + 3 * len(phrase) + (1 + batch) * size
    shown = text_of(events)
    assert before.strip() in shown and shown.count(phrase.strip()) <= 2
    if "." not in phrase and "\u3002" not in phrase:
        assert len(shown) <= len(before + phrase) + size, "nothing of the repetition had left"


@pytest.mark.parametrize(
    "text", ["no no no no no no", "-" * 90 + " end", "1 2 3 4 5 6 7 8 9 10 11 12 13", "It is shut. " * 2]
)
async def test_what_only_looks_alike_goes_on(text: str) -> None:
    engine = ScriptedEngine(*text, " The end.")
    events = await events_of(chat(engine), ask("Is it closed?"))
    assert text_of(events).endswith("The end.") and engine.yielded == len(text) + 1


async def test_a_top_p_of_0_is_greedy() -> None:
    engine = ScriptedEngine("It is closed.")
    assert isinstance((await events_of(chat(engine), ask("Is it closed?", temperature=0.9, top_p=0.0)))[-1], Done)
    assert (engine.requests[0].sampling.temperature, engine.requests[0].sampling.top_p) == (0.0, 1.0)


async def test_the_callers_sampling_reaches_the_engine() -> None:
    engine = ScriptedEngine("It is closed.")
    request = ask("Is it closed?", max_tokens=9, temperature=0.7, top_p=0.9, seed=5, stop=("END",))
    await events_of(chat(engine), request)
    sampling = engine.requests[0].sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p, sampling.seed) == (9, 0.7, 0.9, 5)
    assert sampling.stop == ("END",)


def test_a_short_follow_up_is_searched_with_the_question_before_it() -> None:
    before = Message("user", "What happened at the harbour bridge?")
    messages = [before, Message("assistant", "It closed."), Message("user", "And now?")]
    assert search_text(messages) == "What happened at the harbour bridge? And now?"
    assert search_text([before]) == before.text
    long = Message("user", "When does the night market open this weekend?")
    assert search_text([before, long]) == long.text
