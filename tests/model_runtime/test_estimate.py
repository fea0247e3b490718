"""An estimate that is too small would be refused by the upstream, after the headers were sent."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_runtime.estimate import TokenEstimate
from model_runtime.tokenizer import Tokenizer

SAMPLES = Path(__file__).parent.parent / "services/attribution.jsonl"
ESTIMATE = TokenEstimate()


@pytest.fixture(scope="module")
def tokenizer(gguf_path: Path) -> Tokenizer:
    return Tokenizer.from_checkpoint(gguf_path)


def test_posts_take_no_more_than_estimated_and_english_not_much_less(tokenizer: Tokenizer):
    """SmolLM2's vocabulary is a hard case: English only, and every digit is a token."""
    lines = [json.loads(line) for line in SAMPLES.read_text().splitlines()]
    texts = {text for line in lines for text in [line["sentence"], *line["posts"]]}
    english = "".join(text for text in texts if text.isascii())
    assert tokenizer.count(english) <= ESTIMATE.count(english) <= 2 * tokenizer.count(english)
    for text in texts:
        assert tokenizer.count(text) <= 1.2 * ESTIMATE.count(text) + 1, text
        assert len(tokenizer.render([("user", text)])) <= len(ESTIMATE.render([("user", text)])), text
    everything = "\n".join(texts)
    assert tokenizer.count(everything) <= ESTIMATE.count(everything)


@pytest.mark.parametrize(
    "text", ["0123456789" * 9, "https://x.co/a?b=1&c=%20#d", "\n\n  \t!?...", "x = [1, 22]  # y", ""]
)
def test_digits_signs_and_spaces_are_counted_one_by_one(tokenizer: Tokenizer, text: str):
    assert tokenizer.count(text) <= ESTIMATE.count(text)


def test_a_turn_takes_more_than_its_text(tokenizer: Tokenizer):
    turns = [
        ("system", "Be brief."),
        ("user", "Why is the bridge closed?"),
        ("assistant", "A crack."),
        ("user", "Where?"),
    ]
    assert len(tokenizer.render(turns)) <= len(ESTIMATE.render(turns))
    assert len(ESTIMATE.render(turns)) < len(ESTIMATE.render([*turns, ("assistant", "")]))
    assert len(ESTIMATE.render(turns, False)) < len(ESTIMATE.render(turns))


@given(st.text(), st.text())
def test_more_text_never_takes_less(one: str, two: str):
    assert max(ESTIMATE.count(one), ESTIMATE.count(two)) <= ESTIMATE.count(one + two) + 1
    assert ESTIMATE.count(one + two) <= ESTIMATE.count(one) + ESTIMATE.count(two) + 1
