"""Who else says what a match says, in the embedded index. Blocking, changes nothing."""

from collections.abc import Sequence

import qdrant_edge as edge

from ingest.index import Copy, storable
from ingest.index_edge_changes import entries
from ingest.index_points import POSTS, VISIBLE, YES, Condition, Payload, copy_of
from ingest.index_tier import Tier
from ingest.post import Match

FIELDS = ("post_id", "account", "sort_ms", "repost_of", "saying")
EARLIEST = edge.OrderBy("sort_ms", edge.Direction.Asc)


def copies(hot: Tier, warm: Tier | None, match: Match, limit: int) -> list[Copy]:
    """Posts of the same saying and reposts of the match, itself included, the earliest `limit` first."""
    found = _found(hot, match, limit)
    if warm is not None:
        also = _found(warm, match, limit)
        hot_posts = entries(hot, {payload["post_id"] for payload in also})
        found += [payload for payload in also if payload["post_id"] not in hot_posts]
    found.sort(key=lambda payload: (payload["sort_ms"], payload["post_id"]))
    tiers = (hot, warm) if warm is not None else (hot,)
    known: dict[str, int] = {}  # account -> from when on it is known
    return [copy_of(payload, _is_known(tiers, payload, match.saying, known)) for payload in found[:limit]]


def _found(tier: Tier, match: Match, limit: int) -> list[Payload]:
    ways = [Condition("repost_of", (storable(match.post_id),))]
    if match.saying:
        ways.append(Condition("saying", (match.saying,)))
    found: dict[str, Payload] = {}
    for way in ways:
        for payload in tier.scroll([way, *VISIBLE], FIELDS, limit, order=EARLIEST)[0]:
            found.setdefault(payload["post_id"], payload)
    return list(found.values())


def _is_known(tiers: Sequence[Tier], payload: Payload, saying: str, known: dict[str, int]) -> bool:
    """Whether an earlier post of the author says something else."""
    account = payload["account"]
    if not account:
        return False
    if account not in known:
        others = [
            *POSTS,
            Condition("account", (account,)),
            Condition("bare", (YES,), is_not=True),
            Condition("saying", (saying,), is_not=True),
        ]
        first = [tier.scroll(others, ["sort_ms"], 1, order=EARLIEST)[0] for tier in tiers]
        known[account] = min((one[0]["sort_ms"] for one in first if one), default=2**63)
    return bool(known[account] < payload["sort_ms"])
