"""What a crowd does with posts that exist: repost, copy, nearly copy, correct a typo, delete."""

from random import Random

from ingest.sources.sample.draft import Draft
from ingest.sources.sample.people import Account, People
from ingest.sources.sample.phrases import misspelt
from ingest.sources.sample.timeline import LAST_MS

_NEARLY = {
    "en": ("Sharing this: {text}", "{text} (via @{handle})", "RT @{handle} {text}", "From the group chat: {text}"),
    "es": ("Comparto: {text}", "{text} (vía @{handle})", "RT @{handle} {text}", "{text} Pasadlo."),
    "de": ("Weitergeleitet: {text}", "{text} (via @{handle})", "RT @{handle} {text}", "{text} Bitte teilen."),
    "zh": ("转发：{text}", "{text}（来自 @{handle}）", "群里看到的：{text}", "{text} 扩散！"),
    "ja": ("【共有】{text}", "{text}（@{handle} さんより）", "回ってきたので共有：{text}", "{text} 拡散希望"),
    "ar": ("منقول: {text}", "{text} (عن @{handle})", "وصلني الآن: {text}", "{text} انشروا الخبر"),
}
_ADDED = {
    "en": "{text} Edit: thanks, found out more below.",
    "es": "{text} Edito: gracias a todos por responder.",
    "de": "{text} Edit: danke für die vielen Antworten.",
    "zh": "{text}（更新：谢谢大家的回复）",
    "ja": "{text}（追記：たくさんの返信ありがとうございます）",
    "ar": "{text} (تحديث: شكراً على الردود)",
}


def spread(drafts: list[Draft], people: People, rng: Random) -> list[Draft]:
    """The drafts of one story (or of the small talk) and what they set off, unordered."""
    corrected(drafts, rng)
    grown = list(drafts)
    for draft in drafts:
        crowd = [account for account in people.everyone(draft.lang) if account != draft.author]
        for _ in range(_reposts(draft, rng)):
            grown += reposted(draft, rng.choice(crowd), rng)
        if draft.author.reach < 100 and not draft.reply_to and not draft.edits:
            grown += copied(draft, rng.choice(crowd), rng)
    withdrawn(grown, rng)
    return grown


def _reposts(draft: Draft, rng: Random) -> int:
    if draft.author.reach >= 100 and not draft.reply_to:
        return rng.randrange(3)
    return int(rng.random() < 0.05)


def reposted(original: Draft, by: Account, rng: Random) -> list[Draft]:
    """A repost, after the last edit; if the original goes, the network takes the repost away with it."""
    settled_ms = max([original.at_ms, *(edited_ms for edited_ms, _ in original.edits)])
    at_ms = settled_ms + rng.randrange(60_000, 2_400_000)
    if at_ms >= (original.deleted_ms or LAST_MS):
        return []
    gone_ms = original.deleted_ms + rng.randrange(5, 900) if original.deleted_ms else None
    text = original.text_at(at_ms)
    return [Draft(at_ms, by, text, original.lang, original.story, repost_of=original, deleted_ms=gone_ms)]


def copied(original: Draft, by: Account, rng: Random) -> list[Draft]:
    """Now and then the same words under another name, exactly or nearly."""
    roll = rng.random()
    at_ms = original.at_ms + rng.randrange(120_000, 1_800_000)
    if roll > 0.06 or at_ms >= LAST_MS:
        return []
    frame = "{text}" if roll < 0.022 else rng.choice(_NEARLY[original.lang])
    text = frame.format(text=original.text, handle=original.author.handle)
    return [Draft(at_ms, by, text, original.lang, original.story)]


def corrected(drafts: list[Draft], rng: Random) -> None:
    """Some people post a typo and mend it, or add a word of thanks. Changes the drafts."""
    for draft in drafts:
        if draft.edits or draft.deleted_ms or draft.author.reach >= 100 or rng.random() > 0.05:
            continue
        edited_ms = draft.at_ms + rng.randrange(20_000, 500_000)
        if edited_ms >= LAST_MS:
            continue
        typo = misspelt(draft.text, rng)
        if typo and rng.random() < 0.7:
            draft.edits.append((edited_ms, draft.text))
            draft.text = typo
        elif "?" in draft.text or "？" in draft.text or "؟" in draft.text:
            draft.edits.append((edited_ms, _ADDED[draft.lang].format(text=draft.text)))


def withdrawn(drafts: list[Draft], rng: Random) -> None:
    """Some people delete what they wrote, as long as nothing hangs on it. Changes the drafts."""
    needed = {id(other) for draft in drafts for other in (draft.reply_to, draft.quote_of, draft.repost_of)}
    for draft in drafts:
        if draft.deleted_ms or draft.author.reach >= 100 or id(draft) in needed or rng.random() > 0.025:
            continue
        latest_ms = max([draft.at_ms, *(edited_ms for edited_ms, _ in draft.edits)])
        gone_ms = latest_ms + rng.randrange(60_000, 3_600_000)
        if gone_ms < LAST_MS:
            draft.deleted_ms = gone_ms
