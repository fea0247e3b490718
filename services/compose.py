"""Matches and a conversation -> a prompt within a token budget. Knows no model, only its tokenizer."""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ingest.post import Match
from model_runtime.request import PromptTooLong
from services.events import Citation, Message


class Renders(Protocol):
    """Turns of (role, text) -> prompt ids by the checkpoint's chat template, reading no control tokens in the texts."""

    def render(self, messages: Sequence[tuple[str, str]]) -> Sequence[int]: ...


# Chosen among 14 wordings on 24 questions with SmolLM2-135M-Instruct, greedy. Best-ranked first beat oldest first.
INSTRUCTIONS = (
    "Provide a concise, objective summary of what the posts say about the question in up to two sentences, "
    "with numbers, times and places."
)
POST_CHARS = 500  # of one post in the prompt: a single long post must not push out all others
HANDLE_CHARS = 40
TITLE_CHARS = 120
SNIPPET_CHARS = 200

_UNSEEN = frozenset({"Cf", "Cs", "Co", "Cn"})  # bidi controls, zero width, tags; lone surrogates; private; unassigned
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")  # letters and marks that show nothing
_SELECTORS = (range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))  # can carry hidden bytes behind an emoji
_EMOJI = range(0x1F000, 0x20000)
_BRACKETS = str.maketrans(dict.fromkeys("[\u3010\uff3b\u3014", "(") | dict.fromkeys("]\u3011\uff3d\u3015", ")"))
_TAG_START = re.compile(r"([<\uff1c]+)(?=[^\s\d<\uff1c])")


@dataclass(frozen=True, slots=True)
class Prompt:
    """`citations[i]` stands for `used[i]`; its number is the one in the prompt. Both empty: no post was put in.
    `turns`: the same prompt before the chat template, as (role, text)."""

    prompt_ids: tuple[int, ...] = field(repr=False)
    turns: tuple[tuple[str, str], ...] = field(repr=False)
    citations: tuple[Citation, ...]
    used: tuple[Match, ...] = field(repr=False)


def compose(
    messages: Sequence[Message],
    matches: Sequence[Match],
    *,
    tokenizer: Renders,
    budget_tokens: int,
    max_posts: int,
    nonce: str,
    now_ms: int,
) -> Prompt:
    """Put the best of `matches` (best first) before the last user turn, as far as the budget goes.

    What does not fit goes in this order: posts from the lowest rank up, save the best, then the oldest exchanges of
    the history; room that these leave is for posts again. The system turns and the last user turn stay whole:
    PromptTooLong if they and the best post (where there is one) do not fit, with the length of these.
    `nonce` is new for every request (8 or more letters and digits): a post cannot know how its fence ends.
    """
    assert messages and messages[-1].role == "user", "a conversation ends with a user turn"
    assert len(nonce) >= 8 and nonce.isascii() and nonce.isalnum(), "the nonce is 8 or more letters and digits"
    system = "\n\n".join([INSTRUCTIONS, *(turn.text for turn in messages if turn.role == "system")])
    exchanges = _exchanges([turn for turn in messages[:-1] if turn.role != "system"])
    ranked = _one_per_post(matches)[:max_posts]

    def turns(dropped: int, posts: int) -> tuple[tuple[str, str], ...]:
        history = [(turn.role, turn.text) for exchange in exchanges[dropped:] for turn in exchange]
        question = _question(messages[-1].text, ranked[:posts], nonce, now_ms)
        return (("system", system), *history, ("user", question))

    def ids(dropped: int, posts: int) -> tuple[int, ...]:
        return tuple(tokenizer.render(turns(dropped, posts)))

    def fits(dropped: int, posts: int) -> bool:
        return len(ids(dropped, posts)) <= budget_tokens

    dropped, posts = 0, len(ranked)
    prompt_ids = ids(dropped, posts)
    if len(prompt_ids) > budget_tokens:
        least = min(1, len(ranked))
        shortest = len(ids(len(exchanges), least))
        if shortest > budget_tokens:
            raise PromptTooLong(shortest, budget_tokens)
        dropped = bisect_left(range(len(exchanges)), True, key=lambda count: fits(count, least))
        posts = bisect_left(range(1, len(ranked) + 1), True, key=lambda count: not fits(dropped, count))
        prompt_ids = ids(dropped, posts)
    assert len(prompt_ids) <= budget_tokens, "a search ends at what was seen to fit"
    used = tuple(ranked[:posts])
    citations = tuple(cite(number, match) for number, match in enumerate(used, 1))
    return Prompt(prompt_ids, turns(dropped, posts), citations, used)


def cite(number: int, match: Match) -> Citation:
    """What a reader is shown of a match. Handles and names cannot turn the text around them."""
    handle, name = visible(match.author_handle), visible(match.author_name)
    shown = f"{name} (@{handle})" if name and handle else f"@{handle}" if handle else name or match.source
    return Citation(
        number=number,
        post_id=match.post_id,
        url=match.url,
        title=shorten(shown, TITLE_CHARS),
        author_name=match.author_name,
        author_handle=match.author_handle,
        source=match.source,
        created_ms=match.sort_ms,
        snippet=shorten(" ".join(match.text.split()), SNIPPET_CHARS),
    )


def visible(text: str) -> str:
    """`text` on one line, without characters that cannot be seen: bidi controls, zero width, tags, selectors."""
    shown = (char if _is_visible(char) else " " if char.isspace() else "" for char in text)
    return " ".join("".join(shown).split())


def shorten(text: str, limit: int) -> str:
    """At most `limit` code points, cut between words where there is one near the end."""
    if len(text) <= limit:
        return text
    head = text[: limit - 1]
    space = head.rfind(" ", limit * 3 // 4)
    return (head[:space] if space > 0 else head).rstrip() + "\u2026"


def age(ms: int) -> str:
    """How long ago, in the words of the prompt and the page: "now", "4 min ago", "3 h ago", "2 days ago"."""
    minutes = max(0, ms) // 60_000
    if minutes < 1:
        return "now"
    if minutes < 60:
        return f"{minutes} min ago"
    return f"{minutes // 60} h ago" if minutes < 48 * 60 else f"{minutes // (24 * 60)} days ago"


def _is_visible(char: str) -> bool:
    if char.isascii():
        return char.isprintable()
    if char in _BLANK or any(ord(char) in selectors for selectors in _SELECTORS):
        return False
    if ord(char) in _EMOJI:  # newer than this Python's Unicode tables, perhaps
        return True
    category = unicodedata.category(char)
    return category not in _UNSEEN and category[0] != "Z" and category != "Cc"


def _exchanges(turns: Sequence[Message]) -> list[list[Message]]:
    """History in pieces that start with a user turn: templates refuse a history that starts with an answer."""
    pieces: list[list[Message]] = []
    for turn in turns:
        if turn.role == "user" or not pieces:
            pieces.append([])
        pieces[-1].append(turn)
    return pieces


def _one_per_post(matches: Sequence[Match]) -> list[Match]:
    """The best passage of each post, best first: one post never has two numbers."""
    best: dict[str, Match] = {}
    for match in matches:
        best.setdefault(match.post_id, match)
    return list(best.values())


def _question(text: str, matches: Sequence[Match], nonce: str, now_ms: int) -> str:
    """The last user turn: the posts between two lines with the nonce, then the user's own words."""
    if not matches:
        return text
    lines = [_line(number, match, nonce, now_ms) for number, match in enumerate(matches, 1)]
    return "\n".join([f"<posts {nonce}>", *lines, f"</posts {nonce}>", "", f"Question: {text}"])


def _line(number: int, match: Match, nonce: str, now_ms: int) -> str:
    author = shorten(_harmless(match.author_handle or match.author_name or match.source, nonce), HANDLE_CHARS)
    text = shorten(_harmless(match.text, nonce), POST_CHARS)
    return f"{number}. @{author.replace(' ', '_')} ({age(now_ms - match.sort_ms)}): {text}"


def _harmless(text: str, nonce: str) -> str:
    """The copy of a post that goes into the prompt: one line, no fence, no marker, no control token of any template."""
    text = re.sub(re.escape(nonce), "-", visible(text), flags=re.IGNORECASE)
    return _TAG_START.sub(r"\1 ", text.translate(_BRACKETS))
