"""A paid call to X: what is asked for, and the settling of what it cost."""

from collections.abc import Callable
from typing import Any

from ingest.sources.budget import Budget, Reservation
from ingest.sources.x import Reading
from ingest.sources.x_api_client import XApi
from ingest.sources.x_backoff import XFault

RECENT = "/2/tweets/search/recent"
LOOK_UP = "/2/tweets"
_POST_FIELDS = (
    "author_id,conversation_id,created_at,edit_history_tweet_ids,entities,id,lang,note_tweet,possibly_sensitive,"
    "public_metrics,referenced_tweets,text,withheld"
)
ALONE = {
    "tweet.fields": _POST_FIELDS,
    "user.fields": "id,name,protected,username,withheld",
    "expansions": "author_id",
}
WITH_REFERENCES = ALONE | {"expansions": "author_id,referenced_tweets.id,referenced_tweets.id.author_id"}
READS_A_POST = 3  # with references, at most: it answers one post and quotes one, or it repeats one


async def fetch(
    api: XApi,
    path: str,
    parameters: dict[str, str],
    budget: Budget,
    reservation: Reservation,
    read: Callable[[object], Reading],
) -> tuple[dict[str, Any], Reading]:
    """Raises XFault. Settles the reservation whatever happens: in full when nobody knows what X has sent."""
    used = reservation.posts
    try:
        answer = await api.ask(path, parameters)
        reading = read(answer)
        used = reading.reads
    except XFault as fault:
        used = reservation.posts if fault.may_be_billed else 0
        raise
    finally:
        budget.settle(reservation, used)
    return answer, reading
