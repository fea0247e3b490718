"""A request's body: read under a limit and a deadline, decoded strictly. What it holds is wire.py's business."""

import asyncio
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Never

from starlette.types import Receive

from services.relay import ClientGone
from services.wire import ApiError


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may ask of the gateway."""

    body_bytes: int = 1_048_576
    body_timeout_s: float = 30.0
    depth: int = 64
    values: int = 50_000
    header_bytes: int = 16_384
    messages: int = 1024
    hold_s: float = 10.0  # how long a stream's headers wait for the first word, so that a failure has its HTTP status
    keep_alive_s: float = 15.0
    probe_s: float = 3.0  # how long /ready waits for its answer


# Matches to the end of input where a string is not closed, or each quote in it would be tried as a start.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+\\?"?', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


async def read_body(headers: Mapping[str, str], receive: Receive, limits: Limits) -> bytes:
    """ApiError 413, 415 or 408; ClientGone if the client left before the end."""
    media_type = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise ApiError(415, "The body should be JSON: send `Content-Type: application/json`.")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError(415, "Compressed bodies are not supported.", code="unsupported_content_encoding")
    declared = headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limits.body_bytes:
        raise _too_large(limits)
    try:
        async with asyncio.timeout(limits.body_timeout_s):
            return await _receive_all(receive, limits)
    except TimeoutError:
        raise ApiError(408, "The body did not arrive in time.", code="request_timeout") from None


async def _receive_all(receive: Receive, limits: Limits) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        body += message.get("body", b"")
        if len(body) > limits.body_bytes:
            raise _too_large(limits)
        if not message.get("more_body", False):
            return bytes(body)


def _too_large(limits: Limits) -> ApiError:
    return ApiError(413, f"The body is larger than {limits.body_bytes} bytes.", code="request_too_large")


def decode(body: bytes, limits: Limits) -> Any:
    """Strict JSON: UTF-8, no NaN or Infinity, no key twice, no lone surrogate, no deep nesting. ApiError 400."""
    bare = _STRING.sub(b"", body)
    # A megabyte of empty lists would hold up the event loop, and every other stream, for a second.
    if sum(map(bare.count, (b"[", b"{", b","))) > limits.values:
        raise _malformed(f"it holds more than {limits.values} values")
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_no_twins)
    except UnicodeDecodeError:
        raise _malformed("it is not valid UTF-8") from None
    except json.JSONDecodeError as error:
        raise _malformed(f"{error.msg.lower()}, line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise _malformed(f"it is nested deeper than {limits.depth} levels") from None
    except ValueError:  # an integer of more than 4300 digits
        raise _malformed("a number is too long") from None
    _check(value, limits.depth)
    return value


def _check(value: Any, max_depth: int) -> None:
    level = [value]
    for _ in range(max_depth + 1):
        if not level:
            return
        deeper: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                deeper += item.keys()
                deeper += item.values()
            elif isinstance(item, list):
                deeper += item
            elif isinstance(item, str):
                if _SURROGATE.search(item):
                    raise _malformed("a string holds half of a surrogate pair")
            elif isinstance(item, float) and not math.isfinite(item):
                raise _malformed("a number is out of range")
        level = deeper
    raise _malformed(f"it is nested deeper than {max_depth} levels")


def _no_constant(name: str) -> Never:
    raise _malformed(f"{name} is not a JSON value")


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _malformed("an object holds a key twice")
    return value


def _malformed(why: str) -> ApiError:
    return ApiError(400, f"The body is not valid JSON: {why}.", code="invalid_json")
