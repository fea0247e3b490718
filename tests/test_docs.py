"""What README.md says is so: the tree, the settings, the version."""

import re
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from services.settings import Settings, env_name, setting_names

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
PACKAGES = ("services", "ingest", "model_runtime", "safety")


def tree() -> dict[str, str]:
    """path -> what the README's tree says of it. Two spaces of indent are one folder."""
    block = README.split("<!-- tree -->")[1].split("```")[1]
    found: dict[str, str] = {}
    folders: list[str] = []
    for line in block.strip("\n").splitlines():
        match = re.fullmatch(r"( *)(\S+)\s+(\S.*)", line)
        assert match, f"a line of the tree says nothing of its file: {line!r}"
        depth = len(match[1]) // 2
        folders = folders[:depth]
        path = "".join(folders) + match[2]
        if match[2].endswith("/"):
            folders.append(match[2])
        found[path] = match[3]
    return found


def default_of(name: str) -> Any:
    section: BaseModel = Settings.model_construct(**{field: info.get_default() for field, info in FIELDS.items()})
    for part in name.split("."):
        section = getattr(section, part)
    return section


FIELDS = {name: field for name, field in Settings.model_fields.items() if name != "data_dir"}


def test_the_tree_lists_every_source_file_and_nothing_else() -> None:
    listed = {path for path in tree() if path.endswith(".py")}
    skipped = {"ingest/sources/sample/"}  # one line for the package
    there = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if not any(str(path.relative_to(ROOT)).startswith(folder) for folder in skipped)
    }
    there -= {f"{package}/__init__.py" for package in PACKAGES if package != "services"} | {
        "ingest/sources/__init__.py"
    }
    assert {path for path in listed if path.split("/")[0] in PACKAGES} == there


def test_everything_in_the_tree_exists() -> None:
    missing = [path for path in tree() if not (ROOT / path).exists()]
    assert missing == []


def test_every_setting_has_its_row_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(GROUNDSWELL_[A-Z_]+)` \| (.*?) \|", README, re.MULTILINE))
    assert set(rows) == {env_name(name) for name in setting_names(Settings)}
    for name in setting_names(Settings):
        if name == "data_dir":
            continue
        default = default_of(name)
        shown = "" if default in (None, "") else f"`{str(default).lower() if isinstance(default, bool) else default}`"
        assert rows[env_name(name)] == shown, name


def test_the_changelog_is_at_the_package_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    newest = re.search(r"^## \[?([^\]\s]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None and newest[1] == version


def test_every_document_that_is_linked_exists() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
