"""What `groundswell search` prints of an answer."""

from typing import Any

import pytest

from services.search_cli import _show

MATCH = {
    "text": "The bridge\x1b[2J is closed.",
    "source": "rss",
    "author": {"id": "a", "handle": "ana\x1b]0;owned\x07", "name": "Ana"},
    "created_at": "2026-11-30T12:00:00Z",
    "score": 0.5,
    "reasons": ["It is new."],
    "url": "https://news.example/\x1b[31m\u202e",
}


def test_neither_a_post_nor_its_author_drives_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    answer: dict[str, Any] = {"time_filter": None, "data": [MATCH]}
    _show(answer)
    printed = capsys.readouterr().out
    assert "@ana" in printed and "The bridge" in printed and "news.example" in printed
    assert all(char.isprintable() or char == "\n" for char in printed)
