"""Stand-ins for the parts of a chat: each a small class with the real one's method names."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ingest.ask import Ask
from ingest.post import Match
from ingest.retrieve import Found
from model_runtime.request import Finished, GenerationRequest, Token
from safety.verdict import Action, Finding, Surface, Verdict


def embed(texts: Sequence[str]) -> np.ndarray:
    """Unit vectors of hashed words: texts that share words are near."""
    rows = np.zeros((len(texts), 384), np.float32)
    for row, text in zip(rows, texts, strict=True):
        for word in text.lower().replace(".", "").split():
            row[int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big") % 384] += 1
        row[0] += 1e-3
        row /= np.linalg.norm(row)
    return rows


def match(post_id: str, text: str, **more: Any) -> Match:
    given = Match(
        post_id=post_id,
        number=0,
        text=text,
        source="test",
        author_id=post_id,
        author_handle=f"{post_id}.example",
        author_name=post_id.title(),
        url=f"https://social.example/{post_id}",
        lang="en",
        created_ms=1_700_000_000_000,
        sort_ms=1_700_000_000_000,
        version_us=1,
        score=1.0,
        vector=tuple(embed([text])[0].tolist()),
    )
    return replace(given, **more)


class FakeRetriever:
    """Finds what it was given. `removed` posts are no longer present."""

    def __init__(self, matches: Sequence[Match]) -> None:
        self.matches = list(matches)
        self.removed: set[str] = set()
        self.asked: list[str] = []
        self.limits: dict[str, Any] = {}  # how time words were understood

    async def search(self, ask: Ask) -> Found:
        self.asked.append(ask.question)
        return Found(tuple(self.matches[: ask.limit]), candidates=len(self.matches), **self.limits)

    async def embed_now(self, texts: Sequence[str]) -> np.ndarray:
        return embed(texts)

    async def present(self, post_ids: Sequence[str]) -> set[str]:
        return set(post_ids) - self.removed


class FakeScreen:
    """Blocks every text that holds a word of `forbidden`; replaces those of `secret` by [SECRET]."""

    def __init__(self, forbidden: str = "", secret: str = "") -> None:
        self.forbidden, self.secret = forbidden, secret
        self.seen: list[tuple[Surface, str]] = []

    async def check(self, text: str, surface: Surface) -> Verdict:
        self.seen.append((surface, text))
        if self.forbidden and self.forbidden in text:
            return Verdict(Action.BLOCK, "", (Finding("content", "forbidden", 0, len(text), Action.BLOCK),))
        if self.secret and self.secret in text:
            finding = Finding("pii", "secret", 0, len(text), Action.REWRITE)
            return Verdict(Action.REWRITE, text.replace(self.secret, "[SECRET]"), (finding,))
        return Verdict(Action.ALLOW, text)

    async def check_many(self, texts: Sequence[str], surface: Surface) -> list[Verdict]:
        return [await self.check(text, surface) for text in texts]


class WordTokenizer:
    """One token a word, and three more for each turn."""

    def count(self, text: str) -> int:
        return len(text.split())

    def render(self, messages: Sequence[tuple[str, str]], add_generation_prompt: bool = True) -> list[int]:
        return [7] * (sum(3 + len(text.split()) for _, text in messages) + 3 * add_generation_prompt)


@dataclass
class FakeCard:
    context_tokens: int = 2048
    tokenizer: WordTokenizer = field(default_factory=WordTokenizer)


class ScriptedEngine:
    """Yields the pieces it was given, `batch` tokens at once; a piece that is an exception is raised instead."""

    def __init__(
        self, *pieces: str | Exception, reason: str = "stop", context_tokens: int = 2048, batch: int = 1
    ) -> None:
        self.pieces, self.reason, self.batch = pieces, reason, batch
        self.fake_card = FakeCard(context_tokens)
        self.requests: list[GenerationRequest] = []
        self.yielded = 0
        self.closed = 0

    async def card(self) -> Any:
        return self.fake_card

    async def generate(self, request: GenerationRequest) -> AsyncIterator[list[Token | Finished]]:
        self.requests.append(request)
        waiting: list[Token | Finished] = []
        try:
            for number, piece in enumerate(self.pieces):
                if isinstance(piece, Exception):
                    raise piece
                self.yielded += 1
                waiting.append(Token(number, piece))
                if len(waiting) == self.batch:
                    yield waiting
                    waiting = []
            reason: Any = self.reason
            yield [*waiting, Finished(reason, len(request.prompt_ids), len(self.pieces))]
        finally:
            self.closed += 1
