"""What tests of the embedded index share: folders for it, asking it, emptying it, reading its files."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ingest.index import Query
from tests.ingest.made import vector

MEMORY = Path("/dev/shm")
ROOM = 4 * 2**30  # an empty index takes a quarter of a GB there


@contextmanager
def quick_folder() -> Iterator[Path]:
    """Gone afterwards; in memory if there is room. An empty index is 800 files, each written through to the disk."""
    has_room = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM
    with tempfile.TemporaryDirectory(prefix="groundswell-test-", dir=MEMORY if has_room else None) as path:
        yield Path(path)


def clear(index):
    """As new: opening one takes longer than most tests."""
    for tier in index.tiers:
        tier.delete_where([])
        assert tier.points == 0


def count(index):
    return index.summary().posts


def words(index, text, **fields):
    """Post ids by words alone, best first."""
    return [match.post_id for match in index.search(Query(text, **fields))]


def meaning(index, text, **fields):
    """Post ids by meaning alone; the vector of a text is near to nothing but itself."""
    return [match.post_id for match in index.search(Query("", vector(text), **fields)) if match.why["cosine"] > 0.5]


def everything(tier):
    """Payloads of all points of a tier."""
    records, following = tier.page(None, 10_000)
    assert following is None
    return [record.payload for record in records]


def in_files(folder, *texts):
    """Those of the texts whose bytes are anywhere in the folder's files."""
    wanted = [part for text in texts for part in ("-e", text)]
    found = subprocess.run(["grep", "-rohaF", *wanted, folder], stdout=subprocess.PIPE, text=True)
    assert found.returncode in (0, 1)
    return set(found.stdout.splitlines())
