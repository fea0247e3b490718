"""Aliases outlive the process, even one that is killed, and do not grow for ever."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.sources.aliases import MOST_EXPIRED, Aliases


def test_what_was_put_is_found_and_its_folder_is_made(tmp_path: Path) -> None:
    with Aliases(tmp_path / "a" / "b" / "aliases.sqlite") as aliases:
        aliases.put_many([("ex.social:1", "mastodon:https://ex.social/1"), ("x:2", "x:1")], 1000)
        assert aliases.get("ex.social:1") == "mastodon:https://ex.social/1"
        assert aliases.get("x:2") == "x:1"
        assert aliases.get("x:3") is None


def test_the_last_post_id_counts(tmp_path: Path) -> None:
    with Aliases(tmp_path / "aliases.sqlite") as aliases:
        aliases.put_many([("x:2", "x:0")], 1000)
        aliases.put_many([("x:2", "x:1")], 1001)
        assert aliases.get("x:2") == "x:1"


def test_only_what_was_not_seen_for_long_expires(tmp_path: Path) -> None:
    day_ms = 24 * 3600 * 1000
    with Aliases(tmp_path / "aliases.sqlite") as aliases:
        aliases.put_many([("old", "a"), ("seen again", "b")], 0)
        aliases.put_many([("seen again", "b"), ("new", "c")], day_ms)
        assert aliases.expire(day_ms) == 1
        assert aliases.get("old") is None
        assert aliases.get("seen again") == "b"
        assert aliases.get("new") == "c"


def test_expiry_takes_the_oldest_and_a_bounded_number(tmp_path: Path) -> None:
    with Aliases(tmp_path / "aliases.sqlite") as aliases:
        for number in range(3):
            aliases.put_many([(f"{number}:{n}", "p") for n in range(MOST_EXPIRED // 2)], 2 - number)
        assert aliases.expire(100) == MOST_EXPIRED
        assert aliases.get("2:0") is None
        assert aliases.get("0:0") == "p"
        assert aliases.expire(100) == MOST_EXPIRED // 2


def test_the_latest_of_a_prefix_come_first(tmp_path: Path) -> None:
    with Aliases(tmp_path / "aliases.sqlite") as aliases:
        for number in range(5):
            aliases.put_many([(f"a.example:{number}", f"p{number}"), (f"b.example:{number}", "other")], number)
        assert aliases.latest("a.example:", 2) == [("a.example:4", "p4"), ("a.example:3", "p3")]


def test_a_killed_process_loses_nothing_that_was_put(tmp_path: Path) -> None:
    path = tmp_path / "aliases.sqlite"
    code = (
        "import os, signal, sys; from pathlib import Path; from ingest.sources.aliases import Aliases\n"
        "aliases = Aliases(Path(sys.argv[1]))\n"
        "for number in range(200): aliases.put_many([(f'x:{number}', f'p{number}')], number)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], timeout=60)
    assert done.returncode == -9
    with Aliases(path) as aliases:
        assert [aliases.get(f"x:{number}") for number in range(200)] == [f"p{number}" for number in range(200)]


def test_a_fault_in_the_middle_puts_nothing_and_the_next_works(tmp_path: Path) -> None:
    def broken():
        yield "x:1", "a"
        raise ValueError("stop")

    with Aliases(tmp_path / "aliases.sqlite") as aliases:
        with pytest.raises(ValueError, match="stop"):
            aliases.put_many(broken(), 1)
        assert aliases.get("x:1") is None
        aliases.put_many([("x:1", "b")], 2)
        assert aliases.get("x:1") == "b"


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.text("xyz", min_size=1, max_size=3)), max_size=30))
def test_it_is_a_dict(pairs: list[tuple[str, str]]) -> None:
    with Aliases(Path(":memory:")) as aliases:
        for pair in pairs:
            aliases.put_many([pair], 1)
        assert {name: aliases.get(name) for name in dict(pairs)} == dict(pairs)
