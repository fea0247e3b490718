"""The stories as data: beats on a timeline, what each voice says, and the questions that they answer."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from ingest.sources.sample.people import people
from ingest.sources.sample.text import load

SLUGS = (
    "bridge", "storm", "match", "power", "vote", "water", "strike",
    "recall", "festival", "wildfire", "dog", "driftbox", "train", "dust",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Question:
    """A natural question. Every fact is a string in the newest official post in the question's language.

    `outdated` strings were said earlier in the story and are no longer true: an answer built on them is stale.
    """

    ask: str
    lang: str
    facts: tuple[str, ...]
    outdated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """One written post: a phrase, who says it (a desk's short name, or "" for somebody), and what becomes of it."""

    phrase: str
    lang: str
    by: str = ""
    after_min: float = 0
    edit: str = ""
    edit_after_min: float = 6
    delete_after_min: float | None = None


@dataclass(frozen=True, slots=True)
class Beat:
    """A turn of a story. `replies` are threads under the beat's official posts, `threads` stand on their own."""

    at_min: float
    span_min: float
    official: tuple[Line, ...]
    posts: tuple[Line, ...]
    threads: tuple[tuple[Line, ...], ...]
    replies: tuple[tuple[Line, ...], ...]
    quotes: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Story:
    slug: str
    title: str
    languages: tuple[str, ...]
    questions: tuple[Question, ...]
    officials: tuple[str, ...]  # handles whose word counts; the newest of them is right
    beats: tuple[Beat, ...]
    crowd: dict[str, tuple[str, ...]]
    tags: dict[str, tuple[str, ...]]
    slots: dict[str, tuple[str, ...]]


@cache
def stories() -> tuple[Story, ...]:
    """All stories of the feed, the same whatever the seed."""
    return tuple(_story(load(slug)) for slug in SLUGS)


def off_topic_questions() -> tuple[Question, ...]:
    """Questions that nothing in the feed answers: the honest reply is that there are no posts about it."""
    return tuple(Question(entry["ask"], entry["lang"], ()) for entry in load("off_topic"))


def _story(raw: dict[str, Any]) -> Story:
    beats = tuple(_beat(beat) for beat in raw["beats"])
    desks = people().desks
    speaking = dict.fromkeys(line.by for beat in beats for line in beat.official)
    return Story(
        slug=raw["slug"],
        title=raw["title"],
        languages=tuple(raw["languages"]),
        questions=tuple(
            Question(entry["ask"], entry["lang"], tuple(entry["facts"]), tuple(entry.get("outdated", ())))
            for entry in raw["questions"]
        ),
        officials=tuple(desks[by].handle for by in speaking if desks[by].official),
        beats=beats,
        crowd={lang: tuple(homes) for lang, homes in raw["crowd"].items()},
        tags={lang: tuple(tags) for lang, tags in raw["tags"].items()},
        slots={name: tuple(options) for name, options in raw.get("slots", {}).items()},
    )


def _beat(raw: dict[str, Any]) -> Beat:
    threads = raw.get("threads", {})
    replies = raw.get("replies", {})
    return Beat(
        at_min=raw["at"],
        span_min=raw["span"],
        official=tuple(_line(entry, "") for entry in raw.get("official", ())),
        posts=tuple(_line(entry, lang) for lang, entries in raw.get("posts", {}).items() for entry in entries),
        threads=tuple(_thread(entry, lang) for lang, entries in threads.items() for entry in entries),
        replies=tuple(_thread(entry, lang) for lang, entries in replies.items() for entry in entries),
        quotes=tuple(_line(entry, lang) for lang, entries in raw.get("quotes", {}).items() for entry in entries),
    )


def _thread(raw: Any, lang: str) -> tuple[Line, ...]:
    lines = raw if isinstance(raw, list) else [raw]
    return tuple(_line(entry, lang) for entry in lines)


def _line(raw: str | dict[str, Any], lang: str) -> Line:
    if isinstance(raw, str):
        return Line(raw, lang)
    by = raw.get("by", "")
    own = lang or people().account(by).lang
    return Line(
        phrase=raw["text"],
        lang=raw.get("lang", own),
        by=by,
        after_min=raw.get("after", 0),
        edit=raw.get("edit", ""),
        edit_after_min=raw.get("edit_after", 6),
        delete_after_min=raw.get("delete_after"),
    )
