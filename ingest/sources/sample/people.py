"""The invented accounts: officials, press, and some two hundred people with a home and a way of writing."""

from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Literal

from ingest.sources.sample.text import load

Voice = Literal["plain", "lower", "tags", "emoji", "loud", "trailing"]
_VOICES: tuple[Voice, ...] = (
    *("plain",) * 12,
    *("lower", "lower", "tags", "tags", "tags", "emoji", "emoji", "loud", "trailing"),
)
_OPTED_OUT = frozenset({"odile.fen.example", "tidaltess.example", "ines.retama.example", "kanalkatze.example"})


@dataclass(frozen=True, slots=True)
class Account:
    handle: str
    name: str
    lang: str
    voice: Voice
    reach: int  # likes that one of its posts may get at most
    official: bool = False

    @property
    def id(self) -> str:
        return "did:example:" + self.handle.removesuffix(".example").replace(".", "-")

    @property
    def indexable(self) -> bool:
        """False for the few people of the feed who asked not to be found by search."""
        return self.handle not in _OPTED_OUT


@dataclass(frozen=True, slots=True)
class People:
    desks: dict[str, Account]  # officials and press, by the short name that the stories use
    crowds: dict[str, tuple[Account, ...]]  # "lang/home" -> who lives there
    spammers: dict[str, Account]  # one per language; never part of a crowd
    persons: dict[str, Account]  # everybody of the crowds, by handle without ".example"

    def account(self, by: str) -> Account:
        """A desk by its short name, or a person by the first part of the handle."""
        return self.desks.get(by) or self.persons[by]

    def everyone(self, lang: str) -> list[Account]:
        """All people (no desks) who write in a language, in a fixed order."""
        return [account for home, crowd in self.crowds.items() if home.startswith(lang + "/") for account in crowd]


@cache
def people() -> People:
    """Read once; the same accounts whatever the seed."""
    raw = load("people")
    desks: dict[str, Account] = {}
    for kind, top in (("official", 900), ("press", 400)):
        for key, (handle, name, lang) in raw[kind].items():
            desks[key] = Account(handle, name, lang, "plain", top, official=kind == "official")
    crowds = {home: tuple(_person(entry, home) for entry in entries) for home, entries in raw["people"].items()}
    persons = {account.handle.removesuffix(".example"): account for crowd in crowds.values() for account in crowd}
    spammers = {lang: _person(entry, lang) for lang, entry in raw["spam"].items()}
    return People(desks, crowds, spammers, persons)


def _person(entry: str, home: str) -> Account:
    local, name = entry.split("|")
    traits = Random(f"voice:{local}")
    voice = traits.choice(_VOICES)
    return Account(f"{local}.example", name, home.split("/")[0], voice, traits.choice((6, 14, 14, 30, 80)))
