"""What the stream has said of its authors. Jetstream's posts carry a DID only; no other service is asked for more."""

from collections import OrderedDict
from dataclasses import dataclass, replace

from ingest.post import AccountChange, Author, Post, Record, Removal
from ingest.sources.bluesky_frame import AuthorNews
from ingest.sources.bluesky_record import OPTED_OUT, SOURCE


@dataclass(slots=True)
class _Person:
    handle: str = ""
    name: str = ""
    opted_out: bool = False


class People:
    """The `limit` authors of whom was heard last: handles by identity events, names and opt-outs by profiles.

    A post carries what was known when it came. Bluesky's setting against being shown to people who are not logged in
    is a label of the profile: it hides the account (AccountChange) and, while it is remembered, its posts are removals.
    """

    def __init__(self, limit: int = 100_000) -> None:
        self._limit = limit
        self._people: OrderedDict[str, _Person] = OrderedDict()

    def hear(self, did: str, news: AuthorNews, seen_us: int) -> AccountChange | None:
        """The change to publish when somebody takes the opt-out back."""
        person = self._people.pop(did, None) or _Person()
        was_out = person.opted_out
        person.handle = person.handle if news.handle is None else news.handle
        person.name = person.name if news.name is None else news.name
        person.opted_out = person.opted_out if news.opted_out is None else news.opted_out
        if person.handle or person.name or person.opted_out:
            self._people[did] = person
        while len(self._people) > self._limit:
            self._people.popitem(last=False)
        return AccountChange(SOURCE, did, "active", seen_us) if was_out and not person.opted_out else None

    def signed(self, did: str, record: Record) -> Record:
        person = self._people.get(did)
        if person is None:
            return record
        if isinstance(record, Post):
            if person.opted_out:
                return Removal(record.id, record.version_us, "consent", if_newer=True)
            return replace(record, author=Author(did, person.handle, person.name))
        if isinstance(record, AccountChange) and record.state == "active" and person.opted_out:
            return replace(record, state="hidden", reason=OPTED_OUT)
        return record
