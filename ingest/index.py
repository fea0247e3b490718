"""What every index of posts shares: its questions, the version rule, what it stores. Knows no vector store."""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol

import numpy as np

from ingest.post import AccountChange, Match, Passage, Receipt, Removal
from ingest.rank import BM25_SHARE, RECENCY_HALF_LIFE_MS

Payload = dict[str, Any]
MAX_INT = 2**63 - 1
MAX_POINTS = 64  # of one slice: about 8 ms in the embedded index


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
    languages: tuple[str, ...] = ()  # primary subtags, "en" finds "en-US"
    sources: tuple[str, ...] = ()
    authors: tuple[str, ...] = ()  # ids or handles, without a leading @, upper and lower case the same
    without_authors: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()  # any of them
    without_labels: tuple[str, ...] = ()
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


@dataclass(slots=True)
class Entry:
    """What an index knows of one post: its newest version and how many pieces it holds; 0 if removed."""

    version_us: int
    pieces: int
    passages: list[Passage] = field(default_factory=list)  # to be written; empty for what is already stored

    def admits(self, version_us: int) -> bool:
        """The same version again is applied again: a batch replayed after a crash heals what it left half done."""
        return self.version_us <= version_us if self.pieces else self.version_us < version_us


def slices(
    passages: Sequence[Passage], removals: Sequence[Removal], max_points: int = MAX_POINTS
) -> Iterator[tuple[list[Passage], list[Removal]]]:
    """The same changes in the same order, a few at a time, so that a search between two of them waits little.

    No version of a post is cut: one with more pieces than `max_points` is a slice by itself.
    """
    held: list[Passage] = []
    for _, _, pieces in _versions(passages):
        if held and len(held) + len(pieces) > max_points:
            yield held, []
            held = []
        held = held + pieces
    if held:
        yield held, []
    for start in range(0, len(removals), max_points):
        yield [], list(removals[start : start + max_points])


def fold(
    stored: Mapping[str, Entry], passages: Sequence[Passage], removals: Sequence[Removal]
) -> tuple[dict[str, Entry], ApplyReport]:
    """The posts that a batch changes, as they end: passages in the order given, then removals.

    A removal removes whatever is there (with `if_newer`: unless that is newer), and keeps the newer version of the two;
    a post may come back with a version newer still.
    """
    changed: dict[str, Entry] = {}
    applied = stale = removed = 0
    for post_id, version_us, pieces in _versions(passages):
        entry = changed.get(post_id) or stored.get(post_id)
        if entry is None or entry.admits(version_us):
            changed[post_id] = Entry(version_us, len(pieces), pieces)
            applied += 1
        else:
            stale += 1
    for removal in removals:
        entry = changed.get(removal.post_id) or stored.get(removal.post_id) or Entry(removal.version_us, 0)
        if removal.if_newer and entry.pieces and entry.version_us > removal.version_us:
            stale += 1
        else:
            changed[removal.post_id] = Entry(max(removal.version_us, entry.version_us), 0)
            removed += 1
    return changed, ApplyReport(applied, stale, removed)


def check(passages: Iterable[Passage], removals: Iterable[Removal], dim: int) -> None:
    """Raises BadPassages naming every post that cannot be stored: a vector that is not finite or not [dim], pieces
    missing, a number beyond 64 bits."""
    reasons: dict[str, str] = {}
    for post_id, version_us, pieces in _versions(passages):
        post = pieces[0].post
        if [piece.number for piece in pieces] != list(range(len(pieces))):
            reasons[post_id] = f"pieces {[piece.number for piece in pieces]} are not 0, 1, 2 ... of one version"
        if any(abs(number) > MAX_INT for number in (version_us, post.created_ms, post.received_ms)):
            reasons[post_id] = "a time or version does not fit into 64 bits"
        for piece in pieces:
            if len(piece.vector) != dim:
                reasons[post_id] = f"vector has {len(piece.vector)} dimensions, the index {dim}"
            elif not np.isfinite(piece.vector).all():
                reasons[post_id] = "vector is not finite"
    for removal in removals:
        if abs(removal.version_us) > MAX_INT:
            reasons[removal.post_id] = "the removal's version does not fit into 64 bits"
    if reasons:
        raise BadPassages(reasons)


def _versions(passages: Iterable[Passage]) -> Iterator[tuple[str, int, list[Passage]]]:
    """Each version of a post is a run of its pieces, from number 0 on."""
    run = 0

    def version(passage: Passage) -> tuple[str, int, int]:
        nonlocal run
        run += passage.number == 0
        return passage.post.id, passage.post.version_us, run

    for (post_id, version_us, _), pieces in groupby(passages, key=version):
        yield post_id, version_us, list(pieces)


def point_id(post_id: str, number: int = 0) -> str:
    """uuid5 of the post's id; a later piece's is uuid5 of that and its number, so that no other post can have it."""
    head = uuid.uuid5(uuid.NAMESPACE_URL, post_id.encode("utf-8", "backslashreplace").decode())
    return str(uuid.uuid5(head, str(number)) if number else head)


def payload_of(passage: Passage, pieces: int) -> Payload:
    post = passage.post
    payload = {
        "post_id": post.id,
        "number": passage.number,
        "pieces": pieces,
        "text": passage.text,
        "source": post.source,
        "author_id": post.author.id,
        "author_handle": post.author.handle,
        "author_name": post.author.name,
        "url": post.url,
        "lang": post.lang,
        "language": primary_language(post.lang),
        "created_ms": post.created_ms,
        "sort_ms": post.sort_ms,
        "version_us": post.version_us,
        "repost_of": post.repost_of,
    }
    return {key: storable(value) if isinstance(value, str) else value for key, value in payload.items()}


def tombstone(version_us: int, removed_ms: int) -> Payload:
    """All that is left of a removed post. `removed_ms`: when the index was told, whatever the version claims."""
    return {"version_us": version_us, "pieces": 0, "removed_ms": removed_ms}


def without_reposts(stored: Mapping[str, Entry], changed: Mapping[str, Entry]) -> dict[str, Entry]:
    """The changes without reposts of removed posts: they hold the same text. `stored` knows the reposted posts, too."""
    gone = {post_id for post_id, entry in {**stored, **changed}.items() if not entry.pieces}
    left = {}
    for post_id, entry in changed.items():
        if not entry.passages or entry.passages[0].post.repost_of not in gone:
            left[post_id] = entry
        elif post_id in stored:  # it has become a repost: what it was before goes as well
            left[post_id] = Entry(entry.version_us, 0)
    return left


def match_of(payload: Payload, score: float, why: dict[str, float], vector: tuple[float, ...]) -> Match:
    return Match(
        post_id=payload["post_id"],
        number=payload["number"],
        text=payload["text"],
        source=payload["source"],
        author_id=payload["author_id"],
        author_handle=payload["author_handle"],
        author_name=payload["author_name"],
        url=payload["url"],
        lang=payload["lang"],
        created_ms=payload["created_ms"],
        sort_ms=payload["sort_ms"],
        version_us=payload["version_us"],
        score=score,
        why=why,
        vector=vector,
        repost_of=payload["repost_of"],
    )


def primary_language(lang: str) -> str:
    return lang.replace("_", "-").split("-")[0].lower()


def storable(text: str) -> str:
    """Surrogate pairs joined, lone surrogates replaced by U+FFFD: the stores take well-formed text only."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
