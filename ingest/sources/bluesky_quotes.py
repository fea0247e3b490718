"""Quotes that the quoted author took back (postgate records). Bounded memory; knows no connection."""

from collections import OrderedDict
from dataclasses import replace

from ingest.post import Post, Record, Removal
from ingest.sources.bluesky_frame import Detachment


class Quotes:
    """The latest `limit` quoting posts, so that one whose quote is taken back can be published again without it.

    A quoting post holds no word of the quoted one, so only its `quote_of` has to go. It is published one microsecond
    later than it was: after itself, before any edit or deletion of its author. Of a post that is no longer remembered
    only the fact is kept, for the time when it comes again. A quote that is allowed again stays taken back.
    """

    def __init__(self, limit: int = 5_000) -> None:
        self._limit = limit
        self._quoting: OrderedDict[str, Post] = OrderedDict()
        self._taken_back: OrderedDict[tuple[str, str], None] = OrderedDict()  # (quoting, quoted)

    def seen(self, record: Record) -> Record:
        """The record to publish: a post whose quote was taken back has none."""
        if isinstance(record, Post | Removal):
            self._quoting.pop(record.id if isinstance(record, Post) else record.post_id, None)
        if not isinstance(record, Post) or record.quote_of is None:
            return record
        if (record.id, record.quote_of) in self._taken_back:
            return self._without(record)
        self._quoting[record.id] = record
        self._trim(self._quoting)
        return record

    def take_back(self, detachment: Detachment) -> list[Post]:
        """The posts to publish again."""
        changed = []
        for quoting in detachment.quoting:
            self._taken_back[quoting, detachment.quoted] = None
            self._trim(self._taken_back)
            post = self._quoting.get(quoting)
            if post is not None and post.quote_of == detachment.quoted:
                changed.append(self._without(self._quoting.pop(quoting)))
        return changed

    def _without(self, post: Post) -> Post:
        return replace(post, quote_of=None, version_us=post.version_us + 1)

    def _trim(self, held: "OrderedDict[str, Post] | OrderedDict[tuple[str, str], None]") -> None:
        while len(held) > self._limit:
            held.popitem(last=False)
