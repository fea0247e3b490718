"""Posts <-> Parquet: one row a post, every field of it. Knows no files' places and no removals.

The footer of a file also holds the sorted 64-bit hashes of the post ids, accounts and reposted posts in it (`keys_of`):
eight bytes each, so that a removal finds the files that hold its post without reading them.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ingest.index import storable
from ingest.post import Author, Post

_TEXT, _INT = pa.string(), pa.int64()
SCHEMA = pa.schema(
    [
        pa.field("id", _TEXT, nullable=False),
        pa.field("source", _TEXT, nullable=False),
        pa.field("version_us", _INT, nullable=False),
        pa.field("text", _TEXT, nullable=False),
        pa.field("created_ms", _INT, nullable=False),
        pa.field("received_ms", _INT, nullable=False),
        pa.field("author_id", _TEXT, nullable=False),
        pa.field("author_handle", _TEXT, nullable=False),
        pa.field("author_name", _TEXT, nullable=False),
        pa.field("lang", _TEXT, nullable=False),
        pa.field("url", _TEXT, nullable=False),
        pa.field("edited_ms", _INT),
        pa.field("reply_to", _TEXT),
        pa.field("quote_of", _TEXT),
        pa.field("repost_of", _TEXT),
        pa.field("labels", pa.list_(pa.field("element", _TEXT, nullable=False)), nullable=False),
        pa.field("indexable", pa.bool_(), nullable=False),
        pa.field("likes", _INT, nullable=False),
        pa.field("reposts", _INT, nullable=False),
        pa.field("replies", _INT, nullable=False),
        pa.field("views", _INT),
        pa.field("conversation", _TEXT),
        pa.field("account", _TEXT, nullable=False),
    ]
)
_KEYS = b"groundswell.keys"  # base64, since readers in other languages refuse what is not UTF-8
_AUTHOR = {"author_id": "id", "author_handle": "handle", "author_name": "name"}
POST, ACCOUNT, REPOSTED = "post", "account", "reposted"  # kinds of keys
NO_KEY = 0


class DamagedFile(ValueError):
    """A file that cannot be read as posts of the archive."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True, slots=True)
class RowFile:
    """What the footer of a file says."""

    rows: int
    keys: np.ndarray  # [n] uint64, sorted


def key(kind: str, text: str) -> int:
    return int.from_bytes(blake2b(f"{kind}:{storable(text)}".encode(), digest_size=8).digest())


def column_keys(table: pa.Table, column: str, kind: str) -> np.ndarray:
    """[rows] uint64, NO_KEY where there is none."""
    texts = table[column].to_pylist()
    return np.fromiter((key(kind, text) if text else NO_KEY for text in texts), dtype=np.uint64, count=len(texts))


def table_of(posts: Sequence[Post]) -> pa.Table:
    """Lone surrogates become U+FFFD. Raises OverflowError for numbers beyond 64 bits."""
    columns = {field.name: [_cell(post, field.name) for post in posts] for field in SCHEMA}
    return pa.table(columns, schema=SCHEMA)


def posts_of(table: pa.Table) -> Iterator[Post]:
    for batch in table.to_batches(max_chunksize=1024):
        for row in batch.to_pylist():
            author = Author(*(row.pop(name) for name in _AUTHOR))
            yield Post(**{**row, "author": author, "labels": tuple(row["labels"])})


def newest(table: pa.Table) -> pa.Table:
    """The newest version of each post; of equal ones the first."""
    order = pc.sort_indices(table, [("id", "ascending"), ("version_us", "descending")])
    ordered = table.take(order).combine_chunks()
    if len(ordered) < 2:
        return ordered
    ids = ordered["id"]
    is_first = pc.not_equal(ids.slice(1), ids.slice(0, len(ids) - 1))
    return ordered.filter(pa.chunked_array([pa.array([True]), *is_first.chunks]))


def to_bytes(table: pa.Table) -> bytes:
    """A whole Parquet file."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, SCHEMA, compression="zstd", store_schema=False, write_page_checksum=True) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({_KEYS: _packed(_keys_of(table))})
    content: bytes = sink.getvalue().to_pybytes()
    return content


def footer_bytes(tail: bytes, path: str) -> int:
    """How many bytes at the end of a file hold its footer; `tail`: the last 8 of them, or more. Raises DamagedFile."""
    if len(tail) < 8 or not tail.endswith(b"PAR1"):
        raise DamagedFile(path, "does not end like a Parquet file")
    return int.from_bytes(tail[-8:-4], "little") + 8


def read_footer(footer: bytes, path: str) -> RowFile:
    """From the last `footer_bytes` of a file. Raises DamagedFile."""
    with _damage(path):
        metadata = pq.read_metadata(pa.BufferReader(b"PAR1" + footer))
        return RowFile(metadata.num_rows, _unpacked((metadata.metadata or {})[_KEYS]))


def read(content: bytes, path: str, columns: Sequence[str] = tuple(SCHEMA.names)) -> pa.Table:
    """From a whole file. Raises DamagedFile."""
    with _damage(path):
        with pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True) as parquet:
            if parquet.schema_arrow.remove_metadata() != SCHEMA:
                raise ValueError("its columns are not those of the archive")
            table = parquet.read(columns=list(columns))
        table.validate(full=True)
        return table


def _cell(post: Post, name: str) -> object:
    if name in _AUTHOR:
        return storable(getattr(post.author, _AUTHOR[name]))
    value = getattr(post, name)
    if isinstance(value, tuple):
        return [storable(entry) for entry in value]
    return storable(value) if isinstance(value, str) else value


def _keys_of(table: pa.Table) -> np.ndarray:
    """[n] uint64, sorted: what a removal may ask for."""
    columns = [("id", POST), ("account", ACCOUNT), ("repost_of", REPOSTED)]
    keys: np.ndarray = np.unique(np.concatenate([column_keys(table, name, kind) for name, kind in columns]))
    return np.delete(keys, np.flatnonzero(keys == NO_KEY))


def _packed(keys: np.ndarray) -> bytes:
    return b64encode(keys.astype("<u8").tobytes())


def _unpacked(packed: bytes) -> np.ndarray:
    return np.frombuffer(b64decode(packed, validate=True), dtype="<u8")


@contextmanager
def _damage(path: str) -> Iterator[None]:
    """Only what is wrong with bytes that have been read: a store that cannot be reached is no damage."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise DamagedFile(path, f"{type(error).__name__}: {error}".splitlines()[0]) from error
