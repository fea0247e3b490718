"""HTML to text: words never glued, no tag left, whole addresses, and no input that takes long or raises (T29)."""

import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from ingest.sources.html_text import text_of

LINK = (
    '<a href="https://example.org/very/long"><span class="invisible">https://</span>'
    '<span class="ellipsis">example.org/very</span><span class="invisible">/long</span></a>'
)
HASHTAG = '<a href="https://ex.social/tags/x" class="mention hashtag">#<span>x</span></a>'
MENTION = '<span class="h-card"><a href="https://ex.social/@ana" class="u-url mention">@<span>ana</span></a></span>'


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<p>Line one<br />two</p><p>three</p>", "Line one\ntwo\n\nthree"),
        ("a<br><br><br>b", "a\n\nb"),
        ("<p>a<br></p><p>b</p>", "a\n\nb"),
        ("<div>a</div><div>b</div>c", "a\nb\nc"),
        ("x<ul><li>one</li><li>two<ol><li>inner</li></ol></li></ul>y", "x\none\ntwo\ninner\ny"),
        ("<p>one\n  <b>two</b>\tthree</p>", "one two three"),
        ("<b>wo</b>rd", "word"),
        ("<table><tr><td>a<td>b<tr><td>c</table>", "a b\nc"),
        ("<pre>a\n  b</pre>c", "a\n  b\n\nc"),
        ("<p>&lt;b&gt; &amp;amp; &#x1F600;&nbsp;&eacute;</p>", "<b> &amp; \U0001f600\u00a0\u00e9"),
        ("hi<script>x</script>there<style>p{}</style><!-- no <p>way</p> -->!", "hi there !"),
        ("a<!-- -->b", "ab"),
        ("<html><head><title>T</title></head><body>b</body></html>", "b"),
        ("", ""),
        ("<p> </p>", ""),
    ],
)
def test_blocks_are_lines_and_nothing_but_text_is_left(markup: str, text: str) -> None:
    assert text_of(markup) == text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        (f"see {LINK}.", "see https://example.org/very/long."),
        (f"see{LINK}more", "see https://example.org/very/long more"),
        (f"({LINK})", "(https://example.org/very/long)"),
        (f"{LINK}{LINK}", "https://example.org/very/long https://example.org/very/long"),
        ('<a href="https://e.org/a?b=1&amp;c=2">e.org/a\u2026</a>', "https://e.org/a?b=1&c=2"),
        ('<a href="https://www.e.org/a/b">e.org/a...</a>', "https://www.e.org/a/b"),
        ('<a href="https://other.example/">https://bank.example/</a>', "https://other.example/"),
        (HASHTAG, "#x"),
        (f"hello {MENTION}, hi", "hello @ana, hi"),
        ('<a href="https://mk.example/@bo@ex.social">@bo@ex.social</a>', "@bo@ex.social"),
        ('<a href="https://e.org/a">the minister</a>', "the minister"),
        ('<a href="https://e.org">E</a>', "E"),
        ('<a href="javascript:alert(1)">here</a>', "here"),
        ('<a href="https://e.org/a b">e.org/a</a>', "e.org/a"),
        ("<a>plain</a>", "plain"),
    ],
)
def test_a_cut_address_is_shown_whole_and_words_stay_words(markup: str, text: str) -> None:
    assert text_of(markup) == text


@pytest.mark.parametrize("text", ["a < b", "I <3 you", "x<y", "two\nlines  and   spaces\n", "\u202eabc", "a > b", "<"])
def test_text_without_a_tag_stays_as_it_is(text: str) -> None:
    assert text_of(text) == text


def test_entities_of_plain_text_are_decoded_and_impossible_ones_do_not_raise() -> None:
    assert text_of("Q&amp;A &lt;3") == "Q&A <3"
    assert text_of("&#" + "9" * 5000 + ";").startswith("&#9")


def test_t24_lone_surrogates_and_nul_become_replacement_characters_and_emoji_stay() -> None:
    assert text_of("<p>a\ud83db\x00 \U0001f600</p>") == "a\ufffdb\ufffd \U0001f600"
    assert text_of("a\udc00b") == "a\ufffdb"


WORDS = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8)
SEPARATORS = st.sampled_from(
    [
        "<br>",
        "</p><p>",
        "<p>",
        "<div>",
        " ",
        "\n",
        "<li>",
        "</li><li>",
        "<hr>",
        "<table><tr><td>",
        "<script>no()</script>",
        "<h2>",
    ]
)


@given(st.lists(st.tuples(WORDS, SEPARATORS), min_size=1, max_size=30))
def test_t29_words_are_never_glued_and_none_is_lost(pairs: list[tuple[str, str]]) -> None:
    markup = "<p>" + "".join(word + separator for word, separator in pairs)
    assert text_of(markup).split() == [word for word, _ in pairs]


TAGS = st.sampled_from(
    ["<p>", "</p>", "<b>", "</b>", "<a href='https://e.org/x'>", "</a>", "<ul>", "<li>", "<br/>", "<i"]
)


@given(st.lists(st.one_of(TAGS, WORDS, st.text(max_size=5)), max_size=40))
@example(["<", "p>"])
@example(["<i"] * 3)
def test_no_tag_is_left(pieces: list[str]) -> None:
    assert not re.search(r"</?(p|b|a|ul|li|br)\b[^<>]*>", text_of("<p>x</p>" + "".join(pieces)))


@given(st.text(max_size=300))
def test_never_raises_on_any_text(markup: str) -> None:
    assert isinstance(text_of(markup), str)
    assert isinstance(text_of(f"<p>{markup}"), str)


@given(st.lists(WORDS, min_size=1, max_size=5))
def test_a_browser_reads_the_same_words(words: list[str]) -> None:
    markup = "".join(f"<p>{word} <em>x</em></p>" for word in words)
    body = LexborHTMLParser(markup).body
    assert body is not None
    assert text_of(markup).split() == body.text(separator=" ").split()


HOSTILE = {
    "deep": "<div>" * 100_000 + "deep",
    "deep formatting": "<b>" * 100_000 + "deep",
    "formatting opened again in each paragraph": "<p>"
    + "".join(f"<b id={n}>" for n in range(40_000))
    + "<p>deep" * 40_000,
    "lists": "<ul><li>" * 100_000 + "deep",
    "comments without an end": "deep<!--" * 100_000,
    "tags without an end": "deep<a " * 100_000 + ">",
    "scripts": "deep<script>" * 80_000,
    "long text": "<p>" + "deep " * 200_000,
    "long address": f"<a href='https://e.org/{'x' * 900_000}'>e.org</a> deep",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_megabyte_does_not_hold_up_the_feed(name: str) -> None:
    """The budget is process time, ten times what it takes: an input of quadratic cost takes half a minute."""
    started = time.process_time()
    text = text_of(HOSTILE[name])
    assert "deep" in text
    assert not re.search(r"<(div|b|p|ul|li|script)\b", text)
    assert time.process_time() - started < 10


def test_an_article_of_many_tags_keeps_its_words_in_order() -> None:
    words = [f"w{n}" for n in range(3000)]
    body = "".join(f"<p><b>{word}</b> <a href='https://e.org/{word}'>e.org/{word}</a></p>" for word in words)
    text = text_of(f"<script>{'if (a<b) {} ' * 2000}</script>{body}<!-- {'<p>no</p>' * 1000} -->")
    assert text == "\n\n".join(f"{word} https://e.org/{word}" for word in words)
