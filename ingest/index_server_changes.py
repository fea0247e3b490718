"""Changes to the index on a Qdrant server: some passages and removals, one account, what a removal takes with it.

Several writers may be at work. Each reads what is stored, decides (index_rules.py) and writes on condition that nothing
newer has come meanwhile; then it looks again, and does it once more where somebody else was quicker.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qdrant_client import models

from ingest.index import ApplyReport, storable
from ingest.index_bm25 import post_terms
from ingest.index_points import (
    BM25,
    DENSE,
    ENTRY_FIELDS,
    NO,
    POSTS,
    YES,
    Condition,
    Payload,
    account_entry_of,
    account_payload,
    account_point_id,
    entry_of,
    payload_of,
    point_id,
    surplus,
    tombstone,
)
from ingest.index_rules import AccountEntry, Doomed, Entry, fold, fold_accounts, was_shown, without_reposts
from ingest.index_server_calls import REQUEST_BYTES, Calls, Write, payload_in
from ingest.index_server_filter import NEVER, among, not_newer, where
from ingest.post import AccountChange, Passage, Removal

SLICE_POINTS = 256
SOME_IDS = 500  # in one condition
ROUNDS = 5  # with another writer in between each time


@dataclass(slots=True)
class Known:
    """What is stored of the posts and accounts that a slice is about."""

    entries: dict[str, Entry]
    accounts: dict[str, AccountEntry]


class Changes:
    def __init__(self, calls: Calls, clock: Callable[[], int]) -> None:
        self._calls, self._clock = calls, clock
        self._doomed: list[Doomed] = []

    async def slice(self, passages: Sequence[Passage], removals: Sequence[Removal]) -> ApplyReport:
        asked = {passage.post.repost_of for passage in passages if passage.post.repost_of is not None}
        asked |= {passage.post.id for passage in passages} | {removal.post_id for removal in removals}
        accounts = {passage.post.account for passage in passages} - {""}
        known = await self._known(asked, accounts)
        first: ApplyReport | None = None
        for _ in range(ROUNDS):
            changed, report = fold(known.entries, passages, removals, known.accounts)
            changed = without_reposts(known.entries, changed)
            await self._write(changed, known.entries)
            first = first or report
            before, known = known, await self._known(asked, accounts)
            if _has_settled(before, known, changed):
                break
            await self._drop_overtaken(changed, known.entries)
        assert first is not None
        return first

    async def account(self, change: AccountChange) -> ApplyReport:
        """Hides, shows or dooms all of its posts, and the reposts of them."""
        stored = (await self._known((), {change.account})).accounts
        changed = fold_accounts(stored, [change])
        if change.account not in changed:
            return ApplyReport()
        entry, before = changed[change.account], stored.get(change.account)
        point = models.PointStruct(
            id=account_point_id(change.account), vector={}, payload=account_payload(entry, self._clock())
        )
        older = [Condition("version_us", lte=entry.version_us), Condition("account_state", ("deleted",), is_not=True)]
        await self._calls.write([Write([point], where([] if entry.state == "deleted" else older), _size_of(point))])
        if entry.state == "active" and (before is None or was_shown(before, entry)):
            return ApplyReport()
        of_account = Condition("account", (change.account,))
        post_ids = [found["post_id"] async for found in self._calls.scroll([*POSTS, of_account], ["post_id"])]
        mark = NO if entry.state == "active" else YES
        await self._calls.set_where([of_account], {"hidden": mark})
        await self._mark_reposts(post_ids, mark)
        if entry.state != "deleted":
            return ApplyReport()
        self._doomed += [Doomed(post_id, "account", entry.version_us // 1000) for post_id in post_ids]
        return ApplyReport(removed=len(post_ids))

    async def remove_doomed(self) -> None:
        """All of them, and what goes with them."""
        while self._doomed:
            some, self._doomed = self._doomed[:SLICE_POINTS], self._doomed[SLICE_POINTS:]
            stored = (await self._known({doomed.post_id for doomed in some}, ())).entries
            changed = {
                doomed.post_id: doomed.entry(stored[doomed.post_id])
                for doomed in some
                if doomed.post_id in stored and stored[doomed.post_id].pieces
            }
            await self._write(changed, stored)

    async def _known(self, post_ids: Iterable[str], accounts: Iterable[str]) -> Known:
        post_of = {point_id(post_id): post_id for post_id in post_ids}
        account_of = {account_point_id(account): account for account in accounts}
        fields = [*ENTRY_FIELDS, "account_state"]
        records = await self._calls.retrieve([*post_of, *account_of], fields)
        found = {i: payload_in(record) for i, record in records.items()}
        return Known(
            {post_of[i]: entry_of(payload) for i, payload in found.items() if i in post_of},
            {account_of[i]: account_entry_of(payload) for i, payload in found.items() if i in account_of},
        )

    async def _write(self, changed: Mapping[str, Entry], stored: Mapping[str, Entry]) -> None:
        """Surplus pieces go first: were we killed in between, the old head tells the next try of them."""
        await self._calls.delete(surplus(changed, stored))
        known, now_ms = {**stored, **changed}, self._clock()
        new = {post_id: entry for post_id, entry in changed.items() if entry is not stored.get(post_id)}
        points = {post_id: list(_points(post_id, entry, known, now_ms)) for post_id, entry in new.items()}
        await self._calls.write(_writes(new, points, stored))
        hidden = [post_id for post_id, entry in changed.items() if entry.is_hidden and entry.pieces]
        await self._mark_reposts(hidden, YES)
        await self._doom_reposts({post_id: entry for post_id, entry in changed.items() if not entry.pieces})

    async def _drop_overtaken(self, changed: Mapping[str, Entry], now: Mapping[str, Entry]) -> None:
        """Pieces that we wrote of a version whose place another writer's has taken."""
        for post_id, entry in changed.items():
            head = now.get(post_id)
            if head is not None and head.version_us > entry.version_us and head.pieces < entry.pieces:
                rest = [point_id(post_id, number) for number in range(max(head.pieces, 1), entry.pieces)]
                older = Condition("version_us", lte=head.version_us - 1)
                await self._calls.delete_where(among(rest, [older]))

    async def _doom_reposts(self, removed: Mapping[str, Entry]) -> None:
        entries = {storable(post_id): entry for post_id, entry in removed.items()}
        for some in _some(list(entries)):
            reposts = Condition("repost_of", tuple(some))
            found = [p async for p in self._calls.scroll([*POSTS, reposts], ["post_id", "repost_of"])]
            if found:
                await self._calls.set_where([reposts], {"original_hidden": YES})
            for payload in found:
                event_ms = entries[payload["repost_of"]].event_ms
                self._doomed.append(Doomed(payload["post_id"], "repost", event_ms))

    async def _mark_reposts(self, post_ids: Sequence[str], mark: str) -> None:
        for some in _some(post_ids):
            await self._calls.set_where(
                [Condition("repost_of", tuple(map(storable, some)))], {"original_hidden": mark}
            )  # fmt: skip


def _has_settled(before: Known, now: Known, changed: Mapping[str, Entry]) -> bool:
    """Whether what was decided holds: nothing that it was decided by has changed, but for what we have written."""
    for post_id, entry in changed.items():
        head = now.entries.get(post_id)
        if head is None or (head.version_us, head.pieces) != (entry.version_us, entry.pieces):
            return False
    others = before.entries.keys() | now.entries.keys()
    return before.accounts == now.accounts and all(
        _same(before.entries.get(post_id), now.entries.get(post_id)) for post_id in others - changed.keys()
    )


def _same(one: Entry | None, other: Entry | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.version_us, one.pieces, one.is_hidden) == (other.version_us, other.pieces, other.is_hidden)


def _writes(
    changed: Mapping[str, Entry], points: Mapping[str, list[models.PointStruct]], stored: Mapping[str, Entry]
) -> Iterator[Write]:
    """First pieces come last: a post is there when all of it is. Those that nobody has written yet go together, all
    others on a condition of their own."""
    heads: list[Write] = []
    new: list[models.PointStruct] = []
    for post_id, entry in changed.items():
        head, *rest = points[post_id]
        may_replace = not_newer(entry.version_us)
        if not entry.pieces:
            may_replace = where([Condition("version_us", lte=entry.version_us)])
        if rest:
            yield Write(rest, may_replace, sum(map(_size_of, rest)))
        if post_id in stored:
            heads.append(Write([head], may_replace, _size_of(head)))
        else:
            new.append(head)
    yield from heads
    yield from _together(new)


def _together(points: Iterable[models.PointStruct]) -> Iterator[Write]:
    held: list[models.PointStruct] = []
    size = 0
    for point in points:
        more = _size_of(point)
        if held and size + more > REQUEST_BYTES:
            yield Write(held, NEVER, size)
            held, size = [], 0
        held.append(point)
        size += more
    if held:
        yield Write(held, NEVER, size)


def _points(post_id: str, entry: Entry, known: Mapping[str, Entry], now_ms: int) -> Iterator[models.PointStruct]:
    if not entry.pieces:
        yield models.PointStruct(id=point_id(post_id), vector={}, payload=tombstone(entry, now_ms))
    for passage in entry.passages:
        vectors: dict[str, Any] = {}
        if passage.vector:
            terms = post_terms(passage.text, passage.post.lang)
            vectors = {
                DENSE: list(passage.vector),
                BM25: models.SparseVector(indices=list(terms.indices), values=list(terms.values)),
            }
        payload = payload_of(passage, entry, known)
        yield models.PointStruct(id=point_id(post_id, passage.number), vector=vectors, payload=payload)


def _size_of(point: models.PointStruct) -> int:
    """Bytes as JSON, at most about: a float has 20 characters, any other may be escaped."""
    vectors: Any = point.vector
    numbers = sum(2 * len(v.indices) if isinstance(v, models.SparseVector) else len(v) for v in vectors.values())
    payload: Payload = point.payload or {}
    return 1000 + 22 * numbers + 6 * sum(len(value) for value in payload.values() if isinstance(value, str))


def _some(ids: Sequence[str]) -> list[Sequence[str]]:
    return [ids[start : start + SOME_IDS] for start in range(0, len(ids), SOME_IDS)]
