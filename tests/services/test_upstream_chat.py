"""Another server behind the chat: our own API, as anybody's."""

from pathlib import Path
from typing import Any

import pytest

from model_runtime.request import Finished, GenerationFailed, GenerationRequest, QueueFull, Sampling, Token
from model_runtime.upstream import UpstreamEngine
from services.chat import Chat
from services.deployments import engine_for
from services.events import ChatRequest, Delta, Done, Failed, Message
from services.settings import Settings
from tests.fakes import FakeRetriever, FakeScreen, match
from tests.services.scripted_chat import KEY, TEXT, scripted_app, served

REQUEST = GenerationRequest("r1", (0,) * 40, Sampling(max_tokens=64), (("system", "Brief."), ("user", "Open?")))


def settings_for(port: int, tmp_path: Path) -> Settings:
    (tmp_path / "key").write_text(f"{KEY}\n")
    model = {"upstream_url": f"http://127.0.0.1:{port}", "upstream_api_key_file": str(tmp_path / "key")}
    return Settings.model_validate({"model": model | {"path": "/nowhere.gguf"}})


async def items_of(batches: Any) -> list[Token | Finished]:
    return [item async for batch in batches for item in batch]


async def test_our_own_api_is_an_upstream_like_any_other(tmp_path: Path) -> None:
    app, chat = scripted_app(keys=True)
    async with served(app) as port:
        engine = UpstreamEngine(settings_for(port, tmp_path).model)
        await engine.start()
        assert (engine.card().name, engine.card().context_tokens) == ("groundswell", 2048)
        items = await items_of(engine.generate(REQUEST))
        await engine.stop()
    assert "".join(item.text for item in items) == TEXT
    assert items[-1] == Finished("stop", 31, 7)
    assert [message.text for message in chat.requests[0].messages] == ["Brief.", "Open?"]
    assert chat.requests[0].max_tokens == 64


@pytest.mark.parametrize(
    ("failed", "raised"),
    [
        (Failed(503, "server_error", "overloaded", "Too many.", 3600), QueueFull),
        (Failed(400, "invalid_request_error", "context_length_exceeded", "Too long."), GenerationFailed),
    ],
)
@pytest.mark.parametrize("words", [[], [Delta("half an ans")]])
async def test_a_failure_of_our_own_api_is_one_here(failed: Failed, raised: type, words: Any, tmp_path: Path) -> None:
    app, _ = scripted_app([*words, failed], keys=True)
    async with served(app) as port:
        engine = UpstreamEngine(settings_for(port, tmp_path).model)
        await engine.start()
        with pytest.raises(GenerationFailed if words else raised):
            await items_of(engine.generate(REQUEST))
        await engine.stop()


async def test_leaving_an_answer_ends_it_at_the_upstream(tmp_path: Path) -> None:
    app, chat = scripted_app([Delta("one "), 3600.0], keys=True)
    async with served(app) as port:
        engine = UpstreamEngine(settings_for(port, tmp_path).model)
        await engine.start()
        words = engine.generate(REQUEST)
        assert (await anext(words))[0].text == "one "
        await words.aclose()
        await chat.closed.wait()
        assert not chat.completed
        await engine.stop()


class Near:
    """An engine as RemoteEngine shows it, without a handle between."""

    def __init__(self, engine: Any) -> None:
        self.generate = engine.generate
        self._card = engine.card

    async def card(self) -> Any:
        return self._card()


async def test_a_chat_over_an_upstream_reads_no_checkpoint(tmp_path: Path) -> None:
    app, upstream = scripted_app([Delta("The harbour bridge "), Delta("is closed."), Done("stop", 310, 5)], keys=True)
    async with served(app) as port:
        engine = engine_for(settings_for(port, tmp_path))
        await engine.start()
        bridge = match("ana", "The harbour bridge is closed because of a crack in the third pillar.")
        chat = Chat(FakeScreen(), FakeRetriever([bridge]), Near(engine), lambda: 12)
        request = ChatRequest("r1", (Message("user", "Is the harbour bridge closed?"),), max_tokens=64)
        events = [event async for event in chat.stream(request)]
        assert engine.streams == 0
        await engine.stop()
    assert "".join(event.text for event in events if isinstance(event, Delta)) == "The harbour bridge is closed. [1]"
    end = events[-1]
    assert isinstance(end, Done)
    assert (end.prompt_tokens, end.completion_tokens) == (310, 5), "the upstream's own counts"
    prompt = upstream.requests[0].messages
    assert [message.role for message in prompt] == ["system", "user"]
    assert "crack in the third pillar" in prompt[1].text and prompt[1].text.endswith("Is the harbour bridge closed?")


async def test_a_prompt_too_long_for_the_upstream_is_refused_here_and_names_its_context(tmp_path: Path) -> None:
    app, upstream = scripted_app(keys=True)
    async with served(app) as port:
        engine = engine_for(settings_for(port, tmp_path))
        await engine.start()
        chat = Chat(FakeScreen(), FakeRetriever([match("ana", "The bridge.")]), Near(engine), lambda: 12)
        (*_, end) = [event async for event in chat.stream(ChatRequest("r1", (Message("user", "why " * 3000),)))]
        await engine.stop()
    assert isinstance(end, Failed) and end.code == "context_length_exceeded" and "2048" in end.message
    assert upstream.requests == []
