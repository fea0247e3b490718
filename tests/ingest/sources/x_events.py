"""X API v2 objects for tests: the real ones of the shared data, and made ones."""

import gzip
import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from ingest.sources.x import read

REAL = Path(__file__).resolve().parents[4] / "shared/data/retrieval/x_api_v2_real/clef2021_es_dev_tweets.json.gz"
NOW_MS = 1_783_175_888_090  # 2026-07-04T14:38:08.090Z
EPOCH_MS = 1_288_834_974_657


@cache
def _real():
    return json.loads(gzip.decompress(REAL.read_bytes()))


def real():
    if not REAL.exists():
        pytest.skip(f"{REAL} is absent")
    return _real()


def id_at(ms, number=0):
    return str((ms - EPOCH_MS << 22) + number)


def post(native_id=None, text="hello", **fields):
    native_id = id_at(NOW_MS - 1000) if native_id is None else native_id
    return {"id": native_id, "text": text, "author_id": "2244994945", "lang": "en", **fields}


def event(given, *, users=(), posts=(), **rest):
    includes = {"users": [{"id": "2244994945", "username": "ana", "name": "Ana"}, *users]}
    return {"data": given, "includes": includes | ({"tweets": list(posts)} if posts else {}), **rest}


def reading(given, *, chains=None, skipped=None, received_ms=NOW_MS):
    chains = {} if chains is None else chains
    skipped = Counter() if skipped is None else skipped
    return read(given, received_ms=received_ms, chain_of=chains.get, skipped=skipped)


def only(given, **options):
    records = reading(given, **options).records
    assert len(records) == 1
    return records[0]
