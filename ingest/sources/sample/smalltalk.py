"""Posts about nothing in particular, and the chatter under them: what most of a feed is made of."""

from random import Random
from typing import Any

from ingest.sources.sample.draft import Draft
from ingest.sources.sample.people import Account, People
from ingest.sources.sample.phrases import spoken, voiced
from ingest.sources.sample.text import load
from ingest.sources.sample.timeline import FIRST_MIN, LAST_MIN, LAST_MS, at_minute

_POSTS = {"en": 330, "es": 100, "de": 100, "zh": 92, "ja": 96, "ar": 92}  # how many to aim at, replies not counted
_LIVE_SHARE = 0.36  # of them after NOW, though it is a quarter of the time: a demo should see the feed move
_TRIES = 8


def smalltalk(people: People, rng: Random) -> list[Draft]:
    """Noise in every language over the whole span, unordered."""
    drafts: list[Draft] = []
    for lang, aim in _POSTS.items():
        bank = load(f"smalltalk_{lang}")
        drafts += _chatter(bank, lang, aim, people.everyone(lang), rng)
        for text in bank["spam"]:
            drafts.append(Draft(_moment(rng), people.spammers[lang], text, lang, labels=("spam",)))
    return drafts


def _chatter(bank: dict[str, Any], lang: str, aim: int, crowd: list[Account], rng: Random) -> list[Draft]:
    """Every phrase once, then again in another reading, until there are enough; threads on top."""
    slots = bank["slots"]
    drafts: list[Draft] = []
    said: set[str] = set()
    rounds = [rng.sample(bank["posts"], len(bank["posts"])) for _ in range(_TRIES)]
    for phrase in [phrase for one_round in rounds for phrase in one_round]:
        plain = spoken(phrase, slots, rng)
        if plain in said or len(said) >= aim:
            continue
        said.add(plain)
        author = rng.choice(crowd)
        drafts.append(Draft(_moment(rng), author, voiced(plain, author.voice, lang, (), rng), lang))
    for thread in bank["threads"]:
        drafts += _thread([spoken(phrase, slots, rng) for phrase in thread], lang, crowd, rng)
    return drafts


def _thread(texts: list[str], lang: str, crowd: list[Account], rng: Random) -> list[Draft]:
    pair = rng.sample(crowd, 2)
    at_ms = _moment(rng)
    drafts: list[Draft] = []
    for turn, text in enumerate(texts):
        if at_ms >= LAST_MS:
            break
        author = pair[turn % 2]
        above = drafts[-1] if drafts else None
        drafts.append(Draft(at_ms, author, voiced(text, author.voice, lang, (), rng), lang, reply_to=above))
        at_ms += rng.randrange(40_000, 500_000)
    return drafts


def _moment(rng: Random) -> int:
    if rng.random() < _LIVE_SHARE:
        return at_minute(rng.random() * (LAST_MIN - 0.1))
    return at_minute(FIRST_MIN * rng.random())
