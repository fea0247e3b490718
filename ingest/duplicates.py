"""Which posts say the same: repeats, near repeats and reposts of one post. Knows no index and no ranking."""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import regex

from ingest.near_duplicates import near_duplicates
from ingest.post import Match

URL = regex.compile(r"https?://\S+|www\.\S+")
INVISIBLE = regex.compile(r"[\p{Cf}\p{Variation_Selector}]+")  # zero-width marks: a way to make a copy look new
LEAD = regex.compile(r"^(?:rt\s+@[\w.@-]+\s*:?\s*|[.]?@[\w.@-]+\s+)+")  # "RT @ana: ", "@ana @ben "
RETWEET = regex.compile(r"rt\s+@[\w.@-]+")

Key = tuple[str, str]


def repeat_key(text: str) -> str:
    """Equal for two texts that differ only in case, width, spaces, URLs, leading mentions or a leading RT.

    A text that is nothing but these is equal only to itself.
    """
    folded = " ".join(INVISIBLE.sub("", unicodedata.normalize("NFKC", text)).casefold().split())
    bare = " ".join(URL.sub(" ", LEAD.sub("", folded)).split())
    return bare or folded


def saying(text: str) -> str:
    """A hash of `repeat_key`: what an index keeps to find the same words again. "" for a text without any."""
    key = repeat_key(text)
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest() if key else ""


@dataclass(frozen=True, slots=True)
class Said:
    """What several of the matches say. `match` stands for them; `others` are the rest, pieces of one post left out."""

    match: Match
    others: tuple[Match, ...] = ()

    @property
    def members(self) -> tuple[Match, ...]:
        return self.match, *self.others


def is_retweet(text: str) -> bool:
    """Somebody else's words, marked by hand: "RT @ana: ..."."""
    return RETWEET.match(text.lstrip().casefold()) is not None


def collapse(matches: Sequence[Match]) -> list[Said]:
    """One for each thing said, best first as given: the same post, its reposts, the same words, nearly the same words.

    The earliest post that is no repost stands for the others, with the best score of them all and why it has that.
    """
    return [_said(group) for group in _groups(matches)]


def _groups(matches: Sequence[Match]) -> Iterable[list[Match]]:
    """In order of their first member."""
    joined: dict[Key, Key] = {}

    def find(key: Key) -> Key:
        while (next_key := joined.setdefault(key, key)) != key:
            key = next_key
        return key

    for match in matches:
        post = find(("post", match.post_id))
        words = match.saying or saying(match.text) or match.post_id
        for key in (("post", match.repost_of or match.post_id), ("text", words)):
            joined[find(key)] = post
    for one, other in near_duplicates([match.text for match in matches]):
        joined[find(("post", matches[one].post_id))] = find(("post", matches[other].post_id))
    groups: dict[Key, list[Match]] = {}
    for match in matches:
        groups.setdefault(find(("post", match.post_id)), []).append(match)
    return groups.values()


def _said(group: list[Match]) -> Said:
    best = max(group, key=lambda match: match.score)
    pieces: dict[str, Match] = {}  # the best of each post
    for match in sorted(group, key=lambda match: -match.score):
        pieces.setdefault(match.post_id, match)
    first, *others = sorted(
        pieces.values(), key=lambda match: (match.repost_of is not None, match.sort_ms, match.post_id)
    )
    return Said(replace(first, score=best.score, why=best.why), tuple(others))
