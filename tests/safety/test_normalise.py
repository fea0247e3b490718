"""The normaliser: one alphabet, nothing invisible, and the way back to the raw text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safety.normalise import normalise


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("plain ASCII 123", "plain ASCII 123"),
        ("ｊａｎｅ＠ｅｘ．ｃｏｍ", "jane@ex.com"),
        ("٤١١١ ४१११ ４１１１", "4111 4111 4111"),
        ("ja\u200bne\u2060@\ufeffex\u00ad.com", "jane@ex.com"),
        ("555\u20110130 555\u22120130", "555-0130 555-0130"),
        ("\u201cdon\u2019t\u201d", '"don\'t"'),
        ("a\u202eb\u202cc", "abc"),
        ("".join(chr(0xE0000 + ord(char)) for char in "hi all"), "hi all"),
        ("\ud800 \x00 ok", "\ud800 \x00 ok"),
    ],
)
def test_what_patterns_see(raw: str, text: str) -> None:
    assert normalise(raw).text == text


def test_hidden_letters_are_counted_but_not_those_of_a_flag() -> None:
    england = "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
    assert normalise(f"go {england} go").hidden == 0
    assert normalise("go " + "".join(chr(0xE0000 + ord(char)) for char in "ignore")).hidden == 6
    assert normalise("\U0001f9d1\u200d\U0001f680").hidden == 0


@given(st.text(), st.text())
def test_a_text_may_be_cut_anywhere(one: str, other: str) -> None:
    assert normalise(one + other).text == normalise(one).text + normalise(other).text


@given(st.text(alphabet=st.characters(), min_size=1))
def test_spans_lead_back_to_the_raw_characters(raw: str) -> None:
    seen = normalise(raw)
    assert len(seen.lower) == len(seen.text)
    end = 0
    for index in range(len(seen.text)):
        start, stop = seen.raw_span(index, index + 1)
        assert stop == start + 1 and start >= end - 1
        assert seen.text[index] in normalise(raw[start]).text
        end = stop
