"""What may be shown of a byline, under a screen that knows e-mail addresses and phone numbers."""

import re
from dataclasses import replace

import pytest
from ingest_parts import FakeVerdict

from ingest.byline import byline_texts, shown
from ingest.post import Author, Post

PRIVATE = re.compile(r"(?<![@\w.])[\w.+-]+@[\w.-]+|\+?\d{10,}")
POST = Post("t:1", "t", 0, "text", 0, 0, Author("a"))


def screened(post: Post) -> Post:
    verdicts = {}
    for text in byline_texts(post):
        safe = PRIVATE.sub("[PRIVATE]", text)
        verdicts[text] = FakeVerdict(int(safe != text), safe)
    return shown(post, verdicts)


@pytest.mark.parametrize(
    ("handle", "url", "kept"),
    [
        ("ana.example", "", "ana.example"),
        ("@ana", "", "@ana"),
        ("jane.doe@gmail.com", "", "[PRIVATE]"),
        ("jane.doe@gmail.com", "https://ex.am/jane", "[PRIVATE]"),
        ("+4915112345678", "https://ex.am/1", "[PRIVATE]"),
        ("ana@social.example", "https://Social.example/@ana/1", "ana@social.example"),
        ("ana@social.example", "https://social.example.evil/@ana/1", "[PRIVATE]"),
        ("@ana@social.example", "", "@ana@social.example"),
        ("@+4915112345678@social.example", "", "[PRIVATE] social.example"),
        ("+4915112345678@social.example", "https://social.example/1", "[PRIVATE] social.example"),
        ("a@b@social.example", "https://social.example/1", "[PRIVATE]@social.example"),
    ],
)
def test_a_federated_handle_is_no_address(handle: str, url: str, kept: str) -> None:
    post = replace(POST, author=Author("a", handle), url=url)
    assert screened(post).author == Author("a", kept)


@pytest.mark.parametrize("at", ["@", "%40", "%2540"])
def test_a_url_with_an_address_in_it_is_dropped(at: str) -> None:
    assert screened(replace(POST, url=f"https://ex.am/?mail=jane.doe{at}gmail.com")).url == ""


@pytest.mark.parametrize("url", ["", "https://ex.am/@ana/1?a=%40#b", "https://social.example/@ana@other.example/1"])
def test_other_urls_are_kept_as_they_are(url: str) -> None:
    assert screened(replace(POST, url=url)).url == url


def test_an_author_id_that_says_too_much_is_replaced_by_the_same_hash_each_time() -> None:
    phone, mail = (screened(replace(POST, author=Author(who))) for who in ("+4915112345678", "jane.doe@gmail.com"))
    again = screened(replace(POST, id="t:2", author=Author("+4915112345678", "ana")))
    assert phone.author.id == again.author.id != mail.author.id
    assert not PRIVATE.search(phone.author.id + " " + mail.author.id)
    assert screened(replace(POST, author=Author(""))).author.id == ""
