"""ray_cluster.yaml is what Ray's own launcher accepts."""

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ray.autoscaler
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def cluster() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "ray_cluster.yaml").read_text())
    return loaded


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((Path(ray.autoscaler.__file__).parent / "ray-schema.json").read_text())
    return loaded


def test_the_cluster_file_matches_rays_schema(cluster: dict[str, Any], schema: dict[str, Any]) -> None:
    jsonschema.validate(cluster, schema)
    validate_config(prepare_config(copy.deepcopy(cluster)))


def test_a_misspelt_key_would_be_seen(cluster: dict[str, Any], schema: dict[str, Any]) -> None:
    cluster["max_worker"] = 3
    with pytest.raises(jsonschema.ValidationError, match="max_worker"):
        jsonschema.validate(cluster, schema)


def test_there_are_cpu_and_gpu_workers_and_a_bare_head(cluster: dict[str, Any]) -> None:
    kinds = cluster["available_node_types"]
    assert kinds[cluster["head_node_type"]]["resources"]["CPU"] == 0
    assert any(kind["resources"].get("GPU") for kind in kinds.values())
    assert any(kind["resources"]["CPU"] and not kind["resources"].get("GPU") for kind in kinds.values())
