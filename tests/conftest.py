"""Fixtures that every ring shares: the fetched weights and broker, a clean environment."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

DATA_DIR = Path(os.environ.get("GROUNDSWELL_DATA_DIR", Path.home() / ".local/share/groundswell"))


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A developer's own GROUNDSWELL_* settings never reach a test."""
    for name in list(os.environ):
        if name.startswith("GROUNDSWELL_"):
            monkeypatch.delenv(name)
    yield


def fetched(relative: str) -> Path:
    path = DATA_DIR / relative
    assert path.exists(), f"{path} is missing: run `groundswell fetch` first (make test does)"
    return path


@pytest.fixture(scope="session")
def gguf_path() -> Path:
    return fetched("models/smollm2-135m-instruct.gguf")


@pytest.fixture(scope="session")
def minilm_path() -> Path:
    return fetched("models/all-minilm-l6-v2")


@pytest.fixture(scope="session")
def tansu_path() -> Path:
    return fetched("bin/tansu")
