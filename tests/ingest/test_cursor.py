"""Where a source goes on: the old cursor or the new one, whatever happens."""

import logging
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from ingest.cursor import CursorFile


def test_it_comes_back(tmp_path: Path) -> None:
    cursors = CursorFile(tmp_path / "cursors" / "bluesky")
    assert cursors.load() is None
    for cursor in ("1783175888090631", "", "\ud83d\ufffd \n{}", "x" * 100_000):
        cursors.save(cursor)
        assert CursorFile(tmp_path / "cursors" / "bluesky").load() == cursor
    assert [path.name for path in (tmp_path / "cursors").iterdir()] == ["bluesky"]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"{}", b'{"cursor": 7}', b"[]", b"7", b"\x00" * 4096])
def test_a_damaged_file_is_none_and_says_so(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "bluesky"
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert CursorFile(path).load() is None
    assert str(path) in caplog.text
    CursorFile(path).save("7")
    assert CursorFile(path).load() == "7"


def test_one_that_may_not_be_read_is_an_error(tmp_path: Path) -> None:
    """Starting over would be a gap that nobody sees."""
    (tmp_path / "bluesky").mkdir()
    with pytest.raises(OSError):
        CursorFile(tmp_path / "bluesky").load()
    with pytest.raises(OSError):
        CursorFile(tmp_path / "bluesky").save("7")


def _save_for_ever(path: Path) -> None:
    number = 0
    while True:
        CursorFile(path).save(str(number % 10) * 2_000_000)
        number += 1


def test_a_kill_leaves_a_whole_cursor(tmp_path: Path) -> None:
    path = tmp_path / "bluesky"
    CursorFile(path).save("0" * 2_000_000)
    for pause_ms in range(12):
        saving = multiprocessing.get_context("fork").Process(target=_save_for_ever, args=(path,))
        saving.start()
        time.sleep(0.03 + pause_ms / 1000)
        assert saving.pid is not None
        os.kill(saving.pid, signal.SIGKILL)
        saving.join()
        saving.close()
        cursor = CursorFile(path).load()
        assert cursor is not None and cursor == cursor[0] * 2_000_000
