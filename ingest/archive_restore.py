"""Posts out of the archive's files again, without what the ledger says has been removed."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from ingest.archive_hours import Hours
from ingest.archive_ledger import DELETED, HIDDEN, REMOVED, UNKNOWN, Ledger
from ingest.archive_rows import ACCOUNT, POST, column_keys, posts_of
from ingest.archive_store import StoredFile
from ingest.post import Post


def restored_hour(
    hours: Hours, ledger: Ledger, hour_ms: int, since_ms: int, until_ms: int, hidden: pa.Array
) -> Iterator[Post]:
    """The newest version of each post of the hour, within the limits. `hidden`: ids whose reposts stay out."""
    files = hours.files[hour_ms]
    newest_of = _newest_of(hours, files) if len(files) > 1 else None
    for file in files:
        table = hours.table(file)
        if table is None:
            continue
        sort_ms = pc.min_element_wise(table["created_ms"], table["received_ms"])
        table = table.filter(pc.and_(pc.greater_equal(sort_ms, since_ms), pc.less_equal(sort_ms, until_ms)))
        table = allowed(table, ledger, least=HIDDEN)
        table = table.filter(pc.invert(pc.is_in(table["repost_of"], hidden)))
        for post in posts_of(table):
            if newest_of is None:
                yield post
            elif newest_of.get(post.id) == post.version_us:
                del newest_of[post.id]  # the same version may lie in two files
                yield post


def posts_of_hidden(hours: Hours, ledger: Ledger) -> pa.Array:
    """Ids of the posts of hidden accounts: reposts of them may hold their text."""
    ids: list[str] = []
    for _, file in hours.holding(ledger.accounts(HIDDEN)):
        table = hours.table(file, ("id", "account"))
        if table is not None:
            is_hidden = ledger.find(column_keys(table, "account", ACCOUNT))["state"] == HIDDEN
            ids += table.filter(pa.array(is_hidden))["id"].to_pylist()
    return pa.array(ids, type=pa.string())


def allowed(table: pa.Table, ledger: Ledger, least: int = DELETED) -> pa.Table:
    """Without what was removed; `least`: HIDDEN leaves out posts of hidden accounts, too."""
    posts = ledger.find(column_keys(table, "id", POST))
    originals = ledger.find(column_keys(table, "repost_of", POST))
    accounts = ledger.find(column_keys(table, "account", ACCOUNT))
    goes = (posts["state"] != UNKNOWN) & (table["version_us"].to_numpy() <= posts["version_us"])
    goes |= (originals["state"] == REMOVED) | (accounts["state"] >= least)
    return table.filter(pa.array(~goes))


def _newest_of(hours: Hours, files: list[StoredFile]) -> dict[str, int]:
    newest: dict[str, int] = {}
    for file in files:
        table = hours.table(file, ("id", "version_us"))
        for row in table.to_pylist() if table is not None else ():
            newest[row["id"]] = max(row["version_us"], newest.get(row["id"], row["version_us"]))
    return newest
