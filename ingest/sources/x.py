"""Objects of X's API v2 (stream, search, look-up) -> records. Compliance events: x_compliance.py. Knows no network.

One post is one chain of edits: its id is `x:<first id of the chain>`, its text that of its last version, and its
version the time in that version's id (x_ids.py). Both names that X has for a field are read: tweet and post.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ingest.payload import Refused
from ingest.post import Author, Malformed, Post, Record, Removal, account_of
from ingest.sources.x_compliance import compliance, problem
from ingest.sources.x_fields import (
    EVERYWHERE,
    created_us,
    engagement,
    label,
    labels,
    language,
    string,
    web_url,
    withheld_in,
)  # fmt: skip
from ingest.sources.x_ids import MAX_CHAIN, checked_id, edit_chain, either, made_ms, post_id, version_us
from ingest.sources.x_published import Version
from ingest.sources.x_text import text_of

SOURCE = "x"
_GNIP = {"objectType", "verb", "actor"}
_V1_POST = {"id_str", "full_text"}
_V1_EVENT = _V1_POST | {"delete", "status_withheld", "user_withheld", "scrub_geo", "limit", "disconnect"}
_OF_A_POST = {"id", "text"} | _V1_POST | _GNIP
_ANSWER = {"data", "includes", "errors", "meta", "matching_rules"}


@dataclass(frozen=True, slots=True)
class Reading:
    """What one object of X says. `aliases`: (a version, the post that it is a version of), both as `x:<id>`."""

    records: tuple[Record, ...] = field(default=(), repr=False)
    aliases: tuple[tuple[str, str], ...] = ()
    versions: tuple[Version, ...] = ()  # one for each post in `records` that has a text
    reads: int = 0  # posts that X counts and bills
    newest: str = ""  # the greatest id among the posts that were asked for; "" without any
    disconnect: str = ""  # X's word for why it closes the stream


def read(
    event: Any, *, received_ms: int, chain_of: Callable[[str], str | None], skipped: Counter[str]
) -> Reading:  # fmt: skip
    """A line of a stream, or the answer to a search or a look-up, as JSON was decoded. Never raises on what it holds.

    `chain_of` gives the post that a version is of (`Aliases.get`). `skipped` counts what is no post. Posts that a post
    quotes, answers or repeats come before it, as far as `includes` has them.
    """
    if not isinstance(event, Mapping):
        return Reading((Malformed("json", "not an object"),))
    data, includes = event.get("data"), event.get("includes")
    if data is None and (other := _other_api(event, _V1_EVENT)) is not None:
        return Reading((other,))
    disconnect = _disconnect(event, skipped)
    if data is None:
        return Reading(disconnect=disconnect)
    if isinstance(data, Mapping) and not _OF_A_POST & data.keys():
        records, aliases = compliance(data, received_ms=received_ms, chain_of=chain_of, skipped=skipped)
        return Reading(records, aliases, disconnect=disconnect)
    includes = includes if isinstance(includes, Mapping) else {}
    included = either(includes, "tweets", "posts")
    posts = _Posts(
        data if isinstance(data, list) else [data],
        included if isinstance(included, list) else [],
        includes.get("users"),
        received_ms,
        chain_of,
    )
    records = posts.records()
    return Reading(records, posts.aliases(), tuple(posts.versions), posts.reads, posts.newest(), disconnect)


def _disconnect(event: Mapping[str, Any], skipped: Counter[str]) -> str:
    """Why X closes the stream, "" if it does not. Other errors and fields that nobody knows are counted."""
    disconnect = ""
    errors = event.get("errors")
    for error in [*(errors if isinstance(errors, list) else ()), event]:
        if not isinstance(error, Mapping):
            continue
        reason = either(error, "disconnect_type", "connection_issue")
        if reason is not None or problem(error) == "operational-disconnect":
            disconnect = label(reason or problem(error))
        elif error is not event or problem(error):
            skipped[f"error:{label(problem(error))}"] += 1
        else:
            skipped.update(label(name) for name in event if name not in _ANSWER)
    return disconnect


def _other_api(event: Mapping[str, Any], v1: set[str]) -> Malformed | None:
    if _GNIP & event.keys():
        return Malformed("gnip", "an activity of the enterprise API 2.0; only v2 is read")
    if v1 & event.keys():
        return Malformed("v1", "an object of the API v1; only v2 is read")
    return None


class _Posts:
    """The posts of one object, with the authors and chains that they share."""

    def __init__(
        self, asked: list[Any], included: list[Any], users: Any, received_ms: int, chain_of: Callable[[str], str | None]
    ) -> None:
        self._received_ms, self._chain_of = received_ms, chain_of
        self.versions: list[Version] = []
        self._asked_ids = [given.get("id") for given in asked if isinstance(given, Mapping)]
        others = [one for one in included if not (isinstance(one, Mapping) and one.get("id") in self._asked_ids)]
        self._given = [*others, *asked]
        self._users = {
            user["id"]: user
            for user in (users if isinstance(users, list) else ())
            if isinstance(user, Mapping) and isinstance(user.get("id"), str)
        }
        self._chains: dict[str, str] = {}
        for post in self._given:
            try:
                chain = edit_chain(post) if isinstance(post, Mapping) else []
            except Refused:
                continue
            self._chains |= dict.fromkeys(chain, chain[0] if chain else "")

    @property
    def reads(self) -> int:
        return len(self._given)

    def newest(self) -> str:
        return max(
            (one for one in self._asked_ids if isinstance(one, str) and one in self._chains), key=int, default=""
        )

    def aliases(self) -> tuple[tuple[str, str], ...]:
        return tuple((post_id(one), post_id(first)) for one, first in self._chains.items() if one != first)

    def records(self) -> tuple[Record, ...]:
        return tuple(self._record(given) for given in self._given)

    def _record(self, given: Any) -> Record:
        try:
            return self._version(given)
        except Refused as refused:
            return Malformed(refused.reason, refused.detail)

    def _version(self, given: Any) -> Post | Removal:
        """What takes a post away is looked at first, so that no other fault can keep it findable."""
        if not isinstance(given, Mapping):
            raise Refused("json", "a post is not an object")
        if (other := _other_api(given, _V1_POST)) is not None:
            raise Refused(other.reason, other.detail)
        chain = edit_chain(given)
        author_id = given.get("author_id")
        user = self._users.get(author_id, {}) if isinstance(author_id, str) else {}
        countries = withheld_in(given) | withheld_in(user)
        if user.get("protected") not in (None, False):
            return self._removal(chain, "consent")
        if countries & EVERYWHERE:
            return self._removal(chain, "withheld")
        return self._post(given, chain, user, labels(given, countries))

    def _removal(self, chain: list[str], reason: str) -> Removal:
        """It is so now, for every version that there is by now."""
        newest_us = (made_ms(chain[-1]) or 0) * 1000 + MAX_CHAIN
        return Removal(post_id(chain[0]), max(newest_us, self._received_ms * 1000), reason, if_newer=True)

    def _post(
        self, given: Mapping[str, Any], chain: list[str], user: Mapping[str, Any], labelled: tuple[str, ...]
    ) -> Post:  # fmt: skip
        """A repeated post has no text of its own, and the counts beside it are those of the original."""
        author_id = "" if given.get("author_id") is None else checked_id(given["author_id"], "author_id")
        said_us = created_us(given)
        version = version_us(chain, given["id"], said_us)
        refers = self._references(given)
        is_repeat = "retweeted" in refers
        post = Post(
            id=post_id(chain[0]),
            source=SOURCE,
            version_us=version,
            text="" if is_repeat else text_of(given),
            created_ms=made_ms(chain[0]) or (version if said_us is None else said_us) // 1000,
            received_ms=self._received_ms,
            author=Author(author_id, string(user, "username"), string(user, "name")),
            lang=language(given.get("lang")),
            url=web_url(user, given["id"]),
            edited_ms=version // 1000 if given["id"] != chain[0] else None,
            reply_to=refers.get("replied_to"),
            quote_of=refers.get("quoted"),
            repost_of=refers.get("retweeted"),
            labels=labelled,
            conversation=self._conversation(given, chain),
            account=account_of(SOURCE, author_id) if author_id else "",
            **engagement(None if is_repeat else given.get("public_metrics")),
        )
        if not is_repeat:
            self.versions.append(Version(post.id, chain[-1], is_read=given["id"] == chain[-1]))
        return post

    def _references(self, given: Mapping[str, Any]) -> dict[str, str]:
        """Kind of reference -> post id."""
        references = either(given, "referenced_tweets", "referenced_posts")
        found: dict[str, str] = {}
        for reference in references if isinstance(references, list) else ():
            kind = reference.get("type") if isinstance(reference, Mapping) else None
            if kind in ("retweeted", "quoted", "replied_to"):
                found[kind] = self._post_of(checked_id(reference.get("id"), "referenced id"))
        return {"retweeted": found["retweeted"]} if "retweeted" in found else found

    def _conversation(self, given: Mapping[str, Any], chain: list[str]) -> str | None:
        if given.get("conversation_id") is None:
            return None
        began_with = checked_id(given["conversation_id"], "conversation_id")
        return None if began_with in chain else self._post_of(began_with)

    def _post_of(self, native_id: str) -> str:
        if native_id in self._chains:
            return post_id(self._chains[native_id])
        return self._chain_of(post_id(native_id)) or post_id(native_id)
