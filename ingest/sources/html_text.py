"""HTML of a post or an article -> plain text. Knows no network; the parser is Lexbor, as browsers read HTML."""

import html
import re
from enum import IntEnum

from selectolax.lexbor import LexborHTMLParser, LexborNode

# Lexbor's time and memory grow with the square of how deep tags stand in each other (100,000 open <div>: 29 s, seen
# here), so more than this many tags are parsed in pieces.
_MAX_TAGS = 1000

_DROPPED = frozenset(("head", "script", "style", "template", "iframe", "noembed", "noframes", "object", "svg", "math"))
_PARAGRAPHS = frozenset(("p", "blockquote", "pre", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "table", "figure"))
_LINES = frozenset(
    ("address", "article", "aside", "body", "dd", "details", "dialog", "div", "dl", "dt", "fieldset", "figcaption")
    + ("footer", "form", "header", "legend", "li", "main", "menu", "nav", "ol", "option", "section", "summary")
    + ("tr", "ul")
)
_CELLS = frozenset(("td", "th", "button", "select", "textarea"))

_TAG = re.compile(r"<[A-Za-z/!?]")
_UNTEXT = re.compile("[\x00\ud800-\udfff]")
_SPACE = re.compile(r"[ \t\r\n\f]+")
_URL = re.compile(r"https?://[^\s<>\"]+", re.IGNORECASE)
_LOOKS_LIKE_URL = re.compile(r"(?:https?://|www\.)\S+", re.IGNORECASE)
_SCHEME = re.compile(r"(?:https?://)?(?:www\.)?", re.IGNORECASE)
_NAME = re.compile(r"[#@\uff03\uff20]\S+")
_AFTER_URL = frozenset(" \t\r\n\f.,;:!?)]}'\"\u2026\u3001\u3002\u00bb\u201d\u2019")

# In an input of too many tags: what has no text of its own, and formatting, which has no meaning here and of which
# Lexbor opens all again in every paragraph.
_NO_TEXT = re.compile(
    r"<!--.*?(?:-->|\Z)|<(script|style|template|iframe|noembed|noframes|svg|math)\b.*?(?:</\1\b[^<>]*>?|\Z)"
    r"|</?(?:b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)(?=[\s/>])[^<>]*>?",
    re.IGNORECASE | re.DOTALL,
)
_BLOCK_TAG = re.compile(r"</?(?:p|br|div|li|tr|table|h[1-6]|ul|ol|section|article|blockquote)(?=[\s/>])", re.IGNORECASE)


def text_of(markup: str) -> str:
    """Paragraphs with a blank line between them, `<br>`, list items and other blocks on lines of their own.

    Entities are decoded; scripts, styles and comments are left out. A link whose text is its own address, cut or not,
    becomes the whole address of its href; a mention, a hashtag or a link on words keeps what is shown. Text without a
    tag keeps its spaces and line ends. NUL and lone surrogates become U+FFFD. Never raises.
    """
    markup = _UNTEXT.sub("\ufffd", markup)
    if not _TAG.search(markup, 0, markup.rfind(">") + 1):
        return _decoded(markup)
    writer = _Writer()
    for piece in _pieces(markup):
        _walk(LexborHTMLParser(piece).root, writer)
    return "".join(writer.parts)


def _decoded(text: str) -> str:
    try:
        return html.unescape(text)
    except ValueError:  # a number of more digits than Python reads
        return text


def _pieces(markup: str) -> list[str]:
    """One, unless there are too many tags: then cut at blocks if possible. What encloses what means nothing here."""
    if markup.count("<") <= _MAX_TAGS:
        return [markup]
    markup = _NO_TEXT.sub("", markup)
    pieces, begin, block, seen = [], 0, 0, 0
    for found in re.finditer("<", markup):
        seen += 1
        if _BLOCK_TAG.match(markup, found.start()):
            block = found.start()
        if seen >= _MAX_TAGS:
            end = block if block > begin else found.start()
            pieces.append(markup[begin:end])
            begin, seen = end, markup.count("<", end, found.end())
    return [*pieces, markup[begin:]]


class _Gap(IntEnum):
    """What stands between two pieces of text, from the weakest."""

    NOTHING = 0
    SPACE = 1
    LINE = 2
    PARAGRAPH = 3


_GAPS = ("", " ", "\n", "\n\n")


class _Writer:
    """Joins pieces of text by the strongest gap that was asked for between them."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._gap = _Gap.NOTHING
        self._after_url = False

    def gap(self, gap: _Gap) -> None:
        self._gap = max(self._gap, gap)

    def line_break(self) -> None:
        """The second in a row leaves an empty line."""
        self._gap = _Gap.LINE if self._gap < _Gap.LINE else _Gap.PARAGRAPH

    def add(self, text: str) -> None:
        if not text:
            return
        if self._after_url and text[0] not in _AFTER_URL:
            self.gap(_Gap.SPACE)
        if self.parts:
            self.parts.append(_GAPS[self._gap])
        self.parts.append(text)
        self._gap, self._after_url = _Gap.NOTHING, False

    def add_flowing(self, text: str) -> None:
        """White space of the source, line ends included, is one space."""
        words = _SPACE.sub(" ", text)
        if words.startswith(" "):
            self.gap(_Gap.SPACE)
        self.add(words.strip(" "))
        if words.endswith(" "):
            self.gap(_Gap.SPACE)

    def add_url(self, url: str) -> None:
        last = next((part for part in reversed(self.parts) if part), "") if self._gap == _Gap.NOTHING else ""
        if last and last[-1].isalnum():
            self.gap(_Gap.SPACE)
        self.add(url)
        self._after_url = True


def _walk(root: LexborNode | None, writer: _Writer) -> None:
    """Without recursion: depth is the sender's choice."""
    entry, pre_depth = root, 0
    while entry is not None:
        child = _enter(entry, writer, pre_depth > 0)
        pre_depth += entry.tag == "pre" and child is not None
        following = child
        while following is None:
            # Left: `entry` and all that ends with it.
            _leave(entry, writer)
            following = entry.next
            if following is None:
                parent = entry.parent
                if parent is None:
                    return
                entry = parent
                pre_depth -= entry.tag == "pre"
        entry = following


def _enter(entry: LexborNode, writer: _Writer, is_pre: bool) -> LexborNode | None:
    """Writes what begins here; returns the first child to go on with."""
    tag = entry.tag
    if tag == "-text":
        text = entry.text_content or ""
        if is_pre:
            _add_lines(text, writer)
        else:
            writer.add_flowing(text)
        return None
    if tag is None or not entry.is_element_node:
        return None
    if tag in _DROPPED:
        writer.gap(_Gap.SPACE)
        return None
    if tag == "br":
        writer.line_break()
        return None
    _gap_around(tag, writer)
    if tag == "a" and (url := _address(entry)):
        writer.add_url(url)
        return None
    return entry.first_child


def _leave(entry: LexborNode, writer: _Writer) -> None:
    if entry.tag:
        _gap_around(entry.tag, writer)


def _gap_around(tag: str, writer: _Writer) -> None:
    if tag in _PARAGRAPHS:
        writer.gap(_Gap.PARAGRAPH)
    elif tag in _LINES:
        writer.gap(_Gap.LINE)
    elif tag in _CELLS:
        writer.gap(_Gap.SPACE)


def _add_lines(text: str, writer: _Writer) -> None:
    for number, line in enumerate(text.split("\n")):
        if number:
            writer.line_break()
        writer.add(line.rstrip())


def _address(link: LexborNode) -> str:
    """The address to show for a link, "" for one that shows words, a mention or a hashtag."""
    attributes = link.attributes
    url = (attributes.get("href") or "").strip()
    if not _URL.fullmatch(url):
        return ""
    classes = (attributes.get("class") or "").split()
    shown = link.text().strip()
    is_name = "mention" in classes or "hashtag" in classes or _NAME.fullmatch(shown)
    if is_name or not shown or _SPACE.search(shown):
        return ""
    if _LOOKS_LIKE_URL.fullmatch(shown):
        return url
    cut = shown.rstrip("\u2026").removesuffix("...")
    is_part = "." in cut and _plain(url).startswith(_plain(cut))
    return url if is_part or ("/" in cut and cut != shown) else ""


def _plain(url: str) -> str:
    return _SCHEME.sub("", url, count=1).casefold()
