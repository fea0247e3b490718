"""E-mail addresses, as written and as spelled out. A handle (@ana.example, @ana@mastodon.example) is content, save
one "at" a mail provider, which is an address."""

import re
from collections.abc import Iterator

import regex

from safety.identifier import Identifier, has_word_before
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
# "jane @ gmail.com", "jane @gmail.com", "jane@ gmail.com".
SPACED = rf"(?<!{ALNUM}){PART}(?:[ \t]{{1,2}}@[ \t]{{0,2}}|@[ \t]{{1,2}})({DOMAIN})"
# Every state of being spelled out, for the cutter.
SPELLED = rf"(?<!{ALNUM}){NAMES}(?:{AT_SIGN}|{AT_WORD}|[ \t]{{0,2}}@[ \t]{{0,2}}){PART}(?:{DOT}{PART}){{0,4}}"
# Domains at which people have mailboxes and nobody has a handle.
PROVIDER = re.compile(
    r"(?:gmail|googlemail|yahoo|ymail|rocketmail|hotmail|outlook|live|msn|aol|icloud|gmx|yandex|zoho|protonmail|"
    r"tutanota|fastmail|rediffmail)\.[a-z]{2,3}(?:\.[a-z]{2})?|(?:mac|me|mail|qq|163|126|hey|btinternet)\.com|"
    r"(?:proton|pm)\.me|(?:web|t-online|freenet|posteo)\.de|(?:orange|wanadoo|free|sfr)\.fr|laposte\.net|"
    r"(?:libero|virgilio)\.it|(?:mail|bk|inbox|list)\.ru|(?:comcast|verizon|att|sbcglobal)\.net|naver\.com"
)
MAIL_WORDS = r"e-?mails?|mails?|contact|e-?mail address|correo|contacto|kontakt|courriel"

# Cheap signs without which the three searches below find nothing.
SIGN = re.compile(r"[^\s@]@\w")
APART = re.compile(r"(?:[ \t]@[ \t]{0,2}|@[ \t]{1,2})\w[\w\-]{0,62}\.\w")
BRACKETED = re.compile(r"[\[({<][ \t]?(?:at|ät|arroba|@)")
DOT_NAMED = re.compile(r"(?:dot|punkt|punto)[ \t\])}>]")
FIND_WRITTEN = regex.compile(WRITTEN, regex.V1 | regex.IGNORECASE)
FIND_SIGNED = regex.compile(SIGNED, regex.V1)
FIND_SPACED = regex.compile(SPACED, regex.V1)
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
            address = match[0].lower()
            is_handle = address.startswith("@") and not PROVIDER.fullmatch(address.rpartition("@")[2])
            if not is_handle and not address.endswith(PICTURES):
                yield Identifier("email", match.start(), match.end(), "written")
    lower = text.lower
    if "@" in lower and APART.search(lower):
        yield from _spaced(lower)
    if BRACKETED.search(lower):
        for match in FIND_SIGNED.finditer(lower):
            if "." in match[0] or regex.search(DOT, match[0]):
                yield Identifier("email", match.start(), match.end(), "spelled")
    if DOT_NAMED.search(lower):
        for match in FIND_WORDED.finditer(lower):
            mailbox = regex.split(r"[ \t@]", match[0], maxsplit=1)[0]
            if mailbox not in NO_MAILBOX:
                yield Identifier("email", match.start(), match.end(), "spelled", 0.9)


def _spaced(lower: str) -> Iterator[Identifier]:
    """Addresses with space around the sign: at a mail provider, or after a word such as "e-mail"."""
    for match in FIND_SPACED.finditer(lower):
        mailbox = regex.split(r"[ \t@]", match[0], maxsplit=1)[0]
        if mailbox in NO_MAILBOX:
            continue
        if PROVIDER.fullmatch(match[1]) or has_word_before(lower, match.start(), MAIL_WORDS):
            yield Identifier("email", match.start(), match.end(), "spelled", 0.9)
