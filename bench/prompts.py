"""Prompts of a fixed length for the engines' bench: questions about invented posts, no two alike from the first block
on, so that no engine can share what it cached for one with another."""

import random
from collections.abc import Sequence
from typing import Protocol

PLACES = (
    "Alder Quay",
    "Brackwater",
    "Corvane",
    "Dunmoor",
    "Eastgate",
    "Farrow Hill",
    "Glenside",
    "Harrowby",
    "Ironbridge",
)
THINGS = (
    "the ferry",
    "a tram",
    "the night market",
    "the power line",
    "the old mill",
    "the school roof",
    "the ring road",
)
EVENTS = (
    "is closed until {hour} because of {cause}",
    "has been out of order since {hour}, and {count} people wait for news",
    "opens again at {hour} after {cause}, the council writes",
    "was seen by {count} people shortly after {hour}, nobody was hurt",
    "will cost {count} crowns more from next month on, which surprises many here",
    "needs {count} volunteers at {hour}; bring gloves, water and a lamp",
)
CAUSES = (
    "a burst pipe",
    "strong wind",
    "a fallen tree",
    "a film crew",
    "black ice",
    "a broken cable",
    "a missing part",
)
NAMES = (
    "ana",
    "bela",
    "cem",
    "dora",
    "emil",
    "fenna",
    "goran",
    "hana",
    "ivo",
    "jule",
    "karim",
    "lena",
    "marek",
    "nora",
)
QUESTION = "\n\nWhat happened today, where, and who is affected? Answer in long sentences and leave nothing out."


class Renders(Protocol):
    def render(self, messages: Sequence[tuple[str, str]]) -> Sequence[int]: ...


def distinct_prompts(tokenizer: Renders, count: int, length: int, seed: int) -> list[list[int]]:
    """`count` chat prompts of exactly `length` tokens. Another seed gives prompts that share nothing with these."""
    rng = random.Random(seed)
    return [_prompt(tokenizer, rng, length) for _ in range(count)]


def _prompt(tokenizer: Renders, rng: random.Random, length: int) -> list[int]:
    system = f"{rng.choice(PLACES)} desk, {rng.randrange(10**6)}. You sum up posts."
    posts = "\n".join(_post(rng, number) for number in range(1, length // 12))
    whole = list(tokenizer.render([("system", system), ("user", posts + QUESTION)]))
    end = len(tokenizer.render([("user", QUESTION)])) - len(tokenizer.render([("user", "")]))
    closing = end + 8  # the question, and what the template writes after it
    assert len(whole) >= length > closing, f"{len(whole)} tokens, {length} wanted"
    return whole[: length - closing] + whole[-closing:]


def _post(rng: random.Random, number: int) -> str:
    hour = f"{rng.randrange(24)}:{rng.randrange(60):02}"
    event = rng.choice(EVENTS).format(hour=hour, cause=rng.choice(CAUSES), count=rng.randrange(3, 900))
    return f"{number}. @{rng.choice(NAMES)}{rng.randrange(1000)}: {rng.choice(PLACES)}: {rng.choice(THINGS)} {event}."
