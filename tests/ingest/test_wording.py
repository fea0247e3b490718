"""What the embedder sees of links, hashtags, handles and emoji."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.wording import worded


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The bridge is closed", "The bridge is closed"),
        ("See https://t.co/AbC1?x=y#Frag and www.example.org now", "See and now"),
        ("Fire at pic.twitter.com/0eJtwJyS1J", "Fire at"),
        ("#SydneySiege #NYCMarathon2013 #storm #USA #black_out", "Sydney Siege NYC Marathon2013 storm USA black out"),
        ("@CenterForBioDiv RT @ana: hi", "@CenterForBioDiv RT @ana: hi"),
        ("mail ana@example.org, C# and # alone", "mail ana@example.org, C# and # alone"),
        ("Fire \U0001f525\U0001f525 \u26a0\ufe0f here \U0001f468\u200d\U0001f692", "Fire here"),
        ("#\u5730\u9707 \u6771\u4eac\u3067", "\u5730\u9707 \u6771\u4eac\u3067"),
        ("\uff03\u5730\u9707", "\u5730\u9707"),
    ],
)
def test_words(text: str, words: str) -> None:
    assert worded(text).split() == words.split()


@pytest.mark.parametrize("text", ["", "  ", "\U0001f62d\U0001f62d", "https://t.co/abc", "\U0001f525 www.example.org"])
def test_what_would_be_empty_stays_as_it_is(text: str) -> None:
    assert worded(text) == text


@given(st.text(max_size=80))
def test_a_text_that_says_something_is_never_emptied(text: str) -> None:
    assert bool(worded(text).strip()) == bool(text.strip())
