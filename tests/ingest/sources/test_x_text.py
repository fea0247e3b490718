"""The text of an X post as people see it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.sources.x_text import visible

LINK = "https://t.co/Ab3dEf"


def entity(start, *, url=LINK, to="https://example.org/?a=1&amp=2", **more):
    return {"start": start, "end": start + len(url), "url": url, "expanded_url": to, **more}


def test_entities_are_decoded_once_and_not_in_links():
    text = f"a &lt;b&gt; &amp;amp; &amp;lt; {LINK} &quot; &copy;"
    assert visible(text, {"urls": [entity(text.index(LINK))]}) == (
        "a <b> &amp; &lt; https://example.org/?a=1&amp=2 &quot; &copy;"
    )


@pytest.mark.parametrize("start", [4, 6, 0, 99, -1, None, "4", True], ids=str)
def test_the_link_is_found_by_code_points_by_utf_16_or_by_itself(start):
    """T20 for X: two astral emoji before the link are two code points and four UTF-16 units."""
    text = f"\U0001f525\U0001f525! {LINK} end"
    assert visible(text, {"urls": [entity(0) | {"start": start}]}) == (
        "\U0001f525\U0001f525! https://example.org/?a=1&amp=2 end"
    )


def test_offsets_that_point_elsewhere_never_cut_the_text():
    assert visible("no link here", {"urls": [entity(3)]}) == "no link here"


def test_a_link_that_begins_like_another_is_not_mistaken_for_it():
    text = f"{LINK}g and {LINK}"
    assert visible(text, {"urls": [entity(99, to="https://a.example/")]}) == f"{LINK}g and https://a.example/"


def test_the_same_link_twice_and_overlapping_entities():
    text = f"{LINK} {LINK}"
    assert visible(text, {"urls": [entity(0, to="https://a.example"), entity(1, to="https://a.example")]}) == (
        "https://a.example https://a.example"
    )


def test_own_pictures_at_the_end_go_and_elsewhere_the_link_stays():
    photo = "https://twitter.com/ana/status/1217393323884916736/photo/1"
    video = "https://x.com/ana/status/1217393323884916736/video/1"
    other = "https://t.co/zzzzzz"
    text = f"look {LINK} {other}"
    urls = [entity(5, to=photo), entity(5, to=photo), entity(5 + len(LINK) + 1, url=other, to=video)]
    assert visible(text, {"urls": urls}) == "look"
    quote = entity(5 + len(LINK) + 1, url=other, to="https://x.com/bo/status/1")
    assert visible(text, {"urls": [entity(5, to=photo), quote]}) == "look https://x.com/bo/status/1"
    assert visible(f"{LINK} look", {"urls": [entity(0, to=photo)]}) == f"{LINK} look"
    assert visible(f"look {LINK}", {"urls": [entity(5, to="https://a.example", media_key="3_1")]}) == "look"
    assert visible(f"look {LINK}", {"urls": [entity(5, to="https://x.com/ana/status/1")]}) == (
        "look https://x.com/ana/status/1"
    )


def test_a_scheme_in_capitals_is_one():
    assert visible(LINK, {"urls": [entity(0, to="Https://okdiario.com/opinion")]}) == "Https://okdiario.com/opinion"


@pytest.mark.parametrize("to", ["javascript:alert(1)", "", None, 5, "https://a b", "https://a/<script>", "ftp://a"])
def test_what_is_no_web_address_replaces_nothing(to):
    assert visible(f"x {LINK}", {"urls": [entity(2, to=to)]}) == f"x {LINK}"


@given(st.text(max_size=80), st.lists(st.integers(-5, 90) | st.none(), max_size=4), st.integers(0, 80))
def test_no_other_character_is_lost(text, starts, place):
    text = text.replace("&", "")
    cut = min(place, len(text))
    given = text[:cut] + LINK + "." + text[cut:]
    urls = [entity(0, to="https://example.org/") | {"start": start} for start in starts]
    expected = text[:cut] + ("https://example.org/" if starts else LINK) + "." + text[cut:]
    assert visible(given, {"urls": urls}) == expected
