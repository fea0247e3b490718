"""Chat.stream: screen the question, retrieve, compose, generate, screen the answer, cite. Never sees a handle."""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from ingest.ask import MAX_QUESTION_CHARS, Ask
from ingest.post import Match
from ingest.retrieve import Found
from model_runtime.request import (
    Finished,
    GenerationFailed,
    GenerationRequest,
    PromptTooLong,
    QueueFull,
    Sampling,
    Token,
    UnusableRequest,
)
from model_runtime.tokenizer import TemplateRefused
from safety.token_window import TokenWindow
from safety.verdict import Action, Surface, Verdict
from services.citations import Citer
from services.compose import Prompt, compose
from services.events import (
    ChatEvent,
    ChatRequest,
    Delta,
    Done,
    Failed,
    FinishReason,
    Message,
    Notice,
    Searching,
    Sources,
)
from services.generated import Generated
from services.remote import UNAVAILABLE, Unavailable
from services.search import time_notice

if TYPE_CHECKING:
    import numpy as np

    from model_runtime.group import ModelCard

logger = logging.getLogger("ray.serve")

MAX_POSTS = 5
DEFAULT_MAX_TOKENS = 192

NO_POSTS = "I have no recent posts about this."
REFUSED = "I can't help with this request."
NOT_CHECKED = "The safety filter is not available, so no answer can be shown."
WITHHELD = "[The rest of this answer was withheld by the safety filter.]"


class Screens(Protocol):
    async def check(self, text: str, surface: Surface) -> Verdict: ...
    async def check_many(self, texts: Sequence[str], surface: Surface) -> list[Verdict]: ...


class Retrieves(Protocol):
    async def search(self, ask: Ask) -> Found: ...
    async def embed_now(self, texts: Sequence[str]) -> "np.ndarray": ...
    async def present(self, post_ids: Sequence[str]) -> set[str]: ...


class Generates(Protocol):
    async def card(self) -> "ModelCard": ...
    def generate(self, request: GenerationRequest) -> AsyncGenerator[list[Token | Finished], None]: ...


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Chat:
    """`live_posts` tells how many posts are searchable; it is shown, never relied on."""

    def __init__(
        self,
        screen: Screens,
        retriever: Retrieves,
        engine: Generates,
        live_posts: Callable[[], int],
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._screen, self._retriever, self._engine = screen, retriever, engine
        self._live_posts, self._clock_ms = live_posts, clock_ms
        self._card: ModelCard | None = None

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        """Ends in exactly one Done or Failed. Closing it stops the generation."""
        try:
            async with aclosing(self._answer(request)) as events:
                async for event in events:
                    yield event
        except PromptTooLong as error:
            message = (
                f"max_tokens ({_max_tokens(request)}) and the messages need {error.length} tokens together; "
                f"the model's context is {error.limit}. Shorten the messages or lower max_tokens."
            )
            yield Failed(400, "invalid_request_error", "context_length_exceeded", message)
        except TemplateRefused as error:
            message = f"The model's chat template does not take these messages: {error.reason}"
            yield Failed(400, "invalid_request_error", "unsupported_messages", message)
        except UnusableRequest as error:
            yield Failed(400, "invalid_request_error", "invalid_value", error.reason)
        except QueueFull:
            yield Failed(503, "server_error", "overloaded", "Too many requests are waiting; try again.", 5)
        except Unavailable as error:
            # Not str(error): of what came over a handle it is the other side's stack.
            message = f"{error.deployment} is not available; try again in a few seconds."
            yield Failed(503, "server_error", "service_unavailable", message, 5)
        except GenerationFailed as error:
            logger.error("request %s: generation failed: %s", request.id, error.reason)
            yield Failed(500, "server_error", "generation_failed", "The answer could not be finished.")

    async def _answer(self, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        messages, refusal = await self._screened(request.messages)
        if refusal is not None:
            yield Delta(NOT_CHECKED if refusal == UNAVAILABLE else REFUSED)
            yield Done("content_filter", 0, 0, filter_reason=refusal)
            return

        yield Searching(self._live_posts())
        found = await self._retriever.search(Ask(search_text(messages), limit=MAX_POSTS))
        card = await self._model_card()
        max_tokens = _max_tokens(request)
        prompt = await asyncio.to_thread(self._compose, messages, found.matches, card, max_tokens)
        newest_age_ms = self._newest_age_ms(prompt)
        yield Sources(prompt.citations, newest_age_ms)
        if limits := time_notice(found):
            yield Notice("time_filter", limits)
        if not prompt.citations:
            yield Delta(NO_POSTS)
            texts = (messages[-1].text, NO_POSTS)
            asked, said = [await asyncio.to_thread(card.tokenizer.count, text) for text in texts]
            yield Done("stop", asked, said)
            return

        async with aclosing(self._cited_answer(request, prompt, max_tokens, newest_age_ms)) as events:
            async for event in events:
                yield event

    async def _screened(self, messages: Sequence[Message]) -> tuple[tuple[Message, ...], str | None]:
        """The caller's messages as they may be used, or the label of what forbids it."""
        verdicts = await self._screen.check_many([message.text for message in messages], "question")
        for verdict in verdicts:
            if verdict.action is Action.BLOCK:
                return (), verdict.reason
        safe = (replace(message, text=verdict.text) for message, verdict in zip(messages, verdicts, strict=True))
        return tuple(safe), None

    async def _cited_answer(
        self, request: ChatRequest, prompt: Prompt, max_tokens: int, newest_age_ms: int | None
    ) -> AsyncGenerator[ChatEvent, None]:
        window = TokenWindow(self._screen)
        retriever = self._retriever
        citer = Citer(prompt.citations, prompt.used, retriever.embed_now, retriever.present, self._screen)
        count = Generated()
        generation = GenerationRequest(request.id, prompt.prompt_ids, _sampling(request, max_tokens), prompt.turns)
        async with aclosing(self._engine.generate(generation)) as batches:
            async for batch in batches:
                for sentence in await window.push(count.take(batch)):
                    for delta in await citer.write(sentence):
                        yield delta
                if window.blocked or citer.blocked or count.ended:
                    break
        for delta in await _rest(window, citer, count, request.stop):
            yield delta
        blocked = window.blocked or citer.blocked
        if blocked is not None:
            yield Delta("\n" + (NOT_CHECKED if blocked.reason == UNAVAILABLE else WITHHELD))
        elif not count.ended:
            raise GenerationFailed("the engine's stream ended without an end")
        kept, removed = await citer.check_present()
        if removed:
            yield Notice("post_removed", f"No longer available: {', '.join(f'[{number}]' for number in removed)}.")
        yield Done(
            finish_reason=_finish_reason(blocked, count.end),
            prompt_tokens=len(prompt.prompt_ids) if count.end is None else count.end.prompt_tokens,
            completion_tokens=count.tokens if count.end is None else count.end.completion_tokens,
            cited=kept,
            newest_age_ms=newest_age_ms,
            unsupported_sentences=citer.unsupported_sentences,
            filter_reason=blocked.reason if blocked is not None else "",
            removed=removed,
        )

    def _compose(
        self, messages: Sequence[Message], matches: Sequence[Match], card: "ModelCard", max_tokens: int
    ) -> Prompt:
        """Slow for a long conversation: for a thread. Raises PromptTooLong with max_tokens counted in."""
        try:
            return compose(
                messages,
                matches,
                tokenizer=card.tokenizer,
                budget_tokens=card.context_tokens - max_tokens,
                max_posts=MAX_POSTS,
                nonce=secrets.token_hex(4),
                now_ms=self._clock_ms(),
            )
        except PromptTooLong as error:
            raise PromptTooLong(error.length + max_tokens, card.context_tokens) from None

    async def _model_card(self) -> "ModelCard":
        if self._card is None:
            self._card = await self._engine.card()
        return self._card

    def _newest_age_ms(self, prompt: Prompt) -> int | None:
        """Of the posts in the prompt whose clock can be believed."""
        newest_ms = max((match.sort_ms for match in prompt.used if not match.clock), default=None)
        return None if newest_ms is None else max(0, self._clock_ms() - newest_ms)


async def _rest(window: TokenWindow, citer: Citer, count: Generated, stop: tuple[str, ...]) -> list[Delta]:
    """What is still held when the generation is over."""
    citer.retract(count.echo_chars - window.retract(count.echo_chars))
    cut_by = count.cut_by(stop)
    deltas: list[Delta] = []
    for sentence in await window.finish(cut_by):
        deltas += await citer.write(sentence)
    return deltas + await citer.finish(cut_by)


def _max_tokens(request: ChatRequest) -> int:
    return request.max_tokens or DEFAULT_MAX_TOKENS


def search_text(messages: Sequence[Message]) -> str:
    """What is searched: the last question, or the start of a very long one; a short one ("And now?") leans on the
    question before it."""
    questions = [message.text for message in messages if message.role == "user"]
    if len(questions) > 1 and len(questions[-1].split()) < 5:
        return f"{questions[-2]} {questions[-1]}"[-MAX_QUESTION_CHARS:]
    return questions[-1][:MAX_QUESTION_CHARS]


def _sampling(request: ChatRequest, max_tokens: int) -> Sampling:
    """Greedy unless asked otherwise: an answer about facts should not be a draw."""
    return Sampling(
        max_tokens=max_tokens,
        temperature=0.0 if request.temperature is None or request.top_p == 0 else request.temperature,
        top_p=request.top_p or 1.0,
        top_k=request.top_k,
        min_p=request.min_p,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        repetition_penalty=request.repetition_penalty,
        logit_bias=request.logit_bias,
        seed=secrets.randbits(62) if request.seed is None else request.seed,
        stop=request.stop,
    )


def _finish_reason(blocked: Verdict | None, end: Finished | None) -> FinishReason:
    if blocked is not None:
        return "content_filter"
    return "length" if end is not None and end.reason == "length" else "stop"
