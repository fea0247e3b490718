"""The feed as records of the topic: drafts in order, with ids, versions and counts; then their edits and deletions."""

from collections import Counter
from functools import cache
from random import Random
from typing import Any

from ingest.sources.sample.draft import Draft
from ingest.sources.sample.people import people
from ingest.sources.sample.smalltalk import smalltalk
from ingest.sources.sample.spreading import spread
from ingest.sources.sample.stories import stories
from ingest.sources.sample.telling import Telling
from ingest.sources.sample.timeline import iso, native_id
from ingest.sources.sample.traps import trap_drafts


def sample_records(seed: int = 7) -> list[dict[str, Any]]:
    """The whole feed in the order of its time: `{"at": RFC 3339, "id": ..., "post": topic object or None}`.

    None is the deletion of that id. Six hours before `NOW`, two after it. A seed gives the same records on any machine.
    """
    drafts = _drafts(seed)
    ids = [f"sample:{native_id(draft.at_ms)}" for draft in drafts]
    ids_by_draft = dict(zip(map(id, drafts), ids, strict=True))
    counts = _counts(drafts, Random(f"{seed}:counts"))
    moments: list[tuple[int, str, Draft, bool]] = []
    for draft, post_id in zip(drafts, ids, strict=True):
        moments.append((draft.at_ms, post_id, draft, False))
        moments += [(edited_ms, post_id, draft, False) for edited_ms, _ in draft.edits]
        if draft.deleted_ms:
            moments.append((draft.deleted_ms, post_id, draft, True))
    moments.sort(key=lambda moment: moment[:2])
    return [
        {"at": iso(at_ms), "id": post_id, "post": None if gone else _post(draft, at_ms, ids_by_draft, counts)}
        for at_ms, post_id, draft, gone in moments
    ]


def post_stories(seed: int = 7) -> dict[str, str]:
    """Which story each post id belongs to; "" for small talk. For judging retrieval."""
    return {f"sample:{native_id(draft.at_ms)}": draft.story for draft in _drafts(seed)}


@cache
def _drafts(seed: int) -> tuple[Draft, ...]:
    """Every post in order, no two in the same millisecond, so that time alone makes the ids."""
    drafts: list[Draft] = []
    for story in stories():
        rng = Random(f"{seed}:{story.slug}")
        drafts += spread(Telling(story, people(), rng).tell(), people(), rng)
    rng = Random(f"{seed}:smalltalk")
    drafts += spread(smalltalk(people(), rng), people(), rng)
    drafts += trap_drafts(people(), Random(f"{seed}:traps"))
    drafts.sort(key=lambda draft: draft.at_ms)  # stable: the order above decides between equals
    taken = 0
    for draft in drafts:
        draft.at_ms = taken = max(draft.at_ms, taken + 1)
    return tuple(drafts)


def _counts(drafts: tuple[Draft, ...], rng: Random) -> dict[int, dict[str, int | None]]:
    replies = Counter(id(draft.reply_to) for draft in drafts if draft.reply_to)
    reposts = Counter(id(draft.repost_of) for draft in drafts if draft.repost_of)
    counts: dict[int, dict[str, int | None]] = {}
    for draft in drafts:
        likes = min(rng.randrange(draft.author.reach), rng.randrange(draft.author.reach))
        views = likes * rng.randrange(20, 60) if draft.author.official else None
        counts[id(draft)] = {
            "likes": likes,
            "reposts": reposts[id(draft)],
            "replies": replies[id(draft)],
            "views": views,
        }
    return counts


def _post(draft: Draft, at_ms: int, ids: dict[int, str], counts: dict[int, dict[str, int | None]]) -> dict[str, Any]:
    """The topic object of a draft as it stood at that moment."""
    author = draft.author
    post_id = ids[id(draft)]
    return {
        "id": post_id,
        "source": "sample",
        "version": str(at_ms * 1000),
        "author": {"id": author.id, "handle": author.handle, "name": author.name},
        "text": draft.text_at(at_ms),
        "lang": draft.lang,
        "url": f"https://social.example/@{author.handle}/{post_id.removeprefix('sample:')}",
        "created_at": iso(draft.at_ms),
        "edited_at": iso(at_ms) if at_ms > draft.at_ms else None,
        "reply_to": ids[id(draft.reply_to)] if draft.reply_to else None,
        "quote_of": ids[id(draft.quote_of)] if draft.quote_of else None,
        "repost_of": ids[id(draft.repost_of)] if draft.repost_of else None,
        "labels": list(draft.labels),
        "consent": {"indexable": author.indexable},
        "engagement": dict(counts[id(draft)]),
    }
