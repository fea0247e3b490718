"""An index of posts, as others see it: its questions and its answers. Knows no vector store.

What every index shares on the inside: index_rules.py (versions, removals, accounts), index_points.py (what is stored).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ingest.post import AccountChange, Match, Passage, Receipt, Removal
from ingest.rank import BM25_SHARE, RECENCY_HALF_LIFE_MS


@dataclass(frozen=True, slots=True)
class Query:
    """What to search for: by words, by meaning, or both. Times are epoch milliseconds, both ends included.

    `vector`: [dim], unit length; empty searches by words alone. Empty filters let everything through.
    """

    text: str
    vector: tuple[float, ...] = field(default=(), repr=False)
    limit: int = 10
    now_ms: int | None = None  # recency counts from here; None ranks without it
    since_ms: int | None = None
    until_ms: int | None = None
    half_life_ms: int = RECENCY_HALF_LIFE_MS
    bm25_share: float = BM25_SHARE  # of the relevance; the rest is cosine
    terms: tuple[tuple[int, float], ...] = ()  # BM25 terms and weights in place of those of `text` (ingest.feedback)
    languages: tuple[str, ...] = ()  # primary subtags, "en" finds "en-US"
    sources: tuple[str, ...] = ()
    authors: tuple[str, ...] = ()  # ids or handles, without a leading @, upper and lower case the same
    without_authors: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()  # any of them
    without_labels: tuple[str, ...] = ()
    without_sayings: tuple[str, ...] = ()  # as `Match.saying`
    min_likes: int = 0
    min_reposts: int = 0
    min_replies: int = 0
    conversation: str | None = None  # only this thread: the post that it began with, and everything in it


@dataclass(frozen=True, slots=True)
class Copy:
    """A post that says, word for word, what another one says (`Match.saying`), or reposts it."""

    post_id: str
    account: str
    sort_ms: int
    is_repost: bool
    is_known_author: bool  # the index holds an earlier post of the author that says something else


@dataclass(frozen=True, slots=True)
class Summary:
    """`posts`: live posts that can be found, in the hot and the warm tier; `newest_ms`: sort time of the newest whose
    clock can be believed."""

    posts: int
    newest_ms: int | None
    warm_posts: int = 0
    removals: int = 0  # tombstones held
    hidden_accounts: int = 0


class PostIndex(Protocol):
    """An index of posts. Each change can be seen by the very next search.

    `apply`: by the version rule (docs/feed.md); account changes first, then passages in the order given, then removals.
    Raises BadPassages before anything is applied. `maintain`: expires, moves to the warm tier, vacuums when due; called
    once a minute or so, and never stops a search for long. Filters and hidden accounts apply to `search`, `fetch`,
    `present` and `copies` alike: what is hidden is nowhere.
    """

    async def apply(
        self,
        passages: Sequence[Passage],
        removals: Sequence[Removal],
        accounts: Sequence[AccountChange] = (),
    ) -> "ApplyReport": ...
    async def search(self, query: Query) -> list[Match]: ...
    async def fetch(self, post_ids: Sequence[str]) -> dict[str, Match]:
        """The first piece of each of the posts that can be found; score 0."""
        ...

    async def present(self, post_ids: Sequence[str]) -> set[str]: ...
    async def copies(self, matches: Sequence[Match], limit: int = 200) -> dict[str, list[Copy]]:
        """By post id of the match: the posts of the same saying and the reposts of it, the earliest `limit` first."""
        ...

    async def receipt(self, post_id: str) -> Receipt | None: ...
    async def summary(self) -> Summary: ...
    async def maintain(self, now_ms: int) -> None: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ApplyReport:
    """How many versions of posts were applied, how many were too old to be, how many posts were removed."""

    applied: int = 0
    stale: int = 0
    removed: int = 0

    def __add__(self, other: "ApplyReport") -> "ApplyReport":
        return ApplyReport(self.applied + other.applied, self.stale + other.stale, self.removed + other.removed)


class BadPassages(ValueError):
    """Passages that no index can hold. Nothing of their batch was applied; `reasons` is by post id."""

    def __init__(self, reasons: dict[str, str]) -> None:
        super().__init__(reasons)
        self.reasons = reasons

    def __str__(self) -> str:
        return "; ".join(f"{post_id!r}: {reason}" for post_id, reason in self.reasons.items())


def storable(text: str) -> str:
    """Surrogate pairs joined, lone surrogates replaced by U+FFFD: the stores take well-formed text only."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def author_key(author: str) -> str:
    """An author's id or handle as it is compared."""
    return storable(author.strip().removeprefix("@").casefold())
