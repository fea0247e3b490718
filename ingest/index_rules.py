"""What becomes of a batch in any index: versions, removals, accounts (docs/feed.md). Knows no vector store."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from ingest.index import ApplyReport, BadPassages
from ingest.post import AccountChange, AccountState, Passage, Removal

MAX_INT = 2**63 - 1
MAX_POINTS = 64  # of one slice: about 8 ms in the embedded index
TOMBSTONES_KEPT_MS = 8 * 24 * 3600 * 1000  # and the window: longer than Kafka keeps a topic by default (7 days)


@dataclass(slots=True)
class Entry:
    """What an index knows of one post: its newest version and how many pieces it holds; 0 if removed."""

    version_us: int
    pieces: int
    passages: list[Passage] = field(default_factory=list)  # to be written; empty for what is already stored
    is_hidden: bool = False  # its account is
    reason: str = ""  # of a removed post, as its event_ms and when the index was told; 0: now
    event_ms: int = 0
    removed_ms: int = 0

    def admits(self, version_us: int) -> bool:
        """The same version again is applied again: a batch replayed after a crash heals what it left half done."""
        return self.version_us <= version_us if self.pieces else self.version_us < version_us


@dataclass(frozen=True, slots=True)
class AccountEntry:
    """What an index knows of an account. One never heard of is active."""

    state: AccountState
    version_us: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Doomed:
    """A post that goes because its account, or the post that it repeats, is gone."""

    post_id: str
    reason: str
    event_ms: int

    def entry(self, stored: Entry) -> Entry:
        """What is left of it."""
        return Entry(stored.version_us, 0, reason=self.reason, event_ms=self.event_ms)


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
    stored: Mapping[str, Entry],
    passages: Sequence[Passage],
    removals: Sequence[Removal],
    accounts: Mapping[str, AccountEntry] | None = None,
) -> tuple[dict[str, Entry], ApplyReport]:
    """The posts that a batch changes, as they end: passages in the order given, then removals.

    A removal removes whatever is there (with `if_newer`: unless that is newer), and keeps the newer version of the two;
    a post may come back with a version newer still. `accounts`: those of the passages that are stored. What a hidden
    one posts is taken in, hidden. What a deleted one posts is known as removed, so that reposts of it stay out.
    """
    changed: dict[str, Entry] = {}
    applied = stale = removed = 0
    for post_id, version_us, pieces in _versions(passages):
        entry = changed.get(post_id) or stored.get(post_id)
        account = (accounts or {}).get(pieces[0].post.account)
        if account and account.state == "deleted":
            changed[post_id] = _removed(entry, Removal(post_id, version_us, "account"))
            stale += 1
        elif entry is None or entry.admits(version_us):
            is_hidden = account is not None and account.state == "hidden"
            changed[post_id] = Entry(version_us, len(pieces), pieces, is_hidden)
            applied += 1
        else:
            stale += 1
    for removal in removals:
        entry = changed.get(removal.post_id) or stored.get(removal.post_id)
        if entry is not None and removal.if_newer and entry.pieces and entry.version_us > removal.version_us:
            stale += 1
        else:
            changed[removal.post_id] = _removed(entry, removal)
            removed += 1
    return changed, ApplyReport(applied, stale, removed)


def _removed(entry: Entry | None, removal: Removal) -> Entry:
    """What was removed already stays as it was, unless this removal is newer: a receipt names the first."""
    if entry is not None and not entry.pieces and removal.version_us <= entry.version_us:
        return entry
    version_us = removal.version_us if entry is None else max(removal.version_us, entry.version_us)
    return Entry(version_us, 0, reason=removal.reason, event_ms=removal.event_ms)


def fold_accounts(stored: Mapping[str, AccountEntry], changes: Iterable[AccountChange]) -> dict[str, AccountEntry]:
    """The accounts that change, as they end; those are left out whose change is too old to be applied.

    The same version again is applied again, as with posts. A deletion counts whatever its version: what came after it
    would have changed nothing.
    """
    changed: dict[str, AccountEntry] = {}
    for change in changes:
        assert abs(change.version_us) <= MAX_INT, "the topic's versions fit into 64 bits"
        entry = changed.get(change.account) or stored.get(change.account)
        if change.state == "deleted" and (entry is None or entry.state != "deleted"):
            changed[change.account] = AccountEntry("deleted", change.version_us, change.reason)
        elif entry is None or (entry.state != "deleted" and entry.version_us <= change.version_us):
            changed[change.account] = AccountEntry(change.state, change.version_us, change.reason)
        elif entry.state == change.state == "deleted":  # again: heals what a crash left half done
            changed[change.account] = entry
    return changed


def without_reposts(stored: Mapping[str, Entry], changed: Mapping[str, Entry]) -> dict[str, Entry]:
    """The changes with reposts of removed posts as removed: they may hold the same text. `stored` knows the reposted,
    too. A repost that is refused is known as removed, so that the order in which things come does not matter."""
    gone = {post_id for post_id, entry in {**stored, **changed}.items() if not entry.pieces}
    return {
        post_id: Entry(entry.version_us, 0, reason="repost", event_ms=entry.version_us // 1000)
        if entry.passages and entry.passages[0].post.repost_of in gone
        else entry
        for post_id, entry in changed.items()
    }


def check(passages: Iterable[Passage], removals: Iterable[Removal], dim: int) -> None:
    """Raises BadPassages naming every post that cannot be stored: a vector that is not finite or not [dim], pieces
    missing, a number beyond 64 bits. A repost without a text has no vector and one piece."""
    reasons: dict[str, str] = {}
    for post_id, version_us, pieces in _versions(passages):
        post = pieces[0].post
        if [piece.number for piece in pieces] != list(range(len(pieces))):
            reasons[post_id] = f"pieces {[piece.number for piece in pieces]} are not 0, 1, 2 ... of one version"
        numbers = (version_us, post.created_ms, post.received_ms, post.likes, post.reposts, post.replies)
        if any(abs(number) > MAX_INT for number in numbers):
            reasons[post_id] = "a time, count or version does not fit into 64 bits"
        for piece in pieces:
            if is_bare(piece) and len(pieces) == 1:
                continue
            if len(piece.vector) != dim:
                reasons[post_id] = f"vector has {len(piece.vector)} dimensions, the index {dim}"
            elif not np.isfinite(piece.vector).all():
                reasons[post_id] = "vector is not finite"
    for removal in removals:
        if abs(removal.version_us) > MAX_INT:
            reasons[removal.post_id] = "the removal's version does not fit into 64 bits"
    if reasons:
        raise BadPassages(reasons)


def is_bare(passage: Passage) -> bool:
    """A repost without a text of its own: counted, and never found."""
    return passage.post.repost_of is not None and not passage.text and not passage.vector


def _versions(passages: Iterable[Passage]) -> Iterator[tuple[str, int, list[Passage]]]:
    """Each version of a post is a run of its pieces, from number 0 on."""
    run = 0

    def version(passage: Passage) -> tuple[str, int, int]:
        nonlocal run
        run += passage.number == 0
        return passage.post.id, passage.post.version_us, run

    for (post_id, version_us, _), pieces in groupby(passages, key=version):
        yield post_id, version_us, list(pieces)


def was_shown(before: AccountEntry, now: AccountEntry) -> bool:
    """The same version again may have to end what a kill has cut off."""
    return before.state == "active" and before.version_us < now.version_us
