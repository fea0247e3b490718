"""Whether a text may be cut here, or an identifier is open that the next characters could still make.

Coarser than the recognisers and never finer: what they can find, in any state of being written, is open here.
"""

from collections.abc import Iterator, Sequence

import regex

from safety.email import ALNUM, SPELLED
from safety.normalise import normalise
from safety.numbers import IBAN_BETWEEN, IBAN_HEAD

TAIL_CHARS = 400  # how far back anything open can begin, in raw characters
ROW_CHARS = 88
MAILBOX_CHARS = 64
DOMAIN_CHARS = 320
SPELLED_CHARS = 200

BETWEEN_DIGITS = " \t\n\r\f\v.-_/()\u00b7\u2022,|"
IN_ROW = "0123456789+" + BETWEEN_DIGITS
MAX_BETWEEN = 3
SIGN = regex.compile(r"[+(] ?\(?\Z")
LETTER_FOLLOWS = regex.compile(r"\d[ ,;\-]{0,2}\Z")  # "12345678-Z", "555 0130 ext. 12"
IBAN = regex.compile(rf"{IBAN_HEAD.pattern}(?:{IBAN_BETWEEN}[a-z0-9]){{0,30}} ?{IBAN_BETWEEN}\Z")
EXTENSION = regex.compile(r"\d[ ,;]{0,2}(?:x|ext\.?|extension|#|anexo|durchwahl)[ .:]{0,2}\d{0,6}\Z")
LETTERS = regex.compile(r"(?<![a-z0-9])[a-z]{1,2}[ \-.]?(?:\d[ \-.]?){0,8}\Z")  # "QQ 12 34", "X-1234"
# Unbroken rows that an address, an IPv6 address or an id may be part of.
WORD_CHAR = regex.compile(rf"[{ALNUM}._%+\-'@:]", regex.V1)
WORD = regex.compile(rf"[{ALNUM}._%+\-'@:]++\Z", regex.V1)
SPELLED_OUT = regex.compile(rf"(?=[\s\S]{{2}})(?:{SPELLED})\Z", regex.V1)


# What may come next, one of each kind that `_starts` tells apart.
ANY_NEXT = "0 a@[("
PLAIN_WORD = regex.compile(
    rf"(?<!{WORD_CHAR.pattern})\p{{L}}++(?:['\-]\p{{L}}++)*([.!?\u2026\u061f\u06d4\u0964\"')]*)\Z", regex.V1
)

# Cheap: no address is being spelled out where no "at" stands or may be beginning.
AT_SIGN_SEEN = regex.compile(
    r"@|[\[({<\s][ \t]?(?:at?|ät?|ar|arr|arro|arrob|arroba)(?:\Z|[ \t\])}>])|[\[({<][ \t]?\Z|[ \t]\Z"
)


def is_open(raw: str, after: str) -> bool:
    """Whether an identifier may reach over the end of `raw` into `after`, the next character."""
    following = normalise(after).lower
    if not following:
        return True  # an undrawn character: what it joins is not known yet
    return next(_starts(normalise(raw).lower, following[0]), None) is not None


def open_from(raw: str, after: str) -> int:
    """The offset in `raw` at which the earliest identifier may begin that reaches over its end; if none, its length."""
    seen, following = normalise(raw), normalise(after).lower
    start = min(_starts(seen.lower, following[:1] or "0"), default=len(seen.lower))
    return seen.raw_span(start, start + 1)[0] if start < len(seen.lower) else len(raw)


def cut_from(raw: str, stops: Sequence[str] = ()) -> int:
    """The offset in `raw` from which nothing may leave when the text was cut at its end: where the earliest identifier
    begins that may have gone on. `stops` are the strings one of which may have ended it; none: anything came next.

    A word of letters is spared where it ends a sentence, or where no stop string can go on with it."""
    seen = normalise(raw)
    spared = _spared_from(seen.lower, stops)
    starts = [start for following in ANY_NEXT for start in _starts(seen.lower, following) if start < spared]
    return seen.raw_span(min(starts), min(starts) + 1)[0] if starts else len(raw)


def _spared_from(seen: str, stops: Sequence[str]) -> int:
    """Where the last word begins, if it is spared; else the end."""
    word = PLAIN_WORD.search(seen, max(0, len(seen) - MAILBOX_CHARS))
    if word is None:
        return len(seen)
    apart = stops and not any(WORD_CHAR.match(normalise(stop).lower) for stop in stops)
    return word.start() if word[1] or apart else len(seen)


def _starts(seen: str, following: str) -> Iterator[int]:
    row_goes_on = following in IN_ROW
    if row_goes_on or (following.isalnum() and LETTER_FOLLOWS.search(seen, max(0, len(seen) - 4))):
        yield from _row_start(seen)
    if extended := EXTENSION.search(seen, max(0, len(seen) - 24)):
        yield from _row_start(seen[: extended.start() + 1])
    if following.isalnum() or row_goes_on:
        yield from _start(IBAN, seen, ROW_CHARS)
    if following.isdigit():
        yield from _start(LETTERS, seen, 24)
    if WORD_CHAR.match(following):
        yield from _word_start(seen)
    tail = seen[-SPELLED_CHARS:] + following
    if AT_SIGN_SEEN.search(tail):
        spelled = SPELLED_OUT.search(tail, partial=True)
        if spelled is not None and spelled.start() < len(tail) - 1:
            yield len(seen) + 1 - len(tail) + spelled.start()


def _row_start(seen: str) -> Iterator[int]:
    """A row of digits, whatever stands between them, unless it ended already."""
    tail = seen[-ROW_CHARS:]
    row = tail[len(tail.rstrip(IN_ROW)) :]
    digits = row.lstrip(BETWEEN_DIGITS)
    if any(map(str.isdigit, row)) and len(row) - len(row.rstrip(BETWEEN_DIGITS)) <= MAX_BETWEEN:
        signed = len(row) - len(digits)
        while signed and row[signed - 1] in "( ":
            signed -= 1
        yield len(seen) - len(row) + signed
    elif sign := SIGN.search(seen, max(0, len(seen) - 3)):
        yield sign.start()


def _start(shape: regex.Pattern[str], seen: str, within: int) -> Iterator[int]:
    if found := shape.search(seen, max(0, len(seen) - within)):
        yield found.start()


def _word_start(seen: str) -> Iterator[int]:
    """Of an endless word only the last part can be an address: a mailbox of 64 characters, and what stands after it."""
    for word in _start(WORD, seen, MAILBOX_CHARS + DOMAIN_CHARS):
        sign = seen.find("@", max(word, len(seen) - DOMAIN_CHARS))
        yield max(word, (len(seen) if sign < 0 else sign) - MAILBOX_CHARS)
