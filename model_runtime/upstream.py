"""UpstreamEngine: answers by any server that speaks the OpenAI API (vLLM, SGLang, llama.cpp, a cloud), with the methods
of WorkerGroup. Prompts leave the cluster then. Knows no HTTP (upstream_connection.py) and no JSON
(upstream_answer.py)."""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from model_runtime.card import ModelCard
from model_runtime.estimate import TokenEstimate
from model_runtime.request import Finished, GenerationFailed, GenerationRequest, PromptTooLong, QueueFull, Token
from model_runtime.settings import ModelSettings
from model_runtime.upstream_answer import BadAnswer, UpstreamAnswer, chat_body
from model_runtime.upstream_connection import Connection, Patience, UpstreamFault

logger = logging.getLogger(__name__)

ATTEMPTS = 4  # of one request, while nothing of its answer was shown
LONGEST_PAUSE_S = 10.0  # between them: an upstream that asks for more has refused
LONGEST_START_PAUSE_S = 30.0
USAGE_S = 5.0  # how long after the end of its text an answer's counts may come
DRAIN_S = 0.05  # and after its last event the end of the stream, so that the connection can be used again
UNREACHED = 3  # requests in a row without a connection: something is wrong for good


class UpstreamEngine:
    """All methods belong to one event loop. `patience_s`: how long an answer may let wait, for its first token (all
    attempts together) and for each that follows; callers give up after 60 s. `pause_s`: before the second attempt.
    Raises ValueError for a URL or a key file that cannot be used."""

    def __init__(
        self, settings: ModelSettings, *, patience_s: float = 55.0, pause_s: float = 0.5, most_streams: int = 256
    ) -> None:
        self._settings, self._patience_s, self._pause_s = settings, patience_s, pause_s
        self._most_streams = most_streams
        self._connection = Connection(settings.upstream_url, settings.upstream_api_key_file)
        self._length_field = "max_tokens"
        self._card: ModelCard | None = None
        self._streams = self._unreached = 0
        self._stopped = False

    async def start(self) -> None:
        """Waits until the upstream answers, as shards would be waited for. Raises GenerationFailed when waiting is no
        use: it refuses the key, or does not say which model it has."""
        pause_s = self._pause_s
        while self._card is None:
            try:
                self._card = self._card_of(await self._connection.models(Patience(self._patience_s)))
            except UpstreamFault as fault:
                if fault.kind == "refused":
                    raise GenerationFailed(fault.reason) from fault
                logger.warning("the upstream is not ready, asked again in %.1f s: %s", pause_s, fault.reason)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_START_PAUSE_S)
        where, model = self._connection.host, self._card.name
        logger.info("answers come from %s (model %s): questions and posts are sent there", where, model)
        if self._connection.sends_key_openly:
            logger.warning("the API key travels to %s unencrypted: use https", where)

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[list[Token | Finished], None]:
        """Each item is everything that came since the last one; the last ends in Finished. Closing the generator closes
        the connection, which ends the generation.

        Raises UnusableRequest, PromptTooLong or QueueFull before the first item, GenerationFailed at any time."""
        card = self.card()
        assert request.messages, "an upstream takes turns, not ids"
        needed = len(request.prompt_ids) + request.sampling.max_tokens
        if needed > card.context_tokens:
            raise PromptTooLong(needed, card.context_tokens)
        if self._streams >= self._most_streams:
            raise QueueFull(self._streams)
        self._streams += 1
        try:
            async with aclosing(self._answer(request)) as batches:
                async for batch in batches:
                    yield batch
        finally:
            self._streams -= 1

    def card(self) -> ModelCard:
        assert self._card is not None, "start comes first"
        return self._card

    @property
    def streams(self) -> int:
        """Answers under way."""
        return self._streams

    def check(self) -> None:
        """Raises GenerationFailed when request after request found no connection."""
        if self._unreached >= UNREACHED:
            raise GenerationFailed(f"the last {self._unreached} requests did not reach {self._connection.host}")

    async def stop(self) -> None:
        """Closes every connection; answers under way fail."""
        self._stopped = True
        await self._connection.close()

    async def _answer(self, request: GenerationRequest) -> AsyncGenerator[list[Token | Finished], None]:
        patience = Patience(self._patience_s)
        for attempt in range(1, ATTEMPTS + 2):
            answer, field = UpstreamAnswer(request), self._length_field
            body = chat_body(request, self.card().name, field)
            try:
                async with aclosing(self._attempt(body, answer, patience)) as batches:
                    async for batch in batches:
                        yield batch
                return
            except UpstreamFault as fault:
                if fault.unsupported == field == "max_tokens":
                    self._length_field = "max_completion_tokens"  # OpenAI's newer models know only this one
                else:
                    await self._before_next(fault, attempt, answer, patience)
                logger.info("request %s, attempt %d: %s", request.id, attempt, fault.reason)

    async def _attempt(
        self, body: dict[str, Any], answer: UpstreamAnswer, patience: Patience
    ) -> AsyncGenerator[list[Token | Finished], None]:
        """Raises UpstreamFault when it ends before the answer does."""
        if self._stopped:
            raise UpstreamFault("refused", "the model was stopped")
        left = (self._patience_s, USAGE_S, DRAIN_S)
        stage = 0
        try:
            async with aclosing(self._connection.events(body, patience)) as pieces:
                async for events in pieces:
                    self._unreached = 0
                    tokens, before = _take(answer, events), stage
                    stage = 2 if answer.done else 1 if answer.reason is not None else 0
                    if stage > before or (tokens and not stage):
                        patience.renew(left[stage])
                    if tokens:
                        yield tokens
        except UpstreamFault:
            if answer.reason is None:
                raise
        if answer.reason is None:
            raise UpstreamFault("broken", f"{self._connection.host} ended the stream before the answer")
        yield [answer.finished()]

    async def _before_next(
        self, fault: UpstreamFault, attempt: int, answer: UpstreamAnswer, patience: Patience
    ) -> None:
        """Waits as long as is fit before another attempt. Raises QueueFull or GenerationFailed where there is none."""
        jittered_s = self._pause_s * 2 ** (attempt - 1) * random.uniform(0.5, 1.5)
        pause_s = jittered_s if fault.pause_s is None else fault.pause_s
        over = answer.shown or self._stopped or attempt >= ATTEMPTS
        if not over and fault.may_pass and pause_s < min(LONGEST_PAUSE_S, patience.left_s):
            await asyncio.sleep(pause_s)
            return
        self._unreached = self._unreached + 1 if fault.kind == "unreached" else 0
        if fault.kind == "busy":
            raise QueueFull(self._streams) from fault
        raise GenerationFailed(fault.reason) from fault

    def _card_of(self, listed: list[dict[str, Any]]) -> ModelCard:
        """Raises UpstreamFault if it is not known which model to ask for."""
        wanted = self._settings.upstream_model
        if not wanted and not listed:
            raise UpstreamFault("refused", f"{self._connection.host} lists no models: set model.upstream_model")
        chosen = next((model for model in listed if not wanted or model["id"] == wanted), {"id": wanted})
        if listed and chosen not in listed:
            logger.warning("%s does not list the model %s", self._connection.host, wanted)
        told = [chosen.get(name) for name in ("max_model_len", "context_length")]  # vLLM and SGLang; Groundswell
        return ModelCard(
            name=chosen["id"],
            file=self._connection.host,
            context_tokens=min([self._settings.upstream_context_tokens, *(n for n in told if isinstance(n, int))]),
            vocab=0,
            num_experts=0,
            active_experts=0,
            shards=0,
            dtype="upstream",
            tokenizer=TokenEstimate(),
        )


def _take(answer: UpstreamAnswer, events: list[str]) -> list[Token | Finished]:
    tokens: list[Token | Finished] = []
    try:
        for event in events:
            if not answer.done:
                tokens += answer.take(event)
    except BadAnswer as error:
        raise UpstreamFault("refused", str(error)) from error
    return tokens
