"""Text -> BM25 terms, with Qdrant's own tokenizers and stemmers. Knows no index.

A post is stemmed in its own language. A question's language is only guessed, so each of its words carries the stems it
would have in every language of its script; a post holds at most one of them as a rule.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final
from urllib.parse import unquote

import regex
from qdrant_edge import Bm25, Bm25Config, DisabledStemmer, SparseVector, StopwordsSet, TokenizerType

from ingest.index import storable

# Tuned on TREC Microblog 2011-2012 (bench/retrieval.py): posts are short, so repeating a word says little.
K, B, AVERAGE_TERMS = 0.4, 0.3, 12.0

LATIN = ("en", "es", "de", "fr", "pt", "it", "nl")
BY_SCRIPT: Final = ((regex.compile(r"\p{Arabic}"), ("ar",)), (regex.compile(r"\p{Cyrillic}"), ("ru",)))
UNSPACED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\u30fc]+")
KANA = regex.compile(r"[\p{Hiragana}\p{Katakana}]")
WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+")
URL = regex.compile(r"https?://\S+|www\.\S+")
LINK_WORD = regex.compile(r"\p{L}{2,}")
LINK_GAP = regex.compile(r"[-_+., ]+")
LINK_WORDS = 3  # a part of a link with fewer is a name of a page, not a headline
FILE_ENDINGS = frozenset(("html", "htm", "shtml", "php", "aspx", "asp", "jsp"))
CAMEL_TAG = regex.compile(r"#\w*\p{Ll}\p{Lu}\w*")
CAMEL_EDGE = regex.compile(r"(?<=\p{Ll})(?=\p{Lu})")

# What a question about the feed is made of, rather than what it is about: weighs little, and proves nothing.
ASKING_WORDS = """
    happen happens happened happening going latest news update updates tell know say says said saying talk talking
    people anyone someone post posts posting posted tweet tweets discuss discussed report reports reported reporting
    currently now today recent recently right anything something everything situation think thinking about explain
    summarize summarise summary give show find please help heard hear any whats there hi hello hey thanks thank
    known describe detail details detailed many much long short brief briefly sentence sentences paragraph paragraphs
    list write answer question questions length possible
    pasa pasado pasando paso ocurre ocurrido ocurrio sucedio sucede noticias noticia ultimas ultima ultimo dicen dice
    gente hablan sabe saben hoy ahora novedades cuenta dime publicaciones situacion resumen hay hola gracias
    passiert geschehen neues nachrichten aktuell aktuelle neueste leute sagen sagt heute jetzt gerade gibt los lage
    beitrage zusammenfassung hallo danke
    passe actualites actualite nouvelles dernieres disent gens maintenant aujourd hui bonjour merci
    مرحبا شكرا اخبار الاخبار اليوم الان حدث يحدث الناس يقول
"""
ASKING = frozenset(ASKING_WORDS.split())
ASKING_UNSPACED = (  # Chinese, then Japanese
    "发生 发生了什么 新闻 最新 消息 情况 现在 今天 大家 说 怎么 有 目前 讨论 你好 谢谢 "
    "起き ニュース 今日 今 教え 人 話 状況 どう 情報 こんにちは ありがとう まし ます です ください"
)
ASKING_WEIGHT = 0.3
OTHER_STEM_WEIGHT = 0.3  # the stems of a language that the question does not seem to be in


@dataclass(frozen=True, slots=True)
class Question:
    """`words`: for each word that says what is asked, the terms that stand for it; any of them in a post is a find."""

    vector: SparseVector
    words: tuple[frozenset[int], ...]

    def share_in(self, terms: frozenset[int]) -> float:
        """The share of the words that a post with these terms holds; 0.0 if there are none to hold."""
        return sum(not word.isdisjoint(terms) for word in self.words) / max(len(self.words), 1)


def post_terms(text: str, lang: str) -> SparseVector:
    """`lang`: BCP 47, as the source gave it; "" is guessed. Text without a word (emoji, "") has no terms.

    A link says the headline in its path: R@100 on TREC .772, .543, .636 -> .788, .550, .642.
    """
    text = " ".join((_plain(text), *_headlines(text)))
    spaced, unspaced = UNSPACED.sub(" ", text), UNSPACED.findall(text)
    if not unspaced:
        return _post_words(_post_language(lang, text)).embed_document(spaced)
    parts = [_segmented().embed_document(" ".join(unspaced))]
    if WORD.search(spaced):
        parts.append(_post_words(_post_language(lang, spaced)).embed_document(spaced))
    weights = {i: v for part in parts for i, v in zip(part.indices, part.values, strict=True)}
    return SparseVector(list(weights), list(weights.values()))


def question_terms(text: str) -> Question:
    """Stop words fall away, in the language that the question seems to be in. May be left with no terms."""
    text = _plain(text)
    weights: dict[int, float] = {}
    words = []
    for terms, is_asking in _question_words(text):
        for term, weight in terms.items():
            weights[term] = max(weight * (ASKING_WEIGHT if is_asking else 1.0), weights.get(term, 0.0))
        if terms and not is_asking:
            words.append(frozenset(terms))
    return Question(SparseVector(list(weights), list(weights.values())), tuple(words))


def search_vector(question: Question, terms: Sequence[tuple[int, float]]) -> SparseVector:
    """What an index looks for: the given terms with their weights (`Query.terms`), or else the question's own."""
    return SparseVector([term for term, _ in terms], [weight for _, weight in terms]) if terms else question.vector


def is_unspaced(text: str) -> bool:
    """Whether some of it is in a script without spaces between words."""
    return UNSPACED.search(text) is not None


def content_words(text: str) -> tuple[str, ...]:
    """The words that say what is asked, as written, each once, in order; scripts without spaces are left out."""
    spaced = UNSPACED.sub(" ", _plain(text))
    lang = language_of(spaced)
    words: dict[str, str] = {}
    for word in WORD.findall(spaced):
        if not _is_stop_word(word.lower(), lang) and _fold(word) not in ASKING:
            words.setdefault(_fold(word), word)
    return tuple(words.values())


def language_of(text: str) -> str:
    """A guess among the languages that are stemmed, by stop words and script; "en" when nothing tells."""
    for script, languages in BY_SCRIPT:
        if script.search(text):
            return languages[0]
    words = [word.lower() for word in WORD.findall(text)]
    return max(LATIN, key=lambda lang: sum(_is_stop_word(word, lang) for word in words))  # the first of equals: en


def _question_words(text: str) -> Iterator[tuple[dict[int, float], bool]]:
    """For each word its terms with their weights, and whether it only asks."""
    runs = " ".join(UNSPACED.findall(text))
    for term in _segmented("japanese" if KANA.search(runs) else "chinese").embed_query(runs).indices:
        yield {term: 1.0}, term in _asking_terms()
    spaced = UNSPACED.sub(" ", text)
    lang = language_of(spaced)
    for word in WORD.findall(spaced):
        if not _is_stop_word(word.lower(), lang):
            yield _stems(word, lang), _fold(word) in ASKING


def _stems(word: str, lang: str) -> dict[int, float]:
    elsewhere = next((languages for script, languages in BY_SCRIPT if script.search(word)), LATIN)
    terms = {i: OTHER_STEM_WEIGHT for one in (*elsewhere, "") for i in _words(one).embed_query(word).indices}
    return terms | dict.fromkeys(_words(lang).embed_query(word).indices, 1.0)


def _headlines(text: str) -> Iterator[str]:
    """`https://news.example/2026/bridge-closed-after-crash.html` -> "bridge closed after crash"."""
    for link in URL.findall(storable(text)):
        for part in unquote(link.partition("?")[0]).split("/")[1:]:
            words = [word for word in LINK_GAP.split(part) if LINK_WORD.fullmatch(word) and word not in FILE_ENDINGS]
            if len(words) >= LINK_WORDS:
                yield " ".join(words)


def _plain(text: str) -> str:
    """Well formed, without URLs; a tag such as #HarbourBridge also says its words."""
    text = URL.sub(" ", storable(text))
    for tag in CAMEL_TAG.findall(text):
        text += " " + CAMEL_EDGE.sub(" ", tag)
    return text


def _post_language(lang: str, text: str) -> str:
    primary = lang.replace("_", "-").split("-")[0].lower()
    return primary if primary else language_of(text)


def _post_words(lang: str) -> Bm25:
    known = lang in LATIN or any(lang in languages for _, languages in BY_SCRIPT)
    return _words(lang if known else "")


@cache
def _words(lang: str) -> Bm25:
    """For scripts with spaces: keeps numbers, folds accents. "" neither stems nor drops anything."""
    if not lang:
        none = StopwordsSet(custom=set())
        return _bm25(TokenizerType.Word, stemmer=DisabledStemmer(), stopwords=none, ascii_folding=True)
    return _bm25(TokenizerType.Word, language=lang, ascii_folding=True)


@cache
def _segmented(stop_language: str = "") -> Bm25:
    """For scripts without spaces. (It drops every plain number, so it is used for nothing else.)"""
    if stop_language:
        return _bm25(TokenizerType.Multilingual, language=stop_language, stemmer=DisabledStemmer())
    return _bm25(TokenizerType.Multilingual, stemmer=DisabledStemmer(), stopwords=StopwordsSet(custom=set()))


@cache
def _stops(lang: str) -> Bm25:
    """Keeps accents, as the lists of stop words have them."""
    return _bm25(TokenizerType.Word, language=lang)


@cache
def _asking_terms() -> frozenset[int]:
    return frozenset(_segmented().embed_query(ASKING_UNSPACED).indices)


@lru_cache(maxsize=8192)
def _is_stop_word(word: str, lang: str) -> bool:
    return not _stops(lang).embed_query(word).indices


def _bm25(tokenizer: TokenizerType, **options: Any) -> Bm25:
    return Bm25(Bm25Config(k=K, b=B, avg_len=AVERAGE_TERMS, tokenizer=tokenizer, **options))


def _fold(word: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKD", word.lower()) if not unicodedata.combining(c))
