"""The phrases of ingest.time_lexicon as regular expressions over folded text, and what the found words say."""

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain
from typing import Any

import regex

from ingest.time_lexicon import Lexicon

SLOT = regex.compile(r"\{([a-z_]+)\}")
WORD_TABLES = (
    "number", "unit", "day", "part", "day_part", "span", "weekday", "month", "half", "hour_name", "fraction",
)  # fmt: skip
DIGITS = {"number": r"\d{1,4}", "hour": r"\d{1,2}", "minute": r"\d{2}", "date": r"\d{1,2}"}
MOST_HOUR_WORDS = 24  # "at nine", and not "at ninety"


@dataclass(frozen=True, slots=True)
class Pattern:
    """`is_since`: from the moment that is said until now."""

    kind: str
    is_since: bool
    found_by: regex.Pattern[str]


def fold(text: str) -> tuple[str, list[int]]:
    """Lower case, without accents, one character for one; and where each of them was, and the end.

    Of white space only the first: the patterns would try every way to divide a long run (a minute for 2,000 spaces).
    """
    folded: list[str] = []
    at: list[int] = []
    for i, character in enumerate(text):
        if unicodedata.combining(character):
            continue
        one = fold_one(character)
        if not (one.isspace() and folded and folded[-1].isspace()):
            folded.append(one)
            at.append(i)
    return "".join(folded), [*at, len(text)]


@lru_cache(maxsize=8192)
def fold_one(character: str) -> str:
    if character == "\u2019":
        return "'"
    return unicodedata.normalize("NFKD", character)[0].lower()[0]


@cache
def patterns(lexicon: Lexicon) -> tuple[Pattern, ...]:
    found = []
    for moment in lexicon.moments:
        end = _clause_end(lexicon) if moment.kind == "nth" else ""
        if moment.alone is not None:
            found.append(Pattern(moment.kind, False, _compiled(moment.alone + moment.core + end, lexicon)))
        for before, after in lexicon.since:
            phrase = before + moment.after_since + moment.core + after + end
            found.append(Pattern(moment.kind, True, _compiled(phrase, lexicon)))
    return (*found, *(Pattern(kind, False, _compiled(phrase, lexicon)) for kind, phrase in lexicon.phrases))


@cache
def no_times(lexicon: Lexicon) -> regex.Pattern[str]:
    return _compiled("(?:" + "|".join(lexicon.no_times) + ")", lexicon)


@cache
def capitals(lexicon: Lexicon) -> tuple[str, ...]:
    """The words that have a capital by nature."""
    tables: Iterable[Mapping[str, Any]] = (getattr(lexicon, name) for name in WORD_TABLES)
    words = chain.from_iterable(phrase.split() for table in tables for phrase in table)
    return (*lexicon.capitals, *(word for word in words if word[0].isupper()))


@cache
def table(lexicon: Lexicon, name: str) -> dict[str, Any]:
    """A table of the lexicon by folded words."""
    return {fold(word)[0]: value for word, value in getattr(lexicon, name).items()}


def _compiled(phrase: str, lexicon: Lexicon) -> regex.Pattern[str]:
    """Whole words only, no tag, no handle, nothing that goes on as a number, a price or a hyphenated word."""
    body = SLOT.sub(lambda slot: _slot(slot[1], lexicon), phrase.replace("~", r"\s*"))
    body = regex.sub(r"(?<!\\) ", r"\\s+", body)
    if lexicon.is_spaced:
        body = rf"(?<![\p{{L}}\p{{N}}#@_/'-])(?:{body})(?![\p{{L}}\p{{N}}_@]|'\p{{L}}|-\p{{L}})"
    else:
        body = rf"(?<![\p{{N}}#@_])(?:{body})(?!\p{{N}})"
    return regex.compile(rf"{body}(?!\s*[%\u20ac$\u00a3\u00b0]|[.,:/-]\d)")


def _slot(name: str, lexicon: Lexicon) -> str:
    of = name.removesuffix("_to")
    if of == "clock":
        suffix = name.removeprefix("clock")
        clocks = (SLOT.sub(lambda slot: f"{{{slot[1]}{suffix}}}", clock) for clock in lexicon.clock)
        return (
            "(?:"
            + "|".join(SLOT.sub(lambda slot: _slot(slot[1], lexicon), c.replace("~", r"\s*")) for c in clocks)
            + ")"
        )
    if of == "hour":
        words = [word for word, value in table(lexicon, "number").items() if value == int(value) <= MOST_HOUR_WORDS]
    elif of in ("minute", "date") and lexicon.is_spaced:
        words = []
    else:
        words = list(table(lexicon, "number" if of in ("minute", "date") else of))
    words = [regex.escape(word, literal_spaces=True) for word in sorted(words, key=len, reverse=True)]
    return f"(?P<{name}>{'|'.join([*words, *([DIGITS[of]] if of in DIGITS else [])]) or '(?!)'})"


def _clause_end(lexicon: Lexicon) -> str:
    return rf"(?=\s*(?:$|[\p{{P}}]|(?:{lexicon.clause_words.replace(' ', '|')})\b))" if lexicon.is_spaced else ""
