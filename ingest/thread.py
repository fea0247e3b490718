"""The posts around a match: what its thread began with, what it replies to, what it quotes."""

from collections.abc import Mapping
from dataclasses import replace

from ingest.ask import Ask
from ingest.index import author_key
from ingest.post import Match


def context_ids(match: Match) -> list[str]:
    """In the order in which they are read, each once, without its own."""
    ids = dict.fromkeys((match.conversation, match.reply_to, match.quote_of))
    return [post_id for post_id in ids if post_id and post_id != match.post_id]


def in_context(match: Match, fetched: Mapping[str, Match]) -> Match:
    """`fetched`: the posts that can be found (PostIndex.fetch). One that was removed or hidden is left out."""
    return replace(match, context=tuple(fetched[post_id] for post_id in context_ids(match) if post_id in fetched))


def is_left_out(post: Match, ask: Ask) -> bool:
    """Whether the caller does not want to see it, also not around another."""
    names = {author_key(post.author_id), author_key(post.author_handle)}
    return bool(names & {author_key(given) for given in ask.without_authors}) or bool(
        {*post.labels} & {*ask.without_labels}
    )
