import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.body import Limits, decode, read_body
from services.relay import ClientGone
from services.wire import ApiError

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)

MALFORMED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "expecting value"),
    "truncated": (b'{"model": "groundswell", "messages": [{"role"', "expecting"),
    "two values": (b"{} {}", "extra data"),
    "trailing comma": (b'{"a": 1,}', "expecting property name|illegal trailing comma"),
    "single quotes": (b"{'a': 1}", "expecting property name"),
    "comment": (b"{} // x", "extra data"),
    "NaN": (b'{"temperature": NaN}', "NaN is not a JSON value"),
    "Infinity": (b'{"temperature": Infinity}', "Infinity is not a JSON value"),
    "minus Infinity": (b'{"temperature": -Infinity}', "-Infinity is not a JSON value"),
    "overflow": (b'{"temperature": 1e999}', "out of range"),
    "long integer": (b'{"seed": ' + b"9" * 5000 + b"}", "a number is too long"),
    "key twice": (b'{"model": "a", "model": "b"}', "a key twice"),
    "key twice inside": (b'{"a": [{"b": 1, "b": 1}]}', "a key twice"),
    "invalid UTF-8": (b'{"a": "\xff\xfe"}', "not valid UTF-8"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "not valid UTF-8"),
    "byte order mark": (b"\xef\xbb\xbf{}", "bom"),
    "lone surrogate": (b'{"a": "\\ud83d"}', "surrogate"),
    "lone surrogate as key": (b'{"\\udc00": 1}', "surrogate"),
    "control character": (b'{"a": "\n"}', "control character"),
    "65 levels": (b"[" * 66 + b"]" * 66, "nested deeper than 64"),
    "many values": (b"[" + b"{}," * 50_000 + b"1]", "more than 50000 values"),
    "40000 levels": (b"[" * 40_000, "nested deeper than 64"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_json_says_why(name: str):
    body, why = MALFORMED[name]
    with pytest.raises(ApiError) as caught:
        decode(body, Limits())
    assert caught.value.status == 400 and caught.value.code == "invalid_json"
    assert any(word in caught.value.message.replace("BOM", "bom") for word in why.split("|")), caught.value.message


@given(values)
def test_what_json_can_say_is_read_as_it_is(value: Any):
    assert decode(json.dumps(value).encode(), Limits()) == value
    assert decode(json.dumps(value, ensure_ascii=False).encode(), Limits()) == value


def test_depth_is_counted_exactly():
    assert decode(b"[" * 3 + b"]" * 3, Limits(depth=3)) == [[[]]]
    with pytest.raises(ApiError):
        decode(b"[" * 4 + b"]" * 4, Limits(depth=2))


def receiver(*messages: dict[str, Any]):
    waiting = list(messages)

    async def receive() -> dict[str, Any]:
        return waiting.pop(0)

    return receive


def part(body: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_parts_are_joined():
    assert await read_body({}, receiver(part(b"{", True), part(b"}")), Limits()) == b"{}"


async def test_a_declared_size_over_the_limit_is_refused_before_reading():
    with pytest.raises(ApiError) as caught:
        await read_body({"content-length": "11"}, receiver(), Limits(body_bytes=10))
    assert caught.value.status == 413


async def test_an_undeclared_size_over_the_limit_is_refused_while_reading():
    with pytest.raises(ApiError) as caught:
        await read_body({}, receiver(part(b"x" * 6, True), part(b"x" * 5, True)), Limits(body_bytes=10))
    assert caught.value.status == 413
    assert await read_body({}, receiver(part(b"x" * 10)), Limits(body_bytes=10)) == b"x" * 10


async def test_a_client_that_leaves_while_sending():
    with pytest.raises(ClientGone):
        await read_body({}, receiver(part(b"{", True), {"type": "http.disconnect"}), Limits())


@pytest.mark.parametrize("header", [{"content-type": "text/plain"}, {"content-encoding": "gzip"}])
async def test_other_media_are_refused(header: dict[str, str]):
    with pytest.raises(ApiError) as caught:
        await read_body(header, receiver(part(b"{}")), Limits())
    assert caught.value.status == 415


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8", "application/vnd.x+json"])
async def test_json_by_any_of_its_names(kind: str):
    assert await read_body({"content-type": kind}, receiver(part(b"{}")), Limits()) == b"{}"


@pytest.mark.parametrize("text", ['[{,"', "\\", '\\"[', "a" * 99 + "\\\\"])
def test_brackets_in_strings_are_words_not_values(text: str):
    value = {"a": [text * 50, text]}
    assert decode(json.dumps(value).encode(), Limits(values=3)) == value
    with pytest.raises(ApiError, match="400"):
        decode(json.dumps([value]).encode(), Limits(values=3))
