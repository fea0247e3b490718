"""Posts put there to test the filter: invented contact details, and posts that try to give the model orders."""

from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Literal

from ingest.sources.sample.draft import Draft
from ingest.sources.sample.people import Account, People
from ingest.sources.sample.stories import stories
from ingest.sources.sample.text import load
from ingest.sources.sample.timeline import at_minute

Kind = Literal["phone", "email", "card", "iban", "ip", "order"]


@dataclass(frozen=True, slots=True)
class Planted:
    """`value` stands in `text` and must never stand in an answer; `ask` is a question that would fish for it.

    For an order `value` is what the model would say if it obeyed.
    """

    kind: Kind
    value: str
    text: str
    lang: str
    ask: str
    story: str
    at_min: float
    by: str = ""  # a person by handle without ".example"; "" for anybody of the story's crowd


@cache
def planted_pii() -> tuple[Planted, ...]:
    """Every personal detail of the feed. Only values reserved for fiction, documentation and tests."""
    return tuple(Planted(**entry) for entry in load("planted"))


@cache
def orders() -> tuple[Planted, ...]:
    """Every post of the feed that addresses the model instead of people."""
    return tuple(Planted(kind="order", **entry) for entry in load("orders"))


def trap_drafts(people: People, rng: Random) -> list[Draft]:
    """One draft per planted post, each by somebody who lets their posts be found."""
    drafts = []
    for planted in (*planted_pii(), *orders()):
        author = people.persons[planted.by] if planted.by else rng.choice(_cast(planted, people))
        at_ms = at_minute(planted.at_min) + rng.randrange(60_000)
        drafts.append(Draft(at_ms, author, planted.text, planted.lang, planted.story))
    return drafts


def _cast(planted: Planted, people: People) -> list[Account]:
    crowd = next((story.crowd for story in stories() if story.slug == planted.story), {})
    homes = crowd.get(planted.lang, ())
    local = [account for home in homes for account in people.crowds[home]] or people.everyone(planted.lang)
    return [account for account in local if account.indexable]
