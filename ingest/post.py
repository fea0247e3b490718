"""What travels through ingest: posts, removals, passages, matches. Knows no broker, no index, no network."""

from base64 import b32encode
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

# Clocks differ by minutes; a creation time further ahead of the arrival is wrong or a lie.
FUTURE_MS = 10 * 60 * 1000
# A live feed brings a post within minutes; one that claims to be a day older was imported, or is dated back.
BACKDATED_MS = 24 * 3600 * 1000

AccountState = Literal["active", "hidden", "deleted"]
Clock = Literal["", "future", "backdated"]


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
    conversation: str | None = None  # the post that its thread began with; None: not part of one, or it begins one
    account: str = ""  # account_of its author, kept when the author's id is not shown; "" when there is no author id

    @property
    def sort_ms(self) -> int:
        """A post cannot be newer than its arrival: a future or spoofed creation time is clamped to it."""
        return min(self.created_ms, self.received_ms)

    @property
    def clock(self) -> Clock:
        """ "" when the creation time can be believed; a post whose time cannot is never fresh."""
        if self.created_ms > self.received_ms + FUTURE_MS:
            return "future"
        return "backdated" if self.created_ms < self.received_ms - BACKDATED_MS else ""


def account_of(source: str, author_id: str) -> str:
    """Stands for an author's account everywhere, the same each time, and says nothing about it."""
    return b32encode(sha256(f"{source}:{author_id}".encode("utf-8", "backslashreplace")).digest())[:26].decode().lower()


@dataclass(frozen=True, slots=True)
class AccountChange:
    """Every post of an account, present and to come, is found (active), is not found (hidden), or is gone (deleted).

    Ordered by `version_us` like the versions of a post. `deleted` is final: nothing of the account comes back, and what
    it posted is erased; `hidden` (deactivated, taken down, suspended, protected) ends with `active`.
    """

    source: str
    author_id: str
    state: AccountState
    version_us: int
    reason: str = ""  # the network's own word for it: "takendown", "user_protect"

    @property
    def account(self) -> str:
        return account_of(self.source, self.author_id)


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

    @property
    def event_ms(self) -> int:
        return self.version_us // 1000


@dataclass(frozen=True, slots=True)
class Receipt:
    """Says when a removed post was removed at its source, and when it was gone from the index."""

    post_id: str
    reason: str
    event_ms: int
    purged_ms: int


@dataclass(frozen=True, slots=True)
class Malformed:
    """A record that is no post. `reason` is a short label (never the text) for the dead-letter topic and the counts."""

    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Passage:
    """A searchable piece of a post: `text` has passed the screen, `vector` is unit length.

    A repost without a text of its own is one passage with text "" and vector (): it is counted and never found.
    """

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
    reply_to: str | None = None
    quote_of: str | None = None
    conversation: str | None = None
    account: str = ""
    labels: tuple[str, ...] = ()
    likes: int = 0
    reposts: int = 0
    replies: int = 0
    clock: Clock = ""
    saying: str = ""  # hash of the normalised text: the same for exact repeats
    repeats: int = 1  # how many posts this match stands for, repeats and reposts collapsed
    independent: int = 1  # how many authors said it by themselves; a copy-paste wave counts once
    first_ms: int | None = None  # when it was first said, if earlier than this post
    context: tuple["Match", ...] = ()  # the posts it replies to or quotes, as far as they are found


Record = Post | Removal | AccountChange | Malformed
