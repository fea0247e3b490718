"""What a call to the archive has to leave: by the rules of the index, with what its files and its ledger hold.

Reads, and writes nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ingest.archive_hours import Hours
from ingest.archive_ledger import Ledger, LedgerRow, account_row, removed_row
from ingest.archive_rows import ACCOUNT, POST, REPOSTED, key
from ingest.archive_store import FIRST_HOUR_MS, HOUR_MS, LAST_HOUR_MS, StoredFile
from ingest.index import storable
from ingest.index_rules import AccountEntry, Entry, fold, fold_accounts, without_reposts
from ingest.post import AccountChange, Passage, Post, Removal


@dataclass(slots=True)
class Plan:
    posts: list[Post] = field(default_factory=list)  # to be written
    rows: list[LedgerRow] = field(default_factory=list)  # to be remembered
    gone: dict[str, int] = field(default_factory=dict)  # post id -> no version up to this one stays, nor any repost
    superseded: dict[str, int] = field(default_factory=dict)  # post id -> no version before this one stays
    stale: int = 0


def planned(
    hours: Hours,
    ledger: Ledger,
    posts: Sequence[Post],
    removals: Sequence[Removal],
    changes: Sequence[AccountChange],
) -> Plan:
    """Account changes first, then removals, then posts. Raises ValueError for posts of no hour."""
    accounts = _known_accounts(ledger, {*(change.account for change in changes), *(post.account for post in posts)})
    changed_accounts = fold_accounts(accounts, changes)
    removals = [*_of_deleted(hours, changed_accounts), *removals]
    remembered = {
        post_id: row
        for post_id in {*(removal.post_id for removal in removals), *(post.id for post in posts)}
        if (row := ledger.removed(post_id)) is not None
    }
    held = _held(hours, posts, {*(removal.post_id for removal in removals), *remembered})
    stored = {post_id: Entry(version_us, 1) for post_id, version_us in held.items()}
    for post_id, (version_us, _) in remembered.items():
        if held.get(post_id, version_us) <= version_us:
            stored[post_id] = Entry(version_us, 0)
    removed, report = fold(stored, (), removals)
    removed |= _reposts_of(hours, removed)
    news = [post for post in posts if post.id in removed or held.get(post.id) != post.version_us]
    kept, _ = fold(
        {**stored, **removed}, [Passage(post, 0, "", ()) for post in news], (), {**accounts, **changed_accounts}
    )
    kept = without_reposts({**_gone_originals(ledger, posts), **stored, **removed}, kept)
    removed |= _reposts_of(hours, {post_id: entry for post_id, entry in kept.items() if not entry.pieces})
    plan = Plan()
    _plan_accounts(plan, ledger, changed_accounts)
    _plan_posts(plan, ledger, removed, kept)
    newest = held | {post.id: post.version_us for post in plan.posts}
    edited = {post.id for post in posts if post.edited_ms is not None}
    plan.superseded = {post_id: newest[post_id] for post_id in edited & newest.keys()}
    plan.stale = report.stale + len(posts) - len(plan.posts)
    return plan


def by_hour(posts: Iterable[Post]) -> dict[int, list[Post]]:
    """Raises ValueError for a post of no hour that a folder could be named after."""
    hours: dict[int, list[Post]] = defaultdict(list)
    for post in posts:
        hour_ms = post.sort_ms // HOUR_MS * HOUR_MS
        if not FIRST_HOUR_MS <= hour_ms <= LAST_HOUR_MS:
            raise ValueError(f"{post.id!r}: its time is outside the years 1 to 9999")
        hours[hour_ms].append(post)
    return hours


def _plan_accounts(plan: Plan, ledger: Ledger, changed: Mapping[str, AccountEntry]) -> None:
    for account, entry in changed.items():
        known = ledger.account(account)
        if known is None or (known.state, known.version_us) != (entry.state, entry.version_us):
            plan.rows.append(account_row(account, entry))


def _plan_posts(plan: Plan, ledger: Ledger, removed: Mapping[str, Entry], kept: Mapping[str, Entry]) -> None:
    for post_id, entry in (*removed.items(), *kept.items()):
        known = ledger.removed(post_id)
        if not entry.pieces:
            plan.gone[post_id] = entry.version_us
            if known != (entry.version_us, False):
                plan.rows.append(removed_row(post_id, entry.version_us))
            continue
        plan.posts.append(entry.passages[0].post)
        before = removed[post_id].version_us if post_id in removed else known[0] if known else None
        if before is not None:
            plan.rows.append(removed_row(post_id, before, is_back=True))


def _known_accounts(ledger: Ledger, accounts: Iterable[str]) -> dict[str, AccountEntry]:
    known = {account: ledger.account(account) for account in accounts}
    return {account: entry for account, entry in known.items() if entry is not None}


def _of_deleted(hours: Hours, accounts: Mapping[str, AccountEntry]) -> list[Removal]:
    """A removal of each post of the accounts that are deleted, so that reposts of them go as well."""
    deleted = {account: entry for account, entry in accounts.items() if entry.state == "deleted"}
    files = hours.holding({key(ACCOUNT, account) for account in deleted})
    rows = _rows(hours, files, "account", deleted, ("id", "account"))
    return [Removal(row["id"], deleted[row["account"]].version_us, "account") for row in rows]


def _reposts_of(hours: Hours, gone: Mapping[str, Entry]) -> dict[str, Entry]:
    """The reposts of removed posts, and of these, as removed: they may hold the same text."""
    found: dict[str, Entry] = {}
    new = gone
    while new:
        files = hours.holding({key(REPOSTED, post_id) for post_id in new})
        rows = list(_rows(hours, files, "repost_of", new, ("id", "version_us", "repost_of")))
        versions: dict[str, int] = {}
        for row in rows:
            if row["id"] not in gone and row["id"] not in found:
                versions[row["id"]] = max(row["version_us"], versions.get(row["id"], row["version_us"]))
        new = {post_id: Entry(version_us, 0, reason="repost") for post_id, version_us in versions.items()}
        found |= new
    return found


def _held(hours: Hours, posts: Sequence[Post], anywhere: set[str]) -> dict[str, int]:
    """The newest version of each post that the files hold, by id. An edit may have come to another hour than the post
    before it; of what is not asked for `anywhere`, any other post is looked for in its own hour only."""
    anywhere = anywhere | {post.id for post in posts if post.edited_ms is not None or post.clock == "future"}
    files = set(hours.holding({key(POST, post_id) for post_id in anywhere}))
    for hour_ms, some in by_hour(posts).items():
        files |= set(hours.holding({key(POST, post.id) for post in some}, [hour_ms]))
    held: dict[str, int] = {}
    for row in _rows(hours, files, "id", anywhere | {post.id for post in posts}, ("id", "version_us")):
        held[row["id"]] = max(row["version_us"], held.get(row["id"], row["version_us"]))
    return held


def _rows(
    hours: Hours, files: Iterable[tuple[int, StoredFile]], column: str, wanted: Iterable[str], columns: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Some columns of the rows that have one of the `wanted` texts in one of these."""
    texts = pa.array([storable(text) for text in wanted], type=pa.string())
    for _, file in files:
        table = hours.table(file, columns)
        if table is not None:
            yield from table.filter(pc.is_in(table[column], texts)).to_pylist()


def _gone_originals(ledger: Ledger, posts: Sequence[Post]) -> dict[str, Entry]:
    """The posts that these are reposts of, as far as they were removed and are not back."""
    reposted = {post.repost_of for post in posts if post.repost_of is not None}
    removed = {post_id: ledger.removed(post_id) for post_id in reposted}
    return {post_id: Entry(row[0], 0) for post_id, row in removed.items() if row is not None and not row[1]}
