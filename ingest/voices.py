"""How many people said it by themselves, of all the posts that say the same words.

A repost says nothing of its own. An author whom the index knew before counts, each of them: five regulars who write
"power is out here" are five witnesses. Authors whom it did not know count as well, but not as a wave: three or more of
them, each within an hour of the one before, are one voice, since new accounts that paste one text are one campaign. The
price is that a crowd of newcomers is counted low, as in an index that has just begun to read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ingest.duplicates import Said, is_retweet
from ingest.index import Copy
from ingest.post import Match

WAVE_AUTHORS = 3
WAVE_GAP_MS = 3600 * 1000
WORDINGS = 4  # of one thing said, that are looked up in the whole index


def sayings_of(said: Said) -> list[Match]:
    """The wordings to look up the copies of."""
    return list({match.saying or match.text: match for match in reversed(said.members)}.values())[::-1][:WORDINGS]


def counted(said: Said, copies: Mapping[str, Sequence[Copy]]) -> Match:
    """`copies`: by post id of the members, as the index tells them (PostIndex.copies)."""
    posts = {copy.post_id: copy for member in said.members for copy in copies.get(member.post_id, ())}
    for member in said.members:
        is_repost = member.repost_of is not None or is_retweet(member.text)
        known = posts.get(member.post_id)
        is_known = known is not None and known.is_known_author
        posts[member.post_id] = Copy(member.post_id, member.account, member.sort_ms, is_repost, is_known)
    voices, first_ms = independent(posts.values()), min(copy.sort_ms for copy in posts.values())
    match = said.match
    return replace(
        match,
        repeats=len(posts),
        independent=voices,
        first_ms=first_ms if first_ms < match.sort_ms else None,
        why={**match.why, "authors": float(voices)},
    )


def independent(copies: Iterable[Copy]) -> int:
    """At least 1: somebody said it."""
    firsts = _first_of_each(copy for copy in copies if not copy.is_repost)
    known = sum(copy.is_known_author for copy in firsts)
    times = [copy.sort_ms for copy in firsts if not copy.is_known_author]
    return max(1, known + sum(1 if len(run) >= WAVE_AUTHORS else len(run) for run in _runs(times)))


def _first_of_each(copies: Iterable[Copy]) -> list[Copy]:
    """Each author's first post, in order of time; posts without an author are each their own."""
    firsts: dict[str, Copy] = {}
    for copy in sorted(copies, key=lambda copy: (copy.sort_ms, copy.post_id)):
        firsts.setdefault(copy.account or f"post {copy.post_id}", copy)
    return list(firsts.values())


def _runs(times: Sequence[int]) -> list[list[int]]:
    """Sorted times, cut where the next is more than WAVE_GAP_MS later."""
    runs: list[list[int]] = []
    for time_ms in times:
        if runs and time_ms - runs[-1][-1] <= WAVE_GAP_MS:
            runs[-1].append(time_ms)
        else:
            runs.append([time_ms])
    return runs
