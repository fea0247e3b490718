"""Deployment handles that look like the plain objects behind them.

The only place where a Serve or Ray fault becomes one of ours: `Unavailable`, or, for the screen, a verdict that lets
nothing through.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from ingest.post import AccountChange, Match, Passage, Receipt, Removal
from model_runtime.request import Finished, GenerationRequest, Token
from safety.verdict import Action, Finding, Surface, Verdict

if TYPE_CHECKING:
    import numpy as np

    from ingest.ask import Ask
    from ingest.index import ApplyReport, Copy, Query, Summary
    from ingest.retrieve import Found
    from model_runtime.group import ModelCard

UNAVAILABLE = "safety_unavailable"
FRESH_MS = 6 * 3600 * 1000
ENOUGH_FRESH = 3  # posts of the last FRESH_MS: with fewer, the network itself may be asked
LOOK_UP_S, INDEXED_S = 6.0, 2.0


class Unavailable(RuntimeError):
    """A deployment did not answer: it is starting, restarting, overloaded or gone."""

    def __init__(self, deployment: str) -> None:
        super().__init__(deployment)
        self.deployment = deployment

    def __str__(self) -> str:
        return f"{self.deployment} is not available"


async def call(deployment: str, response: Any, timeout_s: float) -> Any:
    """Awaits one unary call. What the other side raised on purpose comes through as it is."""
    try:
        async with asyncio.timeout(timeout_s):
            return await response
    except RayTaskError as error:
        if isinstance(error.cause, RayError | RayServeException | OSError):
            raise Unavailable(deployment) from error
        raise
    except (RayError, RayServeException, TimeoutError) as error:
        raise Unavailable(deployment) from error


class RemoteScreen:
    """Fails closed: when the filter does not answer in time, the verdict is a block."""

    def __init__(self, handle: DeploymentHandle[Any], timeout_s: float = 10.0) -> None:
        self._handle, self._timeout_s = handle, timeout_s

    async def check(self, text: str, surface: Surface) -> Verdict:
        return (await self.check_many([text], surface))[0]

    async def check_many(self, texts: Sequence[str], surface: Surface) -> list[Verdict]:
        try:
            return await self._asked(texts, surface)
        except Unavailable:
            return [_unavailable(text) for text in texts]

    async def check_posts(self, texts: Sequence[str]) -> list[Verdict]:
        """For ingest, which waits and asks again rather than lose a post. Raises Unavailable when the call failed.

        A text on which a layer failed is a block like any other: it would fail again, and hold up all that follow.
        """
        return await self._asked(texts, "post")

    async def _asked(self, texts: Sequence[str], surface: Surface) -> list[Verdict]:
        """One verdict a text. Raises Unavailable."""
        response = self._handle.check_many.remote(list(texts), surface)
        try:
            verdicts: list[Verdict] = await call("SafetyFilter", response, self._timeout_s)
        except RayTaskError as error:
            raise Unavailable("SafetyFilter") from error
        if len(verdicts) != len(texts):
            raise Unavailable("SafetyFilter")
        return verdicts


def _unavailable(text: str) -> Verdict:
    finding = Finding("screen", UNAVAILABLE, 0, len(text), Action.BLOCK)
    return Verdict(Action.BLOCK, "", (finding,))


class RemoteIndex:
    """A PostIndex in another process: the whole index, or one shard of it."""

    def __init__(self, handle: DeploymentHandle[Any], timeout_s: float = 30.0) -> None:
        self._handle, self._timeout_s = handle, timeout_s

    async def apply(
        self, passages: Sequence[Passage], removals: Sequence[Removal], accounts: Sequence[AccountChange] = ()
    ) -> "ApplyReport":
        report: ApplyReport = await self._asked(self._handle.apply.remote(passages, removals, accounts))
        return report

    async def search(self, query: "Query") -> list[Match]:
        matches: list[Match] = await self._asked(self._handle.search.remote(query))
        return matches

    async def fetch(self, post_ids: Sequence[str]) -> dict[str, Match]:
        matches: dict[str, Match] = await self._asked(self._handle.fetch.remote(list(post_ids)))
        return matches

    async def present(self, post_ids: Sequence[str]) -> set[str]:
        present: set[str] = await self._asked(self._handle.present.remote(list(post_ids)))
        return present

    async def copies(self, matches: Sequence[Match], limit: int = 200) -> "dict[str, list[Copy]]":
        copies: dict[str, list[Copy]] = await self._asked(self._handle.copies.remote(list(matches), limit))
        return copies

    async def receipt(self, post_id: str) -> Receipt | None:
        receipt: Receipt | None = await self._asked(self._handle.receipt.remote(post_id))
        return receipt

    async def summary(self) -> "Summary":
        summary: Summary = await self._asked(self._handle.summary.remote())
        return summary

    async def maintain(self, now_ms: int) -> None:
        """Its owner does that by itself."""

    async def close(self) -> None:
        """Its owner does that by itself."""

    async def _asked(self, response: Any) -> Any:
        return await call("Index", response, self._timeout_s)


class RemoteRetriever:
    """`publisher`, when the network itself may be asked about what the index has too little fresh of."""

    def __init__(
        self,
        handle: DeploymentHandle[Any],
        publisher: DeploymentHandle[Any] | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        self._handle, self._publisher, self._timeout_s = handle, publisher, timeout_s

    async def search(self, ask: "Ask") -> "Found":
        found = await self._search(ask)
        if self._publisher is None or not _may_be_on_x(ask, found) or _fresh(found.matches) >= ENOUGH_FRESH:
            return found
        try:
            looked_up = await call("Publisher", self._publisher.look_up.remote(ask.question), LOOK_UP_S)
            await self._until_present(looked_up)
        except Unavailable:
            return found
        return await self._search(ask) if looked_up else found

    async def _search(self, ask: "Ask") -> "Found":
        found: Found = await call("Retriever", self._handle.search.remote(ask), self._timeout_s)
        return found

    async def _until_present(self, post_ids: Sequence[str]) -> None:
        """Waits for the posts to come through the topic, the screen and the embedder; not for ever: some may not."""
        with suppress(TimeoutError):
            async with asyncio.timeout(INDEXED_S if post_ids else 0):
                while await self.present(post_ids) != set(post_ids):  # noqa: ASYNC110 - an index tells nobody
                    await asyncio.sleep(0.05)

    async def present(self, post_ids: Sequence[str]) -> set[str]:
        present: set[str] = await call("Retriever", self._handle.present.remote(list(post_ids)), self._timeout_s)
        return present

    async def embed(self, texts: Sequence[str]) -> "np.ndarray":
        """Ingest's own: gives way to questions."""
        vectors: np.ndarray = await call("Retriever", self._handle.embed.remote(list(texts), False), self._timeout_s)
        return vectors

    async def embed_now(self, texts: Sequence[str]) -> "np.ndarray":
        vectors: np.ndarray = await call("Retriever", self._handle.embed.remote(list(texts), True), self._timeout_s)
        return vectors


def _may_be_on_x(ask: "Ask", found: "Found") -> bool:
    """Whether a fresh post of X could be an answer: else nobody is told of the question, and nothing is spent."""
    is_past = found.until_ms is not None and found.until_ms < time.time_ns() // 1_000_000 - FRESH_MS
    return not is_past and (not ask.sources or "x" in ask.sources)


def _fresh(matches: Sequence[Match]) -> int:
    since_ms = time.time_ns() // 1_000_000 - FRESH_MS
    return sum(not match.clock and match.sort_ms >= since_ms for match in matches)


class RemoteEngine:
    def __init__(self, handle: DeploymentHandle[Any], stall_s: float = 60.0) -> None:
        self._handle, self._stall_s = handle, stall_s

    async def card(self, timeout_s: float = 10.0) -> "ModelCard":
        card: ModelCard = await call("Generator", self._handle.card.remote(), timeout_s)
        return card

    async def streams(self, timeout_s: float) -> int:
        """Answers under way. Waits, like everything else here, until the model is loaded."""
        streams: int = await call("Generator", self._handle.streams.remote(), timeout_s)
        return streams

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[list[Token | Finished], None]:
        """Each item is all that has accumulated. Closing it cancels the generation. Raises what the engine raises."""
        response: Any = self._handle.options(stream=True).generate.remote(request)
        items = aiter(response)
        try:
            while True:
                try:
                    batch = await call("Generator", anext(items), self._stall_s)
                except StopAsyncIteration:
                    return
                yield batch
        finally:
            response.cancel()
