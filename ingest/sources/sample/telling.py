"""Tells one story: its beats become drafts of official posts, eyewitnesses, conversations and quotes."""

from dataclasses import dataclass, field
from random import Random

from ingest.sources.sample.draft import Draft
from ingest.sources.sample.people import Account, People
from ingest.sources.sample.phrases import spoken, voiced
from ingest.sources.sample.stories import Beat, Line, Story
from ingest.sources.sample.timeline import LAST_MS, at_minute

_AGAIN = 0.22  # how often a phrase is used a second time, in another reading, by somebody else


@dataclass(slots=True)
class Telling:
    story: Story
    people: People
    rng: Random
    drafts: list[Draft] = field(default_factory=list)
    said: set[str] = field(default_factory=set)

    def tell(self) -> list[Draft]:
        """The whole story, in no particular order."""
        for beat in self.story.beats:
            announced = self._official(beat)
            self._crowd(beat)
            for thread in beat.threads:
                self._thread(thread, self._moment(beat), None)
            for thread in beat.replies:
                under = self._under(announced, thread[0].lang)
                self._thread(thread, under.at_ms + self._pause_ms(), under)
            for line in beat.quotes:
                under = self._under(announced, line.lang)
                self._say(line, under.at_ms + 3 * self._pause_ms(), quote_of=under)
        return self.drafts

    def _official(self, beat: Beat) -> list[Draft]:
        """At the minute that the story says, at some second of it."""
        return [
            self._say(line, at_minute(beat.at_min + line.after_min) + self.rng.randrange(55_000))
            for line in beat.official
        ]

    def _crowd(self, beat: Beat) -> None:
        lines = [
            *beat.posts,
            *(line for line in beat.posts if not line.by and not line.edit and self.rng.random() < _AGAIN),
        ]
        for number, line in enumerate(lines):
            text = spoken(line.phrase, self.story.slots, self.rng)
            if number < len(beat.posts) or text not in self.said:
                self._say(line, self._moment(beat), text=text)

    def _thread(self, thread: tuple[Line, ...], at_ms: int, under: Draft | None) -> None:
        """Two people take turns; a desk speaks where a line names it."""
        previous = under
        named = {line.by + ".example" for line in thread}
        pair = self.rng.sample([account for account in self._cast(thread[0].lang) if account.handle not in named], 2)
        for turn, line in enumerate(thread):
            author = self.people.account(line.by) if line.by else pair[turn % 2]
            previous = self._say(line, at_ms, author=author, reply_to=previous)
            at_ms += self._pause_ms()

    def _say(
        self,
        line: Line,
        at_ms: int,
        text: str | None = None,
        author: Account | None = None,
        reply_to: Draft | None = None,
        quote_of: Draft | None = None,
    ) -> Draft:
        if author is None:
            author = self.people.account(line.by) if line.by else self.rng.choice(self._cast(line.lang))
        plain = text or spoken(line.phrase, self.story.slots, self.rng)
        tags = () if reply_to else self.story.tags.get(line.lang, ())
        draft = Draft(
            min(at_ms, LAST_MS - 60_000),
            author,
            voiced(plain, author.voice, line.lang, tags, self.rng),
            line.lang,
            self.story.slug,
            reply_to=reply_to,
            quote_of=quote_of,
        )
        if line.edit:
            draft.edits.append((at_minute_after(draft, line.edit_after_min), line.edit))
        if line.delete_after_min is not None:
            draft.deleted_ms = at_minute_after(draft, line.delete_after_min)
        self.said.add(plain)
        self.drafts.append(draft)
        return draft

    def _cast(self, lang: str) -> list[Account]:
        return [account for home in self.story.crowd[lang] for account in self.people.crowds[home]]

    def _under(self, announced: list[Draft], lang: str) -> Draft:
        """An official post of this beat in that language, or in any."""
        return self.rng.choice([draft for draft in announced if draft.lang == lang] or announced)

    def _moment(self, beat: Beat) -> int:
        """Somewhere in the beat, more often early than late, and never before its first half minute."""
        early = min(self.rng.random(), self.rng.random())
        return at_minute(beat.at_min + 0.5) + int(early * beat.span_min * 60_000)

    def _pause_ms(self) -> int:
        return self.rng.randrange(40_000, 400_000)


def at_minute_after(draft: Draft, minutes: float) -> int:
    """Epoch milliseconds that many minutes after the draft was posted."""
    return draft.at_ms + int(minutes * 60_000)
