"""No part of a stop string is ever shown, however the text falls into tokens."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_runtime.tokenizer import Tokenizer
from model_runtime.visible_text import VisibleText


@pytest.fixture(scope="module")
def tokenizer(gguf_path) -> Tokenizer:
    return Tokenizer.from_checkpoint(gguf_path)


def show(tokenizer: Tokenizer, ids: list[int], stops: list[str]) -> tuple[list[str], str, bool]:
    """What each token showed, what the end showed, whether a stop string ended it."""
    text = VisibleText(tokenizer, stops)
    shown = []
    for token_id in ids:
        shown.append(text.push(token_id))
        if text.stopped:
            break
    return shown, text.finish(), text.stopped


def expected(text: str, stops: list[str]) -> tuple[str, bool]:
    """By the definition: the first stop string that is complete, read character by character, ends the text."""
    for end in range(1, len(text) + 1):
        ended = [stop for stop in stops if stop and text[:end].endswith(stop)]
        if ended:
            return text[: end - max(map(len, ended))], True
    return text, False


@settings(max_examples=300, deadline=None)
@given(st.text("ab\u00e9\U0001f600", max_size=14), st.lists(st.text("ab\u00e9\U0001f600", max_size=5), max_size=3))
def test_the_shown_text_ends_before_the_first_stop_string(tokenizer, text, stops):
    by_bytes = [tokenizer.encode(character) for character in text]  # the finest cut: emoji are several tokens
    for ids in (tokenizer.encode(text), [token_id for few in by_bytes for token_id in few]):
        shown, rest, stopped = show(tokenizer, ids, stops)
        assert ("".join(shown) + rest, stopped) == expected(text, stops)
        assert "\ufffd" not in "".join(shown)


@given(st.text("xyab", max_size=20))
@settings(max_examples=100, deadline=None)
def test_without_a_stop_string_nothing_is_held_back(tokenizer, text):
    shown, rest, stopped = show(tokenizer, tokenizer.encode(text), [])
    assert ("".join(shown), rest, stopped) == (text, "", False)


def test_only_what_could_become_a_stop_string_is_held_back(tokenizer):
    ids = [token_id for word in ("one", "EN", "two", "EN", "D", "three") for token_id in tokenizer.encode(word)]
    shown, rest, stopped = show(tokenizer, ids, ["END"])
    assert "".join(shown) + rest == "oneENtwo" and stopped
    assert "one" in "".join(shown[:2]) and "E" not in shown[0]


def test_the_end_shows_what_was_held_back_in_vain(tokenizer):
    shown, rest, stopped = show(tokenizer, tokenizer.encode("the EN"), ["END"])
    assert ("".join(shown), rest, stopped) == ("the ", "EN", False)
