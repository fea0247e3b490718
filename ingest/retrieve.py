"""A question -> the posts that bear on it. The plain object inside the Retriever deployment."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ingest.duplicates import collapse
from ingest.index import Query
from ingest.post import Match
from ingest.rank import above_floor, cap_authors

OVERFETCH = 4  # candidates asked of the index for each match wanted: repeats and busy authors take their share
HOUR_MS = 3600 * 1000


class Vectors(Protocol):
    async def embed(self, texts: Sequence[str], *, urgent: bool) -> np.ndarray: ...


class Posts(Protocol):
    """An index, wherever it runs."""

    async def search(self, query: Query) -> list[Match]: ...


class Retrieval:
    def __init__(self, vectors: Vectors, posts: Posts) -> None:
        self._vectors = vectors
        self._posts = posts

    async def search(self, question: str, *, limit: int, now_ms: int, window_h: float) -> list[Match]:
        """The best `limit` posts of the last `window_h` hours, best first, each saying something else.

        [] when nothing is above the floor: there are no recent posts on this.
        """
        if not question.strip():
            return []
        vector = (await self._vectors.embed([question], urgent=True))[0]
        query = Query(
            text=question,
            vector=tuple(vector.tolist()),
            limit=limit * OVERFETCH,
            now_ms=now_ms,
            since_ms=now_ms - int(window_h * HOUR_MS),
        )
        found = await self._posts.search(query)
        return cap_authors(collapse([match for match in found if above_floor(match)]), limit)
