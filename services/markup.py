"""What a model wrote -> what may be shown: its own citation markers, images and links taken out. Knows no posts."""

import re
from collections.abc import Set
from itertools import pairwise

_OPENINGS = "[\u3010\uff3b\u3014"
_OPEN, _CLOSE = "\\[\u3010\uff3b\u3014", "\\]\u3011\uff3d\u3015"
_NUMBERS = r"#?\d+(?:\s{0,3}(?:[,;&-]|\u2013|and|y|und|\u3001)\s{0,3}(?:posts?\s)?#?\d+)*"
_MARKER = re.compile(
    rf"[^\S\n]*(?:[{_OPEN}]\s{{0,3}}\^?(?:(?:posts?|sources?|refs?)\s{{0,3}})?({_NUMBERS})\s{{0,3}}"
    rf"(?:\u2020[^{_CLOSE}\n]{{0,60}})?[{_CLOSE}](?:\([^()\n]*\))?"
    rf"|[(\uff08](?:see\s)?(?:posts?|sources?)\s({_NUMBERS})[)\uff09])",
    re.IGNORECASE,
)
_TARGET = r"\(((?:[^()\n]|\([^()\n]*\))*)\)"
_IMAGE = re.compile(rf"[^\S\n]*!\[[^\]\n]*\](?:{_TARGET}|\[[^\]\n]*\])?")
_LINK = re.compile(rf"\[([^\[\]\n]*)\]{_TARGET}")
_ANGLED = re.compile(r"<((?:https?|ftp)://[^<>\s]*)>", re.IGNORECASE)
_URL = re.compile(
    r"[^\S\n]*(?:(?:https?|ftp)://|\bwww\.)[^\s<>\"\u3002\uff0c\u300d\uff09]*[^\s<>\"\u3002\uff0c\u300d\uff09.,;:!?'\u2026)\]*_]",
    re.IGNORECASE,
)
_DOUBLED = re.compile(r"\[\[([^\[\]\n]*)\]\]")
_STRAY = re.compile(r"(\[[^\[\]\n]*\]\()|\]\(")  # the end of a link whose beginning is not there
_LONGEST_RANGE = 10

_TAKEN = "\x00"  # stands, for a moment, where something was taken out
_SENTENCE_END = r"[.,;:!?\u2026)\]\"'\u2019\u201d\u00bb]+(?:\s|$)"
_WIDE = "\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uff00-\uffef"  # scripts that put no space between words
_SEAM = re.compile(rf"(?<=[^\s{_TAKEN}([{_WIDE}]){_TAKEN}+(?=[^\s{_TAKEN}{_WIDE}])(?!{_SENTENCE_END})")


def clean(text: str, urls: Set[str], seam: str = " ") -> tuple[str, list[int]]:
    """`text` without images, without links and addresses other than `urls`, without markers such as [1], [1, 2],
    \u30101\u3011 or (post 1); and the numbers that these markers named. The result holds no bracketed number at all.

    `seam` is put between two words that what was taken out held apart."""
    named: list[int] = []
    text = text.replace(_TAKEN, "")

    def take(found: re.Match[str]) -> str:
        named.extend(_numbers(found[1] or found[2]))
        return _TAKEN

    def reduce(found: re.Match[str]) -> str:
        shown, target = found[1], found[2].split(maxsplit=1)[0] if found[2].strip() else ""
        if shown.strip().isdecimal():
            return f"[{shown.strip()}]"
        return found[0] if target in urls and shown.strip() else shown

    before = None
    while text != before:  # taking one out can put the next together
        before = text
        text = _DOUBLED.sub(r"[\1]", text)
        text = _LINK.sub(reduce, _ANGLED.sub(r"\1", _IMAGE.sub(_TAKEN, text)))
        text = _URL.sub(lambda found: found[0] if found[0].strip() in urls else _TAKEN, text)
        text = _MARKER.sub(take, text)
        text = _SEAM.sub(seam, text).replace(_TAKEN, "")
    return _STRAY.sub(lambda found: found[0] if found[1] else "] (", text), named


def is_open(text: str) -> bool:
    """Whether a bracket or a link target is not closed yet: what follows could still make a marker or a link."""
    opened = max(text.rfind(bracket) for bracket in _OPENINGS)
    if opened < 0:
        return False
    closed = re.search(f"[{_CLOSE}]", text[opened:])
    if closed is None:
        return True
    after = text[opened + closed.end() :]
    return after.startswith("(") and not re.match(_TARGET, after)


def without_openings(text: str) -> str:
    """`text` that cannot make a marker or a link with what follows it."""
    return re.sub(f"[{_OPEN}]", " ", text)


def _numbers(written: str) -> list[int]:
    numbers: list[int] = []
    for part in re.split(r"[^\d\u2013-]+", written):
        ends = [int(digits) for digits in re.findall(r"\d{1,9}", part)]
        numbers += ends
        for low, high in pairwise(ends):
            if low < high <= low + _LONGEST_RANGE:
                numbers += range(low + 1, high)
    return sorted(set(numbers))
