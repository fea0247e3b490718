"""A question -> the posts that bear on it. The plain object inside the Retriever deployment."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol
from zoneinfo import ZoneInfo

import numpy as np

from ingest.ask import Ask
from ingest.duplicates import Said, collapse
from ingest.feedback import SEARCHED, expanded_terms, is_short
from ingest.index import Copy, Query
from ingest.index_bm25 import is_unspaced, question_terms
from ingest.post import Match
from ingest.rank import FLOOR, FLOOR_UNSPACED, above_floor, cap_authors, diversify, rescore
from ingest.thread import context_ids, in_context, is_left_out
from ingest.time_words import read_time_words
from ingest.voices import counted, sayings_of

OVERFETCH = 4  # candidates asked of the index for each match wanted: repeats and busy authors take their share
LEAST_FETCH = 40
COPIES, FEWEST_COPIES, MOST_COPIES = 200, 20, 2000  # of one saying; of all: each costs the index 0.1 ms
MORE_ROUNDS = 3  # of a search that copies have filled
HOUR_MS = 3600 * 1000


class Vectors(Protocol):
    async def embed(self, texts: Sequence[str], *, urgent: bool) -> np.ndarray: ...


class Posts(Protocol):
    """An index, wherever it runs."""

    async def search(self, query: Query) -> list[Match]: ...
    async def fetch(self, post_ids: Sequence[str]) -> dict[str, Match]: ...
    async def copies(self, matches: Sequence[Match], limit: int = 200) -> dict[str, list[Copy]]: ...


class Reranks(Protocol):
    async def rerank(self, question: str, matches: Sequence[Match]) -> list[Match]: ...


@dataclass(frozen=True, slots=True)
class Found:
    """`matches`: best first, each saying something else; empty when no recent post bears on the question. `since_ms`,
    `until_ms`: the limits that were applied, both ends included. `time_words`: what was read as a time in the question,
    as it was written; "" for none. `candidates`: how many pieces of posts the index gave before the floor."""

    matches: tuple[Match, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None
    time_words: str = ""
    candidates: int = 0


class Retrieval:
    """`window_h`: how old a post may be when neither the caller nor the question says. `time_zone`: whose "since 9am"
    is meant when the caller does not say."""

    def __init__(
        self,
        vectors: Vectors,
        posts: Posts,
        *,
        window_h: float,
        time_zone: str = "UTC",
        reranker: Reranks | None = None,
    ) -> None:
        self._vectors, self._posts, self._reranker = vectors, posts, reranker
        self._window_ms = int(window_h * HOUR_MS)
        self._zone = ZoneInfo(time_zone)

    async def search(self, ask: Ask, now_ms: int) -> Found:
        question, found = self._limits(ask, now_ms)
        if not question_terms(question).words:
            return found  # the floor lets nothing pass
        candidates = await self.candidates(_query(ask, question, found, now_ms))
        floor = FLOOR_UNSPACED if is_unspaced(question) else FLOOR
        bearing = [match for match in candidates if above_floor(match, floor)]
        if self._reranker is not None:
            bearing = await self._reranker.rerank(question, bearing)
        matches = await self._completed(_chosen(collapse(bearing), ask.limit), ask)
        return replace(found, matches=tuple(matches), candidates=len(candidates))

    def _limits(self, ask: Ask, now_ms: int) -> tuple[str, Found]:
        """The question without what it says about time, and the limits of time. The caller's own go before."""
        if ask.since_ms is not None or ask.until_ms is not None:
            return ask.question, Found(since_ms=ask.since_ms, until_ms=ask.until_ms)
        zone = ZoneInfo(ask.time_zone) if ask.time_zone else self._zone
        read = read_time_words(ask.question, now_ms, zone) if ask.read_time_words else None
        if read is None:  # a thread is read to its beginning
            since_ms = None if ask.conversation is not None else max(0, now_ms - self._window_ms)
            return ask.question, Found(since_ms=since_ms)
        return read.rest, Found(since_ms=read.since_ms, until_ms=read.until_ms, time_words=read.words)

    async def candidates(self, query: Query) -> list[Match]:
        """Best first, without a floor. A short question is searched for twice: by words alone, while it is embedded, to
        learn what else to look for; then by words and meaning. `vector` and `terms` of the query are filled in."""
        asked = question_terms(query.text)
        embedding = self._vectors.embed([query.text], urgent=True)
        if is_short(asked):
            by_words = replace(query, limit=SEARCHED, now_ms=None)
            vectors, found = await asyncio.gather(embedding, self._posts.search(by_words))
            query = replace(query, terms=expanded_terms(asked, found, vectors[0]))
        else:
            vectors = await embedding
        return await self._past_copies(replace(query, vector=tuple(vectors[0].tolist())))

    async def _past_copies(self, query: Query) -> list[Match]:
        """Where copies fill more than half of what is found, also what is found without their words: forty accounts
        that paste one text must not keep everything else out."""
        found = await self._posts.search(query)
        last, rounds = found, 0
        while len(last) == query.limit and 2 * len(_sayings(last)) < len(last) and rounds < MORE_ROUNDS:
            query = replace(query, without_sayings=(*query.without_sayings, *_sayings(last)))
            last = await self._posts.search(query)
            found, rounds = [*found, *last], rounds + 1
        if not rounds:
            return found
        return rescore(
            found,
            limit=len(found),
            bm25_share=query.bm25_share,
            half_life_ms=query.half_life_ms,
            now_ms=query.now_ms,
        )

    async def _completed(self, chosen: Sequence[Said], ask: Ask) -> list[Match]:
        """With who else says it, in the whole index, and what it replies to or quotes, but for what is left out."""
        said = [member for one in chosen for member in sayings_of(one)]
        around = sorted({post_id for one in chosen for post_id in context_ids(one.match)})
        of_each = min(COPIES, max(FEWEST_COPIES, MOST_COPIES // max(1, len(said))))
        copies, fetched = await asyncio.gather(self._posts.copies(said, of_each), self._posts.fetch(around))
        context = {post_id: post for post_id, post in fetched.items() if not is_left_out(post, ask)}
        return [in_context(counted(one, copies), context) for one in chosen]


def warm_up() -> None:
    """Loads the patterns of time words and the segmenter, most of a second, before a question waits for them."""
    read_time_words("since 9am", 0, ZoneInfo("UTC"))
    question_terms("\u6771\u4eac")


def _sayings(matches: Sequence[Match]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(match.saying for match in matches if match.saying))


def _query(ask: Ask, question: str, limits: Found, now_ms: int) -> Query:
    return Query(
        text=question,
        limit=max(LEAST_FETCH, ask.limit * OVERFETCH),
        now_ms=now_ms,
        since_ms=limits.since_ms,
        until_ms=limits.until_ms,
        half_life_ms=ask.half_life_ms,
        bm25_share=float(ask.bm25_share),
        languages=ask.languages,
        sources=ask.sources,
        authors=ask.authors,
        without_authors=ask.without_authors,
        labels=ask.labels,
        without_labels=ask.without_labels,
        min_likes=ask.min_likes,
        min_reposts=ask.min_reposts,
        min_replies=ask.min_replies,
        conversation=ask.conversation,
    )


def _chosen(said: Sequence[Said], limit: int) -> list[Said]:
    """Few of one author, and not all much alike."""
    left = [said[i] for i in cap_authors([one.match for one in said])]
    if not left:
        return []
    vectors = np.array([one.match.vector for one in left])
    return [
        replace(left[i], match=_damped(left[i].match, factor))
        for i, factor in diversify([one.match.score for one in left], vectors, limit)
    ]


def _damped(match: Match, factor: float) -> Match:
    return replace(match, score=match.score * factor, why={**match.why, "diversity": factor})
