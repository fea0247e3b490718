"""What one frame of Jetstream means. Knows no wire form."""

from dataclasses import dataclass, field

from ingest.post import Record


@dataclass(frozen=True, slots=True)
class AuthorNews:
    """What an event says of an account; None says nothing. "" forgets what was said before."""

    handle: str | None = None
    name: str | None = None
    opted_out: bool | None = None  # of being shown to people who are not logged in


@dataclass(frozen=True, slots=True)
class Detachment:
    """The author of `quoted` took it out of the posts `quoting` (ids)."""

    quoted: str
    quoting: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame. `key` is the same whenever the same event comes again; `time_us` is when the server saw it."""

    kind: str  # "commit", "identity", "account", "sync"; "info" and "error" carry a `notice`; "" could not be read
    did: str = ""
    time_us: int | None = None
    seq: int | None = None  # v2's cursor
    key: str = ""
    records: tuple[Record, ...] = field(default=(), repr=False)
    skipped: str = ""  # why it has no records
    notice: str = ""  # the server's name for the error or the information
    news: AuthorNews | None = field(default=None, repr=False)
    detached: Detachment | None = None
