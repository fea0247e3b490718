"""A post while the feed is being written: who, when, what, to whom; ids come last, when the order is known."""

from dataclasses import dataclass, field

from ingest.sources.sample.people import Account


@dataclass(slots=True, eq=False)
class Draft:
    at_ms: int
    author: Account
    text: str
    lang: str
    story: str = ""  # "" for small talk
    reply_to: "Draft | None" = None
    quote_of: "Draft | None" = None
    repost_of: "Draft | None" = None
    edits: list[tuple[int, str]] = field(default_factory=list)  # (epoch ms, the text from then on), oldest first
    deleted_ms: int | None = None
    labels: tuple[str, ...] = ()

    def text_at(self, ms: int) -> str:
        """What the post said at that moment."""
        text = self.text
        for edited_ms, newer in self.edits:
            if edited_ms <= ms:
                text = newer
        return text
