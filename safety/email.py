"""E-mail addresses, as written and as spelled out. A handle (@ana.example, @ana@mastodon.example) is content."""

import re
from collections.abc import Iterator

import regex

from safety.identifier import Identifier
from safety.normalise import Normalised

# Letters and digits, without the scripts that put no space around a foreign word.
ALNUM = r"[[\p{L}\p{N}]--[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]]"
LOCAL_CHAR = rf"[{ALNUM}._%+\-']"
LABEL = rf"{ALNUM}(?:[{ALNUM}\-]{{0,62}}{ALNUM})?"
LOCAL = rf"{ALNUM}{LOCAL_CHAR}{{0,63}}"
DOMAIN = rf"(?:{LABEL}\.){{1,8}}(?:xn--[a-z0-9\-]{{2,50}}|[{ALNUM}--\p{{N}}]{{2,24}})"
WRITTEN = rf"@?{LOCAL}@{DOMAIN}"

# A part of a spelled-out address: possessive, so each word is read once.
PART = rf"{ALNUM}(?:[._+\-]?{ALNUM}){{0,40}}+"
AT_SIGN = r"[ \t]{0,2}[\[({<][ \t]?(?:at|ät|arroba|@)[ \t]?[\])}>][ \t]{0,2}"
DOT_SIGN = r"[ \t]{0,2}[\[({<][ \t]?(?:dot|punkt|punto|\.)[ \t]?[\])}>][ \t]{0,2}"
AT_WORD = r"[ \t]{1,2}(?:at|ät|arroba)[ \t]{1,2}"
DOT_WORD = r"[ \t]{1,2}(?:dot|punkt|punto)[ \t]{1,2}"
DOT = rf"(?:{DOT_SIGN}|{DOT_WORD})"
NAMES = rf"{PART}(?:{DOT}{PART}){{0,3}}"
TOP = (
    "com|org|net|edu|gov|int|info|biz|io|co|me|ai|app|dev|eu|uk|us|ca|au|nz|ie|de|at|ch|es|fr|it|nl|be|pt|pl|mx|ar|br|in|"
    "jp|cn|ru|se|no|dk|fi|example|test"
)
# "jane [at] example [dot] com", "jane(at)example.com": the bracketed sign alone says what it is.
SIGNED = rf"{NAMES}{AT_SIGN}{PART}(?:{DOT}{PART}){{0,4}}"
# "jane at example dot com", "jane@example dot com".
WORDED = rf"{NAMES}(?:{AT_WORD}|@){PART}(?:{DOT}{PART}){{0,3}}{DOT}(?:{TOP})(?!{ALNUM})"
# Every state of being spelled out, for the cutter.
SPELLED = rf"(?<!{ALNUM}){NAMES}(?:{AT_SIGN}|{AT_WORD}|@){PART}(?:{DOT}{PART}){{0,4}}"

# Cheap signs without which the three searches below find nothing.
SIGN = re.compile(r"[^\s@]@\w")
BRACKETED = re.compile(r"[\[({<][ \t]?(?:at|ät|arroba|@)")
DOT_NAMED = re.compile(r"(?:dot|punkt|punto)[ \t\])}>]")
FIND_WRITTEN = regex.compile(WRITTEN, regex.V1 | regex.IGNORECASE)
FIND_SIGNED = regex.compile(SIGNED, regex.V1)
FIND_WORDED = regex.compile(WORDED, regex.V1)
PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".css", ".js")  # icon@2x.png
# "find us at example dot com" names a site, no mailbox.
NO_MAILBOX = frozenset(
    regex.findall(
        r"\w+",
        "us out me him her them it look online order orders available shop more here live now work works working buy "
        "bought found find sold up today tickets details read sign register page website site store back in on is are "
        "see start free available visit help",
    )
)


def emails(text: Normalised) -> Iterator[Identifier]:
    """E-mail addresses; spelled-out ones need a bracketed "at", or words for both signs and a known top domain."""
    if SIGN.search(text.text):
        for match in FIND_WRITTEN.finditer(text.text):
            if not match[0].startswith("@") and not match[0].lower().endswith(PICTURES):
                yield Identifier("email", match.start(), match.end(), "written")
    lower = text.lower
    if BRACKETED.search(lower):
        for match in FIND_SIGNED.finditer(lower):
            if "." in match[0] or regex.search(DOT, match[0]):
                yield Identifier("email", match.start(), match.end(), "spelled")
    if DOT_NAMED.search(lower):
        for match in FIND_WORDED.finditer(lower):
            mailbox = regex.split(r"[ \t@]", match[0], maxsplit=1)[0]
            if mailbox not in NO_MAILBOX:
                yield Identifier("email", match.start(), match.end(), "spelled", 0.9)
