"""Server-sent events as every OpenAI client reads them: `data:` lines and comments, no `id:`, `retry:` or `event:`."""

import json
import time
from collections.abc import AsyncIterator

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from services.answer import Answer, Json
from services.body import Limits
from services.events import ChatEvent, Delta, Done, Failed, Searching, Sources
from services.relay import Relay, until_gone
from services.wire import ApiError

DONE = b"data: [DONE]\n\n"
# No blank line after it: openai-go takes a frame of comments only for an empty event and fails.
KEEP_ALIVE = b": keep-alive\n"
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would hold the stream back
]
# Line ends to readers that split like Python's splitlines, and legal inside a JSON string.
_ESCAPES = str.maketrans({"\u0085": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def frame(value: Json) -> bytes:
    """One event: one line of JSON."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return b"data: " + text.translate(_ESCAPES).encode("utf-8", "replace") + b"\n\n"


def failure(event: Failed) -> ApiError:
    """As an HTTP answer. A retry after 504 would meet the same deadline: clients are told not to."""
    headers = {"Retry-After": str(max(1, event.retry_after_s))} if event.retry_after_s is not None else {}
    if event.status == 504:
        headers["x-should-retry"] = "false"
    return ApiError(event.status, event.message, event.type, event.code, headers=headers)


class AnswerStream:
    """A streamed answer as an ASGI response.

    Headers wait for the first word, at most `hold_s`, so that a failure before it has its own HTTP status. Raises
    ClientGone when the client leaves; the chat has ended then.
    """

    def __init__(self, events: AsyncIterator[ChatEvent], answer: Answer, limits: Limits) -> None:
        self._events, self._answer, self._limits = events, answer, limits
        self._started = False
        self._held = b""
        self.failed: Failed | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await until_gone(receive, self._run(send))
        if self.failed is not None and not self._started:
            error = failure(self.failed)
            await JSONResponse(error.body, error.status, headers=error.headers)(scope, receive, send)
        else:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _run(self, send: Send) -> None:
        hold_until = time.monotonic() + self._limits.hold_s
        async with Relay(self._events, self._answer.id) as relay:
            while True:
                wait_s = self._limits.keep_alive_s if self._started else max(0.0, hold_until - time.monotonic())
                event = await relay.next(wait_s)
                if isinstance(event, Failed):
                    self.failed = event
                    if not self._started:
                        return
                self._held += KEEP_ALIVE if event is None else self._frames(event)
                if self._started or self._opens(event):
                    await self._flush(send)
                if isinstance(event, Done | Failed):
                    return

    def _opens(self, event: ChatEvent | None) -> bool:
        match event:
            case None | Done():
                return True
            case Delta(text):
                return bool(text)
            case Searching() | Sources():
                return self._answer.progress
            case _:
                return False

    def _frames(self, event: ChatEvent) -> bytes:
        frames = b"".join(frame(chunk) for chunk in self._answer.chunks(event))
        return frames + DONE if isinstance(event, Done) else frames

    async def _flush(self, send: Send) -> None:
        if not self._started:
            self._started = True
            await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
        if self._held:
            held, self._held = self._held, b""
            await send({"type": "http.response.body", "body": held, "more_body": True})
