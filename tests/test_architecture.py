"""Who may import whom (DESIGN.md section 3), and that importing the graph stays cheap."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("services", "ingest", "model_runtime", "safety")

# One door per outside system: module -> the files that may import it.
DOORS = {
    "aiokafka": {"ingest/kafka", "ingest/publish.py", "ingest/dead_letters.py"},
    "qdrant_edge": {"ingest/index_"},
    "qdrant_client": {"ingest/index_"},
    "torch": {"model_runtime/", "ingest/embed.py", "ingest/bert.py", "ingest/rerank.py"},
    "sentence_transformers": {"ingest/embed.py", "ingest/rerank.py"},
    "pyarrow": {"ingest/archive"},
    "fsspec": {"ingest/archive"},
    "websockets": {"ingest/sources/"},
    "feedparser": {"ingest/sources/rss"},
    "ray": {"services/", "model_runtime/worker.py", "model_runtime/group.py", "model_runtime/expert_metrics.py"},
    "starlette": {"services/"},
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def imports(tree: ast.Module) -> Iterator[str]:
    for entry in ast.walk(tree):
        if isinstance(entry, ast.Import):
            yield from (alias.name for alias in entry.names)
        elif isinstance(entry, ast.ImportFrom) and entry.module and entry.level == 0:
            yield entry.module


MODULES = list(modules())


@pytest.mark.parametrize(("path", "tree"), MODULES, ids=[path for path, _ in MODULES])
def test_a_package_imports_only_what_it_may(path: str, tree: ast.Module) -> None:
    package = path.split("/")[0]
    for imported in imports(tree):
        top = imported.split(".")[0]
        if top in PACKAGES and package != "services":
            assert top == package, f"{path} imports {imported}: only services may import a sibling"
        if top in DOORS:
            assert any(path.startswith(door) for door in DOORS[top]), f"{path} imports {imported}: not its door"


@pytest.mark.parametrize(("path", "tree"), MODULES, ids=[path for path, _ in MODULES])
def test_nothing_imports_relatively_and_files_stay_readable(path: str, tree: ast.Module) -> None:
    for entry in ast.walk(tree):
        assert not (isinstance(entry, ast.ImportFrom) and entry.level), f"{path} imports relatively"
        if isinstance(entry, ast.FunctionDef | ast.AsyncFunctionDef):
            assert entry.end_lineno is not None
            lines = entry.end_lineno - entry.lineno + 1
            assert lines <= 60, f"{path}: {entry.name} has {lines} lines"


def test_broad_excepts_stand_only_where_nothing_finer_will_do() -> None:
    """The two process edges, the screen, which fails closed, and Edge's door, as Edge raises bare Exceptions. One that
    ends by raising on cleans up and swallows nothing."""
    edges = {"services/access.py", "ingest/patience.py", "safety/screen.py", "ingest/index_edge.py"}
    for path, tree in MODULES:
        for entry in ast.walk(tree):
            if isinstance(entry, ast.ExceptHandler):
                broad = entry.type is None or (
                    isinstance(entry.type, ast.Name) and entry.type.id in {"Exception", "BaseException"}
                )
                raises_on = isinstance(entry.body[-1], ast.Raise)
                assert not broad or raises_on or path in edges, f"{path}:{entry.lineno} has a broad except"


def test_importing_the_graph_imports_nothing_heavy() -> None:
    """Every replica imports services.app; torch alone would cost each of them more than a second."""
    heavy = {"torch", "transformers", "sentence_transformers", "aiokafka", "qdrant_edge", "phonenumbers"}
    code = "import sys, ray.serve; before = set(sys.modules); import services; print(*sys.modules.keys() - before)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert "services.deployments" in imported
    assert not imported & heavy
