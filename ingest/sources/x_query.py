"""A user's question -> queries for X's search, the strictest first. Knows no network.

X finds posts that hold every word of a query, so what people use only for asking must not be in it, and when nothing
holds all the words, a query of the strongest of them is next. Nothing in a question can become an operator: words are
quoted, and a word is letters and digits. The language is not restricted.
"""

import regex

from ingest.index_bm25 import KANA, UNSPACED, URL, WORD, content_words

MAX_QUERY = 512  # bytes here; X counts characters
MAX_WORDS, MAX_WORD = 10, 50
FEWER = (3, 2)
_ENDING = " -is:retweet"
_TERM = regex.compile(r"(?<![\p{L}\p{N}_])[#@][A-Za-z_]\w{0,49}(?!\w)|[\p{L}\p{M}\p{N}]+")
_MENTION = regex.compile(r"@[A-Za-z0-9_]{1,15}")
_HIRAGANA = regex.compile(r"\p{Hiragana}+")  # between the words of Japanese
_FUNCTION = regex.compile(
    "什么|怎么|怎样|如何|为什么|多少|哪里|哪些|谁|最新|消息|新闻|情况|现在|今天|目前|发生|大家|知道|关于|告诉|"
    "[的了吗呢吧啊在是和与或有没不我你他她它们这那就也都还对从到被把给让请说个]"
)  # between the words of Chinese


def queries_for(question: str) -> tuple[str, ...]:
    """None for a question without a word that says what it is about."""
    words = _words(URL.sub(" ", question))
    strongest = sorted(range(len(words)), key=lambda at: _strength(words[at], at), reverse=True)
    queries: dict[str, None] = {}
    for most in (MAX_WORDS, *FEWER):
        kept = [words[at] for at in sorted(strongest[:most])]
        if kept:
            queries[_query(kept)] = None
    return tuple(queries)


def _words(question: str) -> list[str]:
    """Each once, in order. Tags and mentions stay whole."""
    content = set(content_words(question))
    words: dict[str, None] = {}
    for found in _TERM.findall(question):
        if UNSPACED.search(found):
            words |= dict.fromkeys(_cut(found))
        elif found[0] in "#@" or found in content:
            words[found] = None
    return [word for word in words if len(word) <= MAX_WORD]


def _cut(run: str) -> list[str]:
    """Chinese and Japanese at the words that carry no meaning; other scripts without spaces stay whole."""
    parts: list[str] = []
    for piece in UNSPACED.sub(" ", run).split():
        parts += WORD.findall(piece)
    between = _HIRAGANA if KANA.search(run) else _FUNCTION
    for unspaced in UNSPACED.findall(run):
        parts += between.split(unspaced)
    return [part for part in parts if len(part) > 1] or [part for part in parts if part]


def _strength(word: str, position: int) -> tuple[bool, int, int]:
    """Tags, names and numbers first, then long words; a capital at the beginning of a sentence says nothing."""
    is_name = word[0] in "#@" or any(c.isdigit() for c in word) or (position > 0 and word[0] != word[0].lower())
    weight = 3 if UNSPACED.search(word) else 1  # a character is worth about three letters
    return is_name, len(word) * weight, -position


def _query(words: list[str]) -> str:
    query = ""
    for word in words:
        term = word if word[0] == "#" or _MENTION.fullmatch(word) else f'"{word.lstrip("@")}"'
        longer = f"{query} {term}".strip()
        if len((longer + _ENDING).encode()) <= MAX_QUERY:
            query = longer
    return query + _ENDING
