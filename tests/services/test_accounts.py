from pathlib import Path

import pytest

from services.accounts import ApiKeys


def test_no_file_asks_for_no_key():
    keys = ApiKeys.from_file(None)
    assert not keys.required and keys.owner("Bearer x") is None


def test_one_key_a_line(tmp_path: Path):
    path = tmp_path / "keys"
    path.write_text("# ours\n\n  sk-one  \nsk-two\r\n")
    keys = ApiKeys.from_file(path)
    assert keys.required
    one, two = keys.owner("Bearer sk-one"), keys.owner("bearer   sk-two")
    assert one and two and one != two
    assert "sk-one" not in one and one == keys.owner("BEARER sk-one")


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "sk-one", "Basic sk-one", "Bearer sk-on", "Bearer sk-one2", "Bearer # ours"],
)
def test_anything_else_has_no_owner(header: str | None):
    assert ApiKeys(["sk-one", "sk-two"]).owner(header) is None


def test_a_header_that_is_not_text_has_no_owner():
    assert ApiKeys(["sk-one"]).owner("Bearer \xff\udcff") is None


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "holds no key"),
        (b"# none\n\n", "holds no key"),
        (b"ok\nsk one\n", "line 2"),
        ("sk-\u00e9".encode(), "line 1"),
    ],
)
def test_a_bad_file_says_what_is_wrong(tmp_path: Path, content: bytes, says: str):
    path = tmp_path / "keys"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=says) as caught:
        ApiKeys.from_file(path)
    assert "sk" not in str(caught.value).replace(str(path), "")


def test_a_missing_or_binary_file_says_so(tmp_path: Path):
    with pytest.raises(ValueError, match="cannot read"):
        ApiKeys.from_file(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="cannot read"):
        ApiKeys.from_file(tmp_path / "binary")


def test_keys_are_not_kept():
    keys = ApiKeys(["sk-one"])
    assert "sk-one" not in repr(vars(keys))


def test_an_empty_set_of_keys_is_a_mistake():
    with pytest.raises(ValueError):
        ApiKeys([])
