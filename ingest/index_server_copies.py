"""Who else says what some matches say, in the index on a Qdrant server: two round trips. Changes nothing."""

from collections.abc import Iterable, Mapping, Sequence

from qdrant_client import models

from ingest.index import Copy, storable
from ingest.index_points import POSTS, VISIBLE, YES, Condition, Payload, copy_of
from ingest.index_server_calls import Calls, payload_in
from ingest.index_server_filter import where
from ingest.post import Match

FIELDS = ["post_id", "account", "sort_ms", "repost_of"]
EARLIEST = models.OrderByQuery(order_by=models.OrderBy(key="sort_ms", direction=models.Direction.ASC))
QUERIES = 100  # in one round trip
Saying = tuple[str, str]  # an account, and what it is asked about


async def copies(calls: Calls, matches: Sequence[Match], limit: int) -> dict[str, list[Copy]]:
    """By post id of the match: posts of the same saying and reposts of it, itself included, the earliest first."""
    found = await _found(calls, matches, limit)
    asked = {
        (payload["account"], match.saying): None
        for match in matches
        for payload in found[match.post_id]
        if payload["account"]
    }
    since = await _known_since(calls, list(asked))
    return {match.post_id: [_copy(payload, match, since) for payload in found[match.post_id]] for match in matches}


async def _found(calls: Calls, matches: Sequence[Match], limit: int) -> dict[str, list[Payload]]:
    ways = [(match.post_id, Condition("repost_of", (storable(match.post_id),))) for match in matches]
    ways += [(match.post_id, Condition("saying", (match.saying,))) for match in matches if match.saying]
    answers = await _earliest(calls, [[way, *VISIBLE] for _, way in ways], FIELDS, limit)
    found: dict[str, dict[str, Payload]] = {match.post_id: {} for match in matches}
    for (post_id, _), payloads in zip(ways, answers, strict=True):
        for payload in payloads:
            found[post_id].setdefault(payload["post_id"], payload)
    return {
        post_id: sorted(some.values(), key=lambda payload: (payload["sort_ms"], payload["post_id"]))[:limit]
        for post_id, some in found.items()
    }


async def _known_since(calls: Calls, asked: Sequence[Saying]) -> dict[Saying, int]:
    """When each of the accounts first said something else."""
    conditions = [
        [
            *POSTS,
            Condition("account", (account,)),
            Condition("bare", (YES,), is_not=True),
            Condition("saying", (saying,), is_not=True),
        ]
        for account, saying in asked
    ]
    answers = await _earliest(calls, conditions, ["sort_ms"], 1)
    return {who: payloads[0]["sort_ms"] for who, payloads in zip(asked, answers, strict=True) if payloads}


async def _earliest(
    calls: Calls, conditions: Iterable[Iterable[Condition]], fields: Sequence[str], limit: int
) -> list[list[Payload]]:
    requests = [
        models.QueryRequest(query=EARLIEST, filter=where(some), limit=limit, with_payload=list(fields))
        for some in conditions
    ]
    answers: list[list[Payload]] = []
    for start in range(0, len(requests), QUERIES):
        points = await calls.query(requests[start : start + QUERIES])
        answers += [[payload_in(point) for point in some] for some in points]
    return answers


def _copy(payload: Payload, match: Match, since: Mapping[Saying, int]) -> Copy:
    first_ms = since.get((payload["account"], match.saying))
    return copy_of(payload, first_ms is not None and first_ms < payload["sort_ms"])
