"""What travels through ingest: posts, removals, passages, matches. Knows no broker, no index, no network."""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Author:
    id: str
    handle: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Post:
    """One post as its network published it. Times are epoch milliseconds, UTC.

    `version_us` orders the versions of one post: microseconds since the epoch, decoded from the payload
    (docs/feed.md), so that a late-arriving older edit can be told from a newer one. It is never a Kafka offset.
    """

    id: str  # "source:native_id"
    source: str
    version_us: int
    text: str
    created_ms: int
    received_ms: int
    author: Author
    lang: str = ""
    url: str = ""
    edited_ms: int | None = None
    reply_to: str | None = None
    quote_of: str | None = None
    repost_of: str | None = None
    labels: tuple[str, ...] = ()
    indexable: bool = True
    likes: int = 0
    reposts: int = 0
    replies: int = 0
    views: int | None = None

    @property
    def sort_ms(self) -> int:
        """A post cannot be newer than its arrival: a future or spoofed creation time is clamped to it."""
        return min(self.created_ms, self.received_ms)


@dataclass(frozen=True, slots=True)
class Removal:
    """A post that must no longer be found.

    With `if_newer` it is one more version of the post, that has nothing to show: it removes what is stored unless that
    is newer than `version_us`, so that a removal delivered again does not remove a post that has come back since.
    Without, its place in the order is only guessed: it removes whatever is stored. Either way a later version of the
    post may come back: later than `version_us`, and without `if_newer` later than what was stored, too.
    """

    post_id: str
    version_us: int
    reason: str = "deleted"  # "deleted", "consent", "empty", "screened"
    if_newer: bool = False


@dataclass(frozen=True, slots=True)
class Malformed:
    """A record that is no post. `reason` is a short label (never the text) for the dead-letter topic and the counts."""

    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Passage:
    """A searchable piece of a post: `text` has passed the screen, `vector` is unit length."""

    post: Post
    number: int  # 0 for the first piece; most posts have only one
    text: str
    vector: tuple[float, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Match:
    """A passage with its score and why. Everything a citation shows, and nothing that did not pass the screen."""

    post_id: str
    number: int
    text: str
    source: str
    author_id: str
    author_handle: str
    author_name: str
    url: str
    lang: str
    created_ms: int
    sort_ms: int
    version_us: int
    score: float
    why: dict[str, float] = field(default_factory=dict)  # e.g. {"bm25": .., "dense": .., "recency": ..}
    vector: tuple[float, ...] = field(default=(), repr=False)
    repost_of: str | None = None
    repeats: int = 1  # how many posts this match stands for, exact repeats and reposts collapsed


Record = Post | Removal | Malformed
ApplyOutcome = Literal["applied", "stale", "removed"]
