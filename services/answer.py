"""An answer in OpenAI's shapes, whole or in pieces. Citations come in three forms; docs/api.md lists them."""

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from services.events import ChatEvent, Citation, Delta, Done, Failed, Marked, Notice, Searching, Sources
from services.wire import MODEL_ID, error_body

Json = dict[str, Any]


class Answer:
    """What a chat has said so far. Whole: feed it every event, then `completion`. In pieces: `chunks` of each event."""

    def __init__(self, id: str, include_usage: bool = False, progress: bool = False) -> None:
        self.id, self.created = id, int(time.time())
        self.include_usage, self.progress = include_usage, progress
        self.searched: int | None = None
        self.sources = Sources((), None)
        self.notices: list[Notice] = []
        self.marks: list[Marked] = []
        self.text: list[str] = []
        self.done: Done | None = None
        self._opened = False

    def add(self, event: ChatEvent) -> None:
        match event:
            case Searching(posts):
                self.searched = posts
            case Sources():
                self.sources = event
            case Delta(text, marks):
                self.text.append(text)
                self.marks += marks
            case Notice():
                self.notices.append(event)
            case Done():
                self.done = event
            case Failed():
                pass

    def completion(self) -> Json:
        """The whole answer, after Done."""
        assert self.done is not None
        cited = {citation.number for citation in self.done.cited}
        message = {
            "role": "assistant",
            "content": "".join(self.text),
            "refusal": None,
            "annotations": [_annotation(mark) for mark in self.marks if mark.citation.number in cited],
        }
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(self.done)}
        ours = self._summary(self.done)
        if self.searched is not None:
            ours["searched_posts"] = self.searched
        if self.notices:
            ours["notices"] = [_notice(notice) for notice in self.notices]
        return {
            **self._head("chat.completion"),
            "choices": [choice],
            "usage": _usage(self.done),
            **self._references(),
            "groundswell": ours,
        }

    def chunks(self, event: ChatEvent) -> Iterable[Json]:
        """What `event` adds to the stream. The first chunk carries the role and the sources, so it waits for them."""
        self.add(event)
        match event:
            case Searching(posts) if self.progress:
                yield self._chunk({}, {"searched_posts": posts})
            case Sources() if not self._opened:
                yield from self._open()
            case Delta(text, marks) if text:
                yield from self._open()
                delta: Json = {"content": text}
                if marks:
                    delta["annotations"] = [_annotation(mark) for mark in marks]
                yield self._chunk(delta)
            case Notice() if self._opened:
                yield self._chunk({}, {"notice": _notice(event)})
            case Done():
                yield from self._open()
                yield from self._end(event)
            case Failed():
                error = error_body(event.message, event.type, event.code)
                if event.retry_after_s is not None:
                    error["groundswell"] = {"retry_after_s": event.retry_after_s}
                yield error

    def _open(self) -> Iterable[Json]:
        if self._opened:
            return
        self._opened = True
        ours: Json = {"newest_age_ms": self.sources.newest_age_ms}
        if self.searched is not None:
            ours["searched_posts"] = self.searched
        yield {**self._chunk({"role": "assistant", "content": ""}, ours), **self._references()}
        for notice in self.notices:
            yield self._chunk({}, {"notice": _notice(notice)})

    def _end(self, done: Done) -> Iterable[Json]:
        last = self._chunk({}, self._summary(done), _finish_reason(done))
        yield {**last, **self._references()}
        if self.include_usage:
            yield {**self._head("chat.completion.chunk"), "choices": [], "usage": _usage(done)}

    def _chunk(self, delta: Json, ours: Json | None = None, finish_reason: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        chunk = {**self._head("chat.completion.chunk"), "choices": [choice]}
        if self.include_usage:
            chunk["usage"] = None
        if ours:
            chunk["groundswell"] = ours
        return chunk

    def _head(self, kind: str) -> Json:
        return {"id": self.id, "object": kind, "created": self.created, "model": MODEL_ID}

    def _removed(self) -> set[int]:
        """Numbers of the posts that were gone when the answer ended."""
        return set() if self.done is None else set(self.done.removed)

    def _references(self) -> Json:
        """`[n]` is the n-th of `citations`: a removed post keeps its place, without its address."""
        removed = self._removed()
        return {
            "citations": ["" if one.number in removed else one.url for one in self.sources.citations],
            "search_results": [_search_result(one) for one in self.sources.citations if one.number not in removed],
        }

    def _summary(self, done: Done) -> Json:
        summary: Json = {
            "newest_age_ms": done.newest_age_ms,
            "cited": [citation.number for citation in done.cited],
            "removed": sorted(self._removed()),
            "unsupported_sentences": done.unsupported_sentences,
        }
        if done.filter_reason:
            summary["filter_reason"] = done.filter_reason
        return summary


def _finish_reason(done: Done) -> str:
    return "content_filter" if done.filter_reason else done.finish_reason


def _annotation(mark: Marked) -> Json:
    """Offsets are code points; `marker` lets a client that counts otherwise find the place again."""
    return {
        "type": "url_citation",
        "url_citation": {
            "start_index": mark.start,
            "end_index": mark.end,
            "url": mark.citation.url,
            "title": mark.citation.title,
            "marker": f"[{mark.citation.number}]",
            "post_id": mark.citation.post_id,
        },
    }


def _search_result(citation: Citation) -> Json:
    return {
        "title": citation.title,
        "url": citation.url,
        "date": datetime.fromtimestamp(citation.created_ms / 1000, UTC).isoformat(timespec="seconds"),
        "last_updated": None,
        "snippet": citation.snippet,
        "source": citation.source,
        "number": citation.number,
        "post_id": citation.post_id,
        "author_name": citation.author_name,
        "author_handle": citation.author_handle,
    }


def _notice(notice: Notice) -> Json:
    return {"code": notice.code, "message": notice.message}


def _usage(done: Done) -> Json:
    return {
        "prompt_tokens": done.prompt_tokens,
        "completion_tokens": done.completion_tokens,
        "total_tokens": done.prompt_tokens + done.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
