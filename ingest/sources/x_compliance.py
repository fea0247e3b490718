"""X's compliance events, and what a look-up does not find any more -> removals and changes of accounts.

The compliance streams themselves are for Enterprise customers; XSource learns of removals by looking posts up again
(x_recheck.py). The index has readers everywhere, so what is withheld in one country is hidden in all: an event
cannot mark a post whose text it does not bring. What was hidden so, or dropped, does not come back as it was.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ingest.payload import Refused
from ingest.post import AccountChange, AccountState, Malformed, Record, Removal
from ingest.sources.x_ids import checked_id, either, made_ms, post_id
from ingest.versions import time_us

# user_delete may be taken back for 30 days, and only then X deletes the posts, one event each.
_ACCOUNT_STATES: dict[str, AccountState] = {
    "user_delete": "hidden",
    "user_undelete": "active",
    "user_protect": "hidden",
    "user_unprotect": "active",
    "user_suspend": "hidden",
    "user_unsuspend": "active",
}
_REMOVED = {"delete": "deleted", "drop": "deleted", "withheld": "withheld"}
_EDITED = ("tweet_edit", "post_edit")
# No place is kept, names come with each post, and an undropped post would need its text again.
_SKIPPED = {"scrub_geo", "user_profile_modification", "undrop"}
_GONE = {
    "resource-not-found": "deleted",
    "not-authorized-for-resource": "consent",
    "disallowed-resource": "deleted",
    "resource-unavailable": "deleted",
}

Read = tuple[tuple[Record, ...], tuple[tuple[str, str], ...]]  # records, aliases


def compliance(
    data: Mapping[str, Any], *, received_ms: int, chain_of: Callable[[str], str | None], skipped: Counter[str]
) -> Read:  # fmt: skip
    """`data` of an event: one field, named for what happened. Never raises on what it holds."""
    records: list[Record] = []
    aliases: list[tuple[str, str]] = []
    for name, body in data.items():
        try:
            if name in _EDITED and isinstance(body, Mapping):
                record, chain = _edited(body)
                records.append(record)
                aliases += [(post_id(one), record.post_id) for one in chain[1:]]
            elif name in _REMOVED and isinstance(body, Mapping):
                records.append(_removed(name, body, received_ms, chain_of))
            elif (name in _ACCOUNT_STATES or name == "user_withheld") and isinstance(body, Mapping):
                records.append(_account(name, body, received_ms))
            else:
                skipped[name if name in _SKIPPED else "unknown"] += 1
        except Refused as refused:
            records.append(Malformed(refused.reason, refused.detail))
    return tuple(records), tuple(aliases)


def gone(answer: Any, *, asked: Mapping[str, str], received_ms: int) -> Iterator[Removal]:
    """Of a look-up of `asked` (native id -> post id): a removal for each post that X does not show any more.

    What is in neither `data` nor `errors`, and an error of another kind, says nothing about a post.
    """
    errors = answer.get("errors") if isinstance(answer, Mapping) else None
    for error in errors if isinstance(errors, list) else ():
        if isinstance(error, Mapping) and problem(error) in _GONE:
            native_id = either(error, "resource_id", "value")
            if isinstance(native_id, str) and native_id in asked and error.get("parameter", "ids") in ("ids", "id"):
                now_us = max(received_ms, made_ms(native_id) or 0) * 1000 + 999
                yield Removal(asked[native_id], now_us, _GONE[problem(error)], if_newer=True)


def problem(error: Mapping[str, Any]) -> str:
    """The last part of `type`: its host is api.x.com or api.twitter.com."""
    kind = error.get("type")
    return kind.rsplit("/problems/", 1)[-1] if isinstance(kind, str) and "/problems/" in kind else ""


def _removed(name: str, body: Mapping[str, Any], received_ms: int, chain_of: Callable[[str], str | None]) -> Removal:
    """Deleting any version deletes the whole chain."""
    subject = either(body, "tweet", "post")
    alias = post_id(checked_id(subject.get("id") if isinstance(subject, Mapping) else None, f"{name}: id"))
    at_us = _event_us(body)
    removed = chain_of(alias) or alias
    if at_us is None:
        return Removal(removed, received_ms * 1000, _REMOVED[name])
    return Removal(removed, at_us, _REMOVED[name], if_newer=True)


def _edited(body: Mapping[str, Any]) -> tuple[Removal, list[str]]:
    """The event does not bring the new text. The old one goes; the new version is newer than this removal."""
    ids = either(body, "edit_tweet_ids", "edit_post_ids")
    first = checked_id(either(body, "initial_tweet_id", "initial_post_id"), "initial id")
    given = [checked_id(one, "edit ids") for one in ids] if isinstance(ids, list) else []
    subject = either(body, "tweet", "post")
    if isinstance(subject, Mapping) and subject.get("id") is not None:
        given.append(checked_id(subject["id"], "edited id"))
    chain = sorted({first, *given}, key=int)
    position = len(chain) - 1
    ms = made_ms(chain[-1])
    if ms is None or position == 0:
        raise Refused("id", "an edit without a new version")
    return Removal(post_id(chain[0]), ms * 1000 + position - 1, if_newer=True), chain


def _account(name: str, body: Mapping[str, Any], received_ms: int) -> AccountChange:
    subject = body.get("user")
    user_id = checked_id(subject.get("id") if isinstance(subject, Mapping) else None, f"{name}: id")
    at_us = _event_us(body)
    state = _ACCOUNT_STATES.get(name)
    if state is None:
        state = "hidden" if body.get("withheld_in_countries") else "active"
    return AccountChange("x", user_id, state, received_ms * 1000 if at_us is None else at_us, name)


def _event_us(body: Mapping[str, Any]) -> int | None:
    """None where it cannot be read: a removal is never refused for its time."""
    try:
        return time_us(body["event_at"]) if isinstance(body.get("event_at"), str) else None
    except ValueError:
        return None
