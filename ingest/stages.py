"""The work of the ingest loop, stage by stage: records to posts, posts to what may be shown, that to passages.

Each stage keeps its parcel and asks its part again, for ever, when that fails. Knows no broker, no model and no store.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from ingest.byline import PostVerdict, byline_texts, shown
from ingest.ingest_stats import Tally
from ingest.parcel import Parcel, RawRecord
from ingest.patience import Patience
from ingest.post import Malformed, Passage, Post, Removal
from ingest.record import decode
from ingest.split import split
from ingest.versions import Newest

log = logging.getLogger(__name__)

# Of one call: a batch of long posts would never be done within its timeout. The screen holds its process meanwhile, and
# questions are screened there too; the embedder stops for them.
SCREEN_TEXTS, SCREEN_CHARACTERS = 64, 20_000
EMBED_TEXTS, EMBED_CHARACTERS = 256, 60_000


class PostScreen(Protocol):
    async def check_posts(self, texts: Sequence[str]) -> Sequence[PostVerdict]: ...


class PostEmbedder(Protocol):
    async def embed(self, texts: Sequence[str]) -> Any: ...  # one vector a text, an array or lists


class LanguageDetector(Protocol):
    def detect(self, texts: Sequence[str]) -> list[str]: ...  # blocking; "" when unsure


class Decoding:
    """Records -> what they leave of posts, removals and account changes. What is no post goes to the dead letters."""

    def __init__(
        self, set_aside: Callable[[RawRecord, str, str], Awaitable[None]], patience: Patience, tally: Tally
    ) -> None:
        self._set_aside, self._patience, self._tally = set_aside, patience, tally

    async def decode(self, parcel: Parcel) -> None:
        dropped: Counter[str] = Counter()
        for batch in parcel.batches:
            for raw in batch.records:
                record = decode(
                    raw.key,
                    raw.value,
                    raw.headers,
                    timestamp_ms=raw.timestamp_ms,
                    received_ms=batch.received_ms,
                    dropped=dropped,
                )
                if isinstance(record, Malformed):
                    await self.refuse(raw, record.reason, record.detail)
                    continue
                if isinstance(record, Post):
                    parcel.raw[record.id] = raw
                elif isinstance(record, Removal):
                    self._tally.counts["empty"] += record.reason == "empty"
                    self._tally.counts["refused_consent"] += record.reason == "consent"
                parcel.newest.add(record)
        self._tally.read(parcel.records)
        self._tally.dropped(dropped)

    async def refuse(self, raw: RawRecord, reason: str, detail: str = "") -> None:
        """Keeps the record where it can be looked at; `detail` says nothing of what the post says."""
        self._tally.malformed[reason] += 1
        where = (raw.topic, raw.partition, raw.offset)
        log.warning("no post: %s, topic %s, partition %d, offset %d", reason, *where)
        await self._patience.until_done("dead letters", lambda: self._set_aside(raw, reason, detail))
        self._tally.counts["dead_letters"] += 1


class Screening:
    """Posts -> posts as they may be shown, their bylines too, each with its language."""

    def __init__(self, screen: PostScreen, languages: LanguageDetector, patience: Patience, tally: Tally) -> None:
        self._screen, self._languages = screen, languages
        self._patience, self._tally = patience, tally

    async def screen(self, newest: Newest) -> None:
        """A blocked post takes its older versions with it."""
        posts = newest.posts
        texts = list(dict.fromkeys(text for post in posts for text in (post.text, *byline_texts(post)) if text))
        verdicts: list[PostVerdict] = await self._patience.asked(
            "screen", self._screen.check_posts, texts, call_texts=SCREEN_TEXTS, call_characters=SCREEN_CHARACTERS
        )
        verdict_of = dict(zip(texts, verdicts, strict=True))
        passed = []
        for post in posts:
            verdict = verdict_of.get(post.text)  # a plain repost has no text
            if verdict is not None and verdict.action >= 2:
                self._tally.counts["blocked"] += 1
                newest.add(Removal(post.id, post.version_us, "screened", if_newer=True))
                continue
            self._tally.counts["rewritten"] += verdict is not None and verdict.action == 1
            passed.append(replace(shown(post, verdict_of), text=verdict.text if verdict is not None else ""))
        for post in await self._with_languages(passed):
            newest.add(post)

    async def _with_languages(self, posts: list[Post]) -> list[Post]:
        unknown = [post.text for post in posts if post.text and not post.lang]
        if not unknown:
            return posts
        found = await asyncio.to_thread(self._languages.detect, unknown)
        self._tally.detected(found)
        language_of = dict(zip(unknown, found, strict=True))
        return [replace(post, lang=post.lang or language_of.get(post.text, "")) for post in posts]


class Embedding:
    """Posts -> passages. A post that leaves nothing to search for takes its older versions away."""

    def __init__(self, embedder: PostEmbedder, decoding: Decoding, patience: Patience, tally: Tally) -> None:
        self._embedder, self._decoding, self._patience, self._tally = embedder, decoding, patience, tally

    async def embed(self, parcel: Parcel) -> None:
        pieces = [(post, split(post.text)) for post in parcel.newest.posts]
        texts = [text for _, of_post in pieces for text in of_post]
        vectors = iter(
            await self._patience.asked(
                "embedder", self._embedder.embed, texts, call_texts=EMBED_TEXTS, call_characters=EMBED_CHARACTERS
            )
        )
        for post, of_post in pieces:
            rows = [next(vectors) for _ in of_post]
            if not of_post and post.repost_of is not None:
                parcel.passages.append(Passage(post, 0, "", ()))
            elif not of_post:
                parcel.newest.add(Removal(post.id, post.version_us, "empty", if_newer=True))
            elif not np.isfinite(rows).all():  # it would never be found, or fail the whole parcel for ever
                parcel.newest.add(Removal(post.id, post.version_us, "empty", if_newer=True))
                await self._decoding.refuse(parcel.raw[post.id], "vector")
            else:
                for number, (text, row) in enumerate(zip(of_post, rows, strict=True)):
                    parcel.passages.append(Passage(post, number, text, tuple(np.asarray(row).tolist())))
