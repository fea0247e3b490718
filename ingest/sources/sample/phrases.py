"""From a written phrase to the words of one post: `[this|that]` choices, `{slot}` banks, and a person's voice."""

import re
from collections.abc import Mapping, Sequence
from random import Random

from ingest.sources.sample.people import Voice

_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_STOP_TWICE = re.compile(r"(?<=[?!？！؟])[.。](?!\.)")
_SENTENCE_START = re.compile(r"(?:^|(?<=[.!?] ))[a-z]")
_EMOJI = {
    "en": ("🙏", "🤞", "👀", "🫣"),
    "es": ("🙏", "🤞", "👀", "💪"),
    "de": ("🙏", "🤞", "👀", "🍀"),
    "zh": ("🙏", "👀", "🫣"),
    "ja": ("🙏", "👀", "🍀"),
    "ar": ("🙏", "👀", "🌟", "🤲"),
}
_CASED = frozenset({"en", "es", "de"})


def spoken(phrase: str, slots: Mapping[str, Sequence[str]], rng: Random) -> str:
    """One reading of a phrase. Choices nest, innermost first; a slot that opens a sentence is capitalised."""
    for name, options in slots.items():
        phrase = phrase.replace("{" + name + "}", "[" + "|".join(options) + "]")
    while choice := _CHOICE.search(phrase):
        phrase = phrase[: choice.start()] + rng.choice(choice[1].split("|")) + phrase[choice.end() :]
    assert "{" not in phrase and "]" not in phrase, f"unbalanced phrase: {phrase}"
    phrase = _STOP_TWICE.sub("", " ".join(phrase.split()))
    return _SENTENCE_START.sub(lambda start: start[0].upper(), phrase)


def voiced(text: str, voice: Voice, lang: str, tags: Sequence[str], rng: Random) -> str:
    """The text as this person would type it."""
    if voice == "lower" and lang in _CASED:
        return text.lower().rstrip(".")
    if voice == "tags" and tags and rng.random() < 0.7:
        return f"{text} #{rng.choice(tags)}"
    if voice == "emoji" and text[-1] in ".!?。！？؟":
        return f"{text} {rng.choice(_EMOJI[lang])}"
    if voice == "loud":
        return re.sub(r"[.。]$", lambda end: "!!" if end[0] == "." else "！！", text)
    if voice == "trailing":
        return re.sub(r"[.。]$", lambda end: "..." if end[0] == "." else "……", text)
    return text


def misspelt(text: str, rng: Random) -> str | None:
    """The text with two neighbouring letters of one longer word swapped; None where no word offers itself."""
    words = [word for word in re.finditer(r"[a-zäöüáéíóúñ]{6,}", text) if "@" not in text]
    if not words:
        return None
    word = rng.choice(words)
    at = rng.randrange(word.start() + 1, word.end() - 2)
    if text[at] == text[at + 1]:
        return None
    return text[:at] + text[at + 1] + text[at] + text[at + 2 :]
