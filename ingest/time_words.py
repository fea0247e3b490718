"""Time words of a question -> a span of time: "since 9am", "ayer", "in den letzten zwei Stunden", "昨天下午".

Which words mean what is in ingest.time_lexicon, and what that is today in ingest.time_spans. Only the past is read:
what would begin later than now is no time. Quoted text, links, tags and names ("Yesterday by the Beatles") are none.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

import regex

from ingest.time_grammar import capitals, fold, no_times, patterns
from ingest.time_lexicon import LEXICONS, Lexicon
from ingest.time_spans import Said, span_of

MAX_CHARS = 2000  # of a question that are read
QUOTED = regex.compile(
    r"\"[^\"]*\"|`[^`]*`|(?<!\w)'[^']*'(?!\w)|https?://\S+|www\.\S+|\u201c[^\u201d]*\u201d|\u2018[^\u2019]*\u2019(?!\p{L})"
    r"|\u201e[^\u201c\u201d]*[\u201c\u201d]|\u00ab[^\u00bb]*\u00bb|\u00bb[^\u00ab]*\u00ab"
    r"|\u300c[^\u300d]*\u300d|\u300e[^\u300f]*\u300f|\u300a[^\u300b]*\u300b"
)
ENDS_SENTENCE = frozenset(".!?:;\u00bf\u00a1\u2026\u3002\uff01\uff1f([-\u2013\u2014\n")
NO_SPACE_BEFORE = frozenset(".,;:!?)\u3002\uff0c\uff1f\uff01")
WORD = regex.compile(r"\p{L}[\p{L}\p{M}]*")
LONG_WORD = 4  # shorter ones have no capital in a title either


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Both ends included, epoch milliseconds, since_ms <= until_ms <= now. `words`: the phrases as they were written,
    joined by ", "; `rest`: the question without them."""

    since_ms: int
    until_ms: int
    words: str
    rest: str


@dataclass(frozen=True, slots=True)
class Phrase:
    start: int  # in the question
    end: int
    since: datetime
    until: datetime  # not in it

    def overlaps(self, other: "Phrase") -> bool:
        return self.start < other.end and other.start < self.end


def read_time_words(question: str, now_ms: int, zone: ZoneInfo) -> TimeRange | None:
    """None when the question speaks of no time that has been. Two phrases ("from yesterday and today") span from the
    first moment to the last."""
    phrases = _apart(_phrases(question, datetime.fromtimestamp(now_ms / 1000, zone)))
    if not phrases:
        return None
    since_ms = min(_ms(phrase.since) for phrase in phrases)
    until_ms = max(_ms(phrase.until) for phrase in phrases)
    until_ms = now_ms if until_ms >= now_ms else until_ms - 1
    words = ", ".join(question[phrase.start : phrase.end] for phrase in phrases)
    return TimeRange(min(since_ms, until_ms), until_ms, words, _without(question, phrases))


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _phrases(question: str, now: datetime) -> Iterator[Phrase]:
    folded, at = fold(question[:MAX_CHARS])
    taken = [match.span() for match in QUOTED.finditer(question[:MAX_CHARS])]
    for lexicon in LEXICONS:
        taken += [(at[match.start()], at[match.end()]) for match in no_times(lexicon).finditer(folded)]
    for lexicon in LEXICONS:
        for pattern in patterns(lexicon):
            for match in pattern.found_by.finditer(folded):
                start, end = at[match.start()], at[match.end() - 1] + 1
                if any(start < other_end and other_start < end for other_start, other_end in taken):
                    continue
                span = span_of(pattern.kind, Said(lexicon, match.groupdict()), now, pattern.is_since)
                if span is not None and not _is_name(question, start, end, lexicon):
                    yield Phrase(start, end, *span)


def _apart(phrases: Iterator[Phrase]) -> list[Phrase]:
    """Of those that overlap the longest, in the order of the question."""
    kept: list[Phrase] = []
    for phrase in sorted(phrases, key=lambda phrase: (phrase.start - phrase.end, phrase.start)):
        if not any(map(phrase.overlaps, kept)):
            kept.append(phrase)
    return sorted(kept, key=lambda phrase: phrase.start)


def _is_name(question: str, start: int, end: int, lexicon: Lexicon) -> bool:
    """One of the words has a capital that it has neither by nature nor from the start of a sentence. Text in capitals,
    and with one on every word, tells nothing."""
    before = question[:start].rstrip(" \t\"'\u201c\u201e\u00ab")
    is_start = not before or before[-1] in ENDS_SENTENCE
    words = WORD.findall(question[start:end])[is_start:]
    if not any(word[0].isupper() and not word.startswith(capitals(lexicon)) for word in words):
        return False
    others = WORD.findall(question[:start]) + WORD.findall(question[end:])
    long = [word for word in others if len(word) >= LONG_WORD]
    is_all_capitals = len(long) > 0 and all(word.isupper() for word in others)
    is_title = len(long) > 1 and all(word[0].isupper() for word in long)
    return not (is_all_capitals or is_title)


def _without(question: str, phrases: list[Phrase]) -> str:
    rest = question
    for phrase in reversed(phrases):
        before, after = rest[: phrase.start].rstrip(), rest[phrase.end :].lstrip()
        spaced = before and after and after[0] not in NO_SPACE_BEFORE and not _is_unspaced(before[-1], after[0])
        rest = before + (" " if spaced else "") + after
    return rest.strip()


def _is_unspaced(*characters: str) -> bool:
    return all("\u3040" <= character <= "\u9fff" for character in characters)
