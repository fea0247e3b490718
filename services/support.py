"""Which posts support a sentence: shared words and numbers, the same yes or no, and nearness of meaning."""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import numpy as np

from services.terms import Terms, clauses, terms

Embed = Callable[[Sequence[str]], Awaitable[np.ndarray]]

# Measured on tests/services/attribution.jsonl (test_support.py states the figures).
NUMBER_WEIGHT = 2.0
COMMON_SHARE = 0.5  # what is left of the weight of a term that most posts have: it is the topic, not the claim
MIN_TERMS = 2
MIN_CLAIM_TERMS = 3  # a sentence with less, unsupported, claims nothing worth a warning
MIN_SHARED = 0.6  # share of the sentence's terms that the post has
MIN_PART = 0.34  # the same share, of each of its clauses
MIN_SCORE = 1.45  # shared + cosine
MAX_BEHIND = 0.25  # of a further post, behind the best
NAMED_BONUS = 0.15  # the model itself named the post


# Greetings, offers, apologies, headings, questions and lead-ins say nothing about the world.
_NO_CLAIM = re.compile(
    r"^\s*#|[?:？：؟]\W*$|^\W*(?:hi|hello|hey|thanks|thank you|sure|okay|welcome|here(?:'s| is| are)|let me know"
    r"|i hope|i'm sorry|i am sorry|sorry|i (?:do not|don't|cannot|can't|could not|couldn't|have no)|feel free|please"
    r"|there (?:is|are) no (?:recent |relevant )?(?:posts?|information)|hola|gracias|aquí (?:está|tienes?)|espero que"
    r"|lo siento|hallo|danke|hier (?:ist|sind)|ich hoffe|leider)\b"
    r"|^\W*(?:你好|您好|以下|希望|抱歉|こんにちは|申し訳|مرحبا|شكرا|آسف)",
    re.IGNORECASE,
)


_HANDLE = re.compile(r"@([\w.-]*\w)")


@dataclass(frozen=True, slots=True)
class Evidence:
    """A post as a sentence is compared with it. An answer may say who wrote it."""

    text: str
    handle: str = ""
    name: str = ""
    vector: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class _Read:
    terms: Terms
    names: Terms
    clauses: tuple[Terms, ...]


class Support:
    """`embed` turns texts into unit rows; it is asked only for sentences that share enough words with a post."""

    def __init__(self, evidence: Sequence[Evidence], embed: Embed) -> None:
        self._evidence, self._embed = evidence, embed
        self._read = [_read(one) for one in evidence]
        self._vectors: np.ndarray | None = None
        counts = Counter(term for read in self._read for term in read.terms.words | read.terms.numbers)
        self._common = {term for term, count in counts.items() if count > max(1, len(evidence) // 2)}

    async def of(self, sentence: str, named: Sequence[int] = ()) -> list[int]:
        """Places in `evidence` of the posts that support `sentence`, best first. `named`: those the model named."""
        claim, parts = terms(sentence), [terms(clause) for clause in clauses(sentence)]
        if len(claim) < MIN_TERMS:
            return []
        told = self._told(sentence)
        shared = {
            place: 0.0 if _contradicts(parts, read.clauses) else self._shared(claim, parts, read)
            for place, read in enumerate(self._read)
            if not told or place in told
        }
        near = [place for place, share in shared.items() if share >= MIN_SHARED]
        if not near:
            return []
        cosines = await self._cosines(sentence)
        scores = {place: shared[place] + float(cosines[place]) + NAMED_BONUS * (place in named) for place in near}
        enough = max([MIN_SCORE, *(score - MAX_BEHIND for score in scores.values())])
        return sorted((place for place in scores if scores[place] >= enough), key=lambda place: -scores[place])

    def _told(self, sentence: str) -> set[int]:
        """The posts of the authors that the sentence quotes by handle: what it says is theirs or wrong."""
        quoted = {handle.casefold() for handle in _HANDLE.findall(sentence)}
        return {place for place, one in enumerate(self._evidence) if one.handle and one.handle.casefold() in quoted}

    def _shared(self, claim: Terms, parts: Sequence[Terms], read: _Read) -> float:
        """Weighted share of the claim's terms that the post has; 0 if the post lacks one of its numbers or knows
        nothing of one of its parts."""
        if not claim.numbers <= read.terms.numbers | read.names.numbers:
            return 0.0
        said = [part for part in parts if len(part.words - read.names.words) + len(part.numbers) >= MIN_TERMS]
        if any(self._share(part, read) < MIN_PART for part in said):
            return 0.0
        return self._share(claim, read)

    def _share(self, claim: Terms, read: _Read) -> float:
        weights = dict.fromkeys(claim.words - read.names.words, 1.0) | dict.fromkeys(claim.numbers, NUMBER_WEIGHT)
        weights = {term: weight * (COMMON_SHARE if term in self._common else 1.0) for term, weight in weights.items()}
        held = sum(weight for term, weight in weights.items() if term in read.terms.words | read.terms.numbers)
        return held / sum(weights.values()) if held else 0.0

    async def _cosines(self, sentence: str) -> np.ndarray:
        if self._vectors is None:
            self._vectors = await self._post_vectors()
        cosines: np.ndarray = self._vectors @ np.asarray(await self._embed([sentence]))[0]
        return cosines

    async def _post_vectors(self) -> np.ndarray:
        if all(len(one.vector) for one in self._evidence):
            return np.asarray([one.vector for one in self._evidence])
        return np.asarray(await self._embed([one.text for one in self._evidence]))


def is_claim(sentence: str) -> bool:
    """Whether a sentence says something that a post could support or not."""
    return not _NO_CLAIM.search(sentence) and len(terms(sentence)) >= MIN_CLAIM_TERMS


def _read(one: Evidence) -> _Read:
    return _Read(
        terms(one.text), terms(f"{one.handle} {one.name}"), tuple(terms(clause) for clause in clauses(one.text))
    )


def _contradicts(claim: Sequence[Terms], post: Sequence[Terms]) -> bool:
    """Whether a part of the claim says no where the part of the post most like it does not, or the other way round;
    or "open" where that says "closed"."""
    return any(_opposed(part, max(post, key=lambda other: _likeness(part, other))) for part in claim if post)


def _likeness(part: Terms, other: Terms) -> tuple[int, bool]:
    return len(part.words & other.words) + len(part.numbers & other.numbers), part.negated == other.negated


def _opposed(part: Terms, other: Terms) -> bool:
    if not (part.words & other.words or part.numbers & other.numbers):
        return False
    other_ends = {(scale, 1 - end) for scale, end in other.ends - part.ends}
    return part.negated != other.negated or bool(part.ends & other_ends)
