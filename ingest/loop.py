"""Reads the topic and keeps the index true to it: read, decode, screen, split, embed, apply, commit.

A batch is committed only after all of it is in the index. When a part fails, the batch waits and tries again, for ever:
nothing is skipped. Knows no broker, no model and no store.
"""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from ingest.byline import PostVerdict, byline_texts, shown
from ingest.post import Malformed, Passage, Post, Removal
from ingest.record import decode
from ingest.split import split
from ingest.versions import Newest

log = logging.getLogger(__name__)
T = TypeVar("T")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
# Of one call to the screen or the embedder: a batch of long posts would never be done within its timeout.
CALL_TEXTS, CALL_CHARACTERS = 64, 20_000
MAX_FIELD_NAMES = 200  # counted by name: the names come from outside


class RawRecord(Protocol):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Batch(Protocol):
    records: tuple[Any, ...]  # of RawRecord
    received_ms: int


class Feed(Protocol):
    newest_ms: int | None
    failed_commits: int

    @property
    def fault(self) -> str: ...  # "" when healthy
    @property
    def lag_records(self) -> int: ...
    def __aiter__(self) -> AsyncIterator[Any]: ...  # of Batch
    async def commit(self, batch: Any) -> None: ...
    async def set_aside(self, record: Any, reason: str) -> None: ...
    async def close(self) -> None: ...


class PostScreen(Protocol):
    async def check_posts(self, texts: Sequence[str]) -> Sequence[PostVerdict]: ...


class PostEmbedder(Protocol):
    async def embed(self, texts: Sequence[str]) -> Any: ...  # one vector a text, an array or lists


class PostStore(Protocol):
    async def apply(self, passages: Sequence[Passage], removals: Sequence[Removal]) -> Any: ...


@dataclass(frozen=True, slots=True)
class IngestStats:
    """Counts since the start; times are epoch milliseconds. `reason` says why it is not healthy, "" when it is."""

    healthy: bool
    reason: str
    lag_records: int
    newest_ms: int | None  # the newest record's own time
    last_applied_ms: int | None
    records: int = 0
    posts: int = 0  # versions handed to the index
    removals: int = 0
    rewritten: int = 0
    blocked: int = 0
    empty: int = 0
    refused_consent: int = 0
    retries: int = 0
    failed_commits: int = 0
    malformed: dict[str, int] = field(default_factory=dict)  # by reason
    dropped_fields: dict[str, int] = field(default_factory=dict)  # by field, of records that were accepted


class IngestLoop:
    def __init__(
        self,
        feed: Feed,
        screen: PostScreen,
        embedder: PostEmbedder,
        index: PostStore,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._feed, self._screen, self._embedder, self._index = feed, screen, embedder, index
        self._clock, self._sleep = clock, sleep
        self._counts: Counter[str] = Counter()
        self._malformed: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._failing = ""
        self._last_applied_ms: int | None = None

    async def run(self) -> None:
        """Returns when the feed ends. Cancel it at any time: what was not committed is delivered again."""
        try:
            async for batch in self._feed:
                await self._ingest(batch)
                await self._feed.commit(batch)
        finally:
            await self._feed.close()

    def stats(self) -> IngestStats:
        reason = self._failing or self._feed.fault
        return IngestStats(
            healthy=not reason,
            reason=reason,
            lag_records=self._feed.lag_records,
            newest_ms=self._feed.newest_ms,
            last_applied_ms=self._last_applied_ms,
            failed_commits=self._feed.failed_commits,
            malformed=dict(self._malformed),
            dropped_fields=dict(self._dropped),
            **self._counts,
        )

    async def _ingest(self, batch: Batch) -> None:
        newest = Newest(await self._decoded(batch))
        posts = await self._screened(newest)
        passages = await self._embedded(posts, newest)
        await self._applied(passages, newest.removals)
        self._last_applied_ms = self._clock()

    async def _decoded(self, batch: Batch) -> list[Post | Removal]:
        """In order. Records that are no posts go to the dead letters, or wait until they can."""
        decoded: list[Post | Removal] = []
        dropped: Counter[str] = Counter()
        for raw in batch.records:
            record = decode(
                raw.key,
                raw.value,
                raw.headers,
                timestamp_ms=raw.timestamp_ms,
                received_ms=batch.received_ms,
                dropped=dropped,
            )
            self._counts["records"] += 1
            if isinstance(record, Malformed):
                await self._set_aside(raw, record)
                continue
            decoded.append(record)
            self._counts["empty"] += isinstance(record, Removal) and record.reason == "empty"
            self._counts["refused_consent"] += isinstance(record, Removal) and record.reason == "consent"
        for name, count in dropped.items():
            known = name in self._dropped or len(self._dropped) < MAX_FIELD_NAMES
            self._dropped[name if known else "(others)"] += count
        return decoded

    async def _set_aside(self, raw: RawRecord, malformed: Malformed) -> None:
        self._malformed[malformed.reason] += 1
        where = (raw.topic, raw.partition, raw.offset)
        log.warning("no post: %s, topic %s, partition %d, offset %d", malformed.reason, *where)
        await self._until_done("dead letters", lambda: self._feed.set_aside(raw, malformed.reason))

    async def _screened(self, newest: Newest) -> list[Post]:
        """Posts as they may be shown, their bylines too. A blocked one takes its older versions with it."""
        posts = newest.posts
        texts = list(dict.fromkeys(text for post in posts for text in (post.text, *byline_texts(post))))
        verdicts: list[PostVerdict] = await self._asked("screen", self._screen.check_posts, texts)
        verdict_of = dict(zip(texts, verdicts, strict=True))
        screened = []
        for post in posts:
            verdict = verdict_of[post.text]
            if verdict.action >= 2:
                self._counts["blocked"] += 1
                newest.add(Removal(post.id, post.version_us, "screened", if_newer=True))
                continue
            self._counts["rewritten"] += verdict.action == 1
            screened.append(replace(shown(post, verdict_of), text=verdict.text))
        return screened

    async def _embedded(self, posts: list[Post], newest: Newest) -> list[Passage]:
        pieces = [(post, number, text) for post in posts for number, text in enumerate(split(post.text))]
        searchable = {post.id for post, _, _ in pieces}
        texts = [text for _, _, text in pieces]
        vectors: list[Sequence[float]] = await self._asked("embedder", self._embedder.embed, texts)
        passages = [
            Passage(post, number, text, tuple(float(part) for part in vector))
            for (post, number, text), vector in zip(pieces, vectors, strict=True)
        ]
        # A vector that is not finite would never be found, or would fail the whole batch for ever.
        unusable = {passage.post.id for passage in passages if not all(map(math.isfinite, passage.vector))}
        self._malformed.update("vector" for _ in unusable)
        for post in posts:
            if post.id in unusable or post.id not in searchable:
                newest.add(Removal(post.id, post.version_us, "empty", if_newer=True))
        return [passage for passage in passages if passage.post.id not in unusable]

    async def _applied(self, passages: list[Passage], removals: list[Removal]) -> None:
        """The index takes passages before removals; a post that was removed and came back needs it the other way."""
        back = {passage.post.id for passage in passages} & {removal.post_id for removal in removals}
        if back:
            await self._until_done("index", lambda: self._index.apply((), removals))
        if passages or not back:
            now = [] if back else removals
            await self._until_done("index", lambda: self._index.apply(passages, now))
        self._counts["posts"] += len({passage.post.id for passage in passages})
        self._counts["removals"] += len(removals)

    async def _asked(
        self, part: str, ask: Callable[[Sequence[str]], Awaitable[Any]], texts: Sequence[str]
    ) -> list[Any]:
        """One answer a text, a few texts a call; a call that fails is made again, those before it are not."""
        answers: list[Any] = []
        for some in _calls(texts):
            answers.extend(await self._until_done(part, partial(_one_each, ask, some)))
        return answers

    async def _until_done(self, part: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Whatever the part raises, the batch is kept and tried again: better late than lost."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                done = await attempt()
            except Exception as error:  # noqa: BLE001 - an edge of the process: only waiting is right for every fault
                self._counts["retries"] += 1
                self._failing = f"{part}: {type(error).__name__}"
                log.warning("ingest waits for %s: %s", part, type(error).__name__)
                await self._sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            else:
                self._failing = ""
                return done


def _calls(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """In order, at most CALL_TEXTS and CALL_CHARACTERS each; a longer text is a call by itself."""
    start = characters = 0
    for i, text in enumerate(texts):
        if i > start and (i - start == CALL_TEXTS or characters + len(text) > CALL_CHARACTERS):
            yield texts[start:i]
            start, characters = i, 0
        characters += len(text)
    if texts:
        yield texts[start:]


async def _one_each(ask: Callable[[Sequence[str]], Awaitable[Any]], texts: Sequence[str]) -> Any:
    """Raises ValueError when a part answers for more or fewer texts than it was asked about."""
    given = await ask(texts)
    if len(given) != len(texts):
        raise ValueError(f"{len(given)} answers for {len(texts)} texts")
    return given
