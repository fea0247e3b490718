"""One running service for a module's tests."""

from collections.abc import Iterator

import pytest

from tests.e2e.running import Service, service


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service with an empty feed for a module's tests."""
    folder = tmp_path_factory.mktemp("e2e")
    with service(folder / "data", GROUNDSWELL_FEED__SOURCE="none") as started:
        started.wait_until_ready()
        yield started
