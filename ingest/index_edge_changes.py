"""Changes to the embedded index: one batch's slice, one account, what a removal takes with it. Blocking."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import qdrant_edge as edge

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
from ingest.index_rules import MAX_POINTS, AccountEntry, Doomed, Entry, fold, fold_accounts, was_shown, without_reposts
from ingest.index_tier import Tier, payload_in
from ingest.post import AccountChange, Passage, Removal

PAGE = 1000  # of a scroll without vectors: about 5 ms
SOME_IDS = 500  # in one condition


class Changes:
    """Every post is in one tier; new versions are written hot, and tombstones and accounts are kept there.

    Hot is written first, then warm: after a kill in between a post may be in both, and hot is right. The batch comes
    again and ends it. What a removal takes with it is hidden at once, and removed some posts at a time
    (`remove_doomed`).
    """

    def __init__(self, hot: Tier, warm: Tier | None, clock: Callable[[], int]) -> None:
        self._hot, self._clock = hot, clock
        self._warm = warm
        self._tiers = (hot, warm) if warm else (hot,)
        self.doomed: list[Doomed] = []

    def slice(self, passages: Sequence[Passage], removals: Sequence[Removal]) -> ApplyReport:
        reposted = {passage.post.repost_of for passage in passages if passage.post.repost_of is not None}
        changing = {*(passage.post.id for passage in passages), *(removal.post_id for removal in removals)}
        hot, warm = (self._entries(tier, changing | reposted) for tier in (self._hot, self._warm))
        stored = {**warm, **hot}
        accounts = self._accounts({passage.post.account for passage in passages} - {""})
        changed, report = fold(stored, passages, removals, accounts)
        self._write(without_reposts(stored, changed), hot, warm)
        return report

    def account(self, change: AccountChange) -> ApplyReport:
        """Hides, shows or dooms all of its posts, and the reposts of them."""
        stored = self._accounts({change.account})
        changed = fold_accounts(stored, [change])
        if change.account not in changed:
            return ApplyReport()
        entry, before = changed[change.account], stored.get(change.account)
        payload = account_payload(entry, self._clock())
        self._hot.upsert([edge.Point(account_point_id(change.account), {}, payload)])
        if entry.state == "active" and (before is None or was_shown(before, entry)):
            return ApplyReport()
        post_ids = self._post_ids([Condition("account", (change.account,))])
        mark = NO if entry.state == "active" else YES
        for tier in self._tiers:
            tier.set_where([Condition("account", (change.account,))], {"hidden": mark})
        self._mark_reposts(post_ids, mark)
        if entry.state == "deleted":
            event_ms = entry.version_us // 1000
            self.doomed += [Doomed(post_id, "account", event_ms) for post_id in post_ids]
        return ApplyReport(removed=len(post_ids) if entry.state == "deleted" else 0)

    def remove_doomed(self) -> ApplyReport:
        """Some of them."""
        some, self.doomed = self.doomed[:MAX_POINTS], self.doomed[MAX_POINTS:]
        if some:
            post_ids = {doomed.post_id for doomed in some}
            hot, warm = (self._entries(tier, post_ids) for tier in (self._hot, self._warm))
            stored = {**warm, **hot}
            live = [doomed for doomed in some if doomed.post_id in stored and stored[doomed.post_id].pieces]
            changed = {doomed.post_id: doomed.entry(stored[doomed.post_id]) for doomed in live}
            self._write(changed, hot, warm)
        return ApplyReport()

    def _write(self, changed: Mapping[str, Entry], hot: Mapping[str, Entry], warm: Mapping[str, Entry]) -> None:
        """`hot`, `warm`: what these tiers hold of the posts that change, and of those that they repost.

        Surplus pieces go first: were the process killed in between, the old head tells the next try of them.
        """
        now_ms, known = self._clock(), {**warm, **hot, **changed}
        self._note_wear(changed, hot, warm, now_ms)
        self._hot.delete(surplus(changed, hot))
        new = {post_id: entry for post_id, entry in changed.items() if entry is not hot.get(post_id)}
        self._hot.upsert([point for post_id, entry in new.items() for point in _points(post_id, entry, known, now_ms)])
        if self._warm:
            self._warm.delete(
                [i for post_id in changed if post_id in warm for i in _ids(post_id, warm[post_id].pieces)]
            )
        self._mark_reposts([post_id for post_id, entry in changed.items() if entry.is_hidden and entry.pieces], YES)
        self._doom_reposts({post_id: entry for post_id, entry in changed.items() if not entry.pieces})

    def _note_wear(
        self, changed: Mapping[str, Entry], hot: Mapping[str, Entry], warm: Mapping[str, Entry], now_ms: int
    ) -> None:
        """What is written over or removed stays in the files until a vacuum. A warm post was hot once. Noted before it
        is done: after a kill in between, nothing would tell any more that there was a text."""
        over = [post_id for post_id in changed if post_id in hot and hot[post_id].pieces]
        self._hot.wear.dead += len(over)
        if over or any(post_id in warm for post_id in changed):
            self._hot.wear.removed(now_ms)
        if self._warm and any(post_id in warm for post_id in changed):
            self._warm.wear.removed(now_ms)

    def _doom_reposts(self, removed: Mapping[str, Entry]) -> None:
        if not removed:
            return
        condition = Condition("repost_of", tuple(map(storable, removed)))
        entry_of_stored = {storable(post_id): entry for post_id, entry in removed.items()}
        for tier in self._tiers:
            found = list(self._scroll(tier, [condition], ["post_id", "repost_of"]))
            if found:
                tier.set_where([condition], {"original_hidden": YES})
            for payload in found:
                event_ms = entry_of_stored[payload["repost_of"]].event_ms
                self.doomed.append(Doomed(payload["post_id"], "repost", event_ms))

    def _mark_reposts(self, post_ids: Sequence[str], mark: str) -> None:
        for start in range(0, len(post_ids), SOME_IDS):
            condition = Condition("repost_of", tuple(storable(i) for i in post_ids[start : start + SOME_IDS]))
            for tier in self._tiers:
                tier.set_where([condition], {"original_hidden": mark})

    def _post_ids(self, conditions: Sequence[Condition]) -> list[str]:
        return [payload["post_id"] for tier in self._tiers for payload in self._scroll(tier, conditions, ["post_id"])]

    def _scroll(self, tier: Tier, conditions: Sequence[Condition], fields: Sequence[str]) -> Iterator[Payload]:
        offset: str | None = None
        while True:
            payloads, offset = tier.scroll([*POSTS, *conditions], fields, PAGE, offset)
            yield from payloads
            if offset is None:
                return

    def _entries(self, tier: Tier | None, post_ids: Iterable[str]) -> dict[str, Entry]:
        return {} if tier is None else entries(tier, post_ids)

    def _accounts(self, accounts: set[str]) -> dict[str, AccountEntry]:
        account_of_point = {account_point_id(account): account for account in accounts}
        records = self._hot.retrieve(account_of_point)
        return {account_of_point[i]: account_entry_of(payload_in(record)) for i, record in records.items()}


def entries(tier: Tier, post_ids: Iterable[str]) -> dict[str, Entry]:
    """What the tier holds of these posts; those never heard of are left out."""
    post_of = {point_id(post_id): post_id for post_id in post_ids}
    records = tier.retrieve(post_of, ENTRY_FIELDS)
    return {post_of[i]: entry_of(payload_in(record)) for i, record in records.items()}


def _ids(post_id: str, pieces: int) -> list[str]:
    return [point_id(post_id, number) for number in range(pieces)]


def _points(post_id: str, entry: Entry, known: Mapping[str, Entry], now_ms: int) -> Iterator[edge.Point]:
    if not entry.pieces:
        yield edge.Point(point_id(post_id), {}, tombstone(entry, now_ms))
    for passage in entry.passages:
        vectors: dict[str, Any] = {}
        if passage.vector:
            vectors = {DENSE: list(passage.vector), BM25: post_terms(passage.text, passage.post.lang)}
        payload = payload_of(passage, entry, known)
        yield edge.Point(point_id(post_id, passage.number), vectors, payload)
