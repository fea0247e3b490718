"""Ranks on a real Ray: an actor that never starts ends the launch, and leaves nothing behind."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from ray.util import placement_group_table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from model_runtime.settings import ModelSettings
from model_runtime.worker import Launch, Ranks


@pytest.fixture
def cluster() -> Iterator[None]:
    folder = tempfile.mkdtemp(prefix="gsw", dir="/tmp")  # a short path: unix sockets live below it
    os.environ["RAY_AUTH_MODE"] = "disabled"
    ray.init(address="local", num_cpus=1, include_dashboard=False, _temp_dir=folder, log_to_driver=False)
    yield
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@ray.remote
class Squatter:
    def here(self) -> None: ...


class Crowded(Ranks):
    """Ranks that have their place, but someone sits on it."""

    def __init__(self, launch: Launch) -> None:
        super().__init__(launch)
        seat = PlacementGroupSchedulingStrategy(self._placement, 0)
        self.squatter = Squatter.options(num_cpus=self._bundle["CPU"], scheduling_strategy=seat).remote()
        ray.get(self.squatter.here.remote())


async def test_an_actor_that_never_starts_ends_the_launch(cluster) -> None:
    launch = Launch(ModelSettings(shards=1), Path("unread.gguf"), None, None, 5, place_timeout_s=30, load_timeout_s=1)
    with pytest.raises(TimeoutError):
        await Crowded.start(launch)
    assert [table["state"] for table in placement_group_table().values()] == ["REMOVED"]
