"""Which posts say the same: exact repeats and reposts of one post. Knows no index and no ranking."""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import replace

import regex

from ingest.post import Match

URL = regex.compile(r"https?://\S+|www\.\S+")
LEAD = regex.compile(r"^(?:rt\s+@[\w.@-]+\s*:?\s*|[.]?@[\w.@-]+\s+)+")  # "RT @ana: ", "@ana @ben "

Key = tuple[str, str]


def repeat_key(text: str) -> str:
    """Equal for two texts that differ only in case, width, spaces, URLs, leading mentions or a leading RT.

    A text that is nothing but these is equal only to itself.
    """
    folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    bare = " ".join(URL.sub(" ", LEAD.sub("", folded)).split())
    return bare or folded


def collapse(matches: Sequence[Match]) -> list[Match]:
    """One match for each thing said, best first as given.

    Kept is the earliest post that is no repost; it takes the best score of those it stands for. `repeats` counts the
    posts, `why["authors"]` the different authors among them. Pieces of one post count once.
    """
    return [_stand_for(group) for group in _groups(matches)]


def _groups(matches: Sequence[Match]) -> Iterable[list[Match]]:
    """Joined by the same post (its pieces, its reposts) or by the same text; in order of their first member."""
    joined: dict[Key, Key] = {}

    def find(key: Key) -> Key:
        while (next_key := joined.setdefault(key, key)) != key:
            key = next_key
        return key

    for match in matches:
        post = find(("post", match.post_id))
        for key in (("post", match.repost_of or match.post_id), ("text", repeat_key(match.text))):
            joined[find(key)] = post
    groups: dict[Key, list[Match]] = {}
    for match in matches:
        groups.setdefault(find(("post", match.post_id)), []).append(match)
    return groups.values()


def _stand_for(group: list[Match]) -> Match:
    best = max(group, key=lambda match: match.score)
    first = min(group, key=lambda match: (match.repost_of is not None, match.sort_ms, match.post_id))
    piece = max((match for match in group if match.post_id == first.post_id), key=lambda match: match.score)
    authors = {(match.source, match.author_id) for match in group}
    return replace(
        piece,
        score=best.score,
        repeats=len({match.post_id for match in group}),
        why={**best.why, "authors": float(len(authors))},
    )
