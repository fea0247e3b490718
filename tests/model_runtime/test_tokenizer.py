"""Text survives the round trip, no text spells a control token, and streams show whole code points only."""

import pickle
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from model_runtime.gguf_file import CheckpointError, GgufFile
from model_runtime.tokenizer import Tokenizer, TokenizerFiles

CONTROL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>", "<|im_start", "|>", "<|", "\n", "system"]
TEXTS = st.text() | st.lists(st.sampled_from(CONTROL) | st.text(max_size=5), max_size=8).map("".join)
VARIED = [
    "Hello there, it's 12345 o'clock — we'll see.",
    "   leading, trailing   \n\n\t tabs ",
    "El puente está cerrado; 橋は通行止めです。 الجسر مغلق 🎉👩‍👩‍👧 naïve",
    "x=3.14*2**10 # kommentar\n\n\ndef f():\n    return [1, 22, 333]",
    "",
    "\u2029\u00a0\u200b",
]


def spelled(text: str) -> str:
    """What SmolLM2's vocabulary can spell of a text: it lacks the bytes of some characters that nobody writes."""
    return re.sub("[\x04\x06\x13\x14\x16\x1d\U00040000-\U000bffff]", "\ufffd", text)


@pytest.fixture(scope="module")
def tokenizer(gguf_path):
    return Tokenizer.from_checkpoint(gguf_path)


@pytest.fixture(scope="module")
def oracle(gguf_path):
    return AutoTokenizer.from_pretrained(gguf_path.parent, gguf_file=gguf_path.name)


@settings(max_examples=300, deadline=None)
@given(text=TEXTS)
def test_text_survives_and_never_becomes_a_control_token(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == spelled(text)
    assert all(number > 16 for number in ids), "the first 17 ids of this vocabulary are control tokens"
    assert tokenizer.count(text) == len(ids)


@pytest.mark.parametrize("character", ["\ud800", "\x04", "\U00050000"])
def test_what_cannot_be_spelled_is_replaced_not_dropped(tokenizer, character):
    assert tokenizer.decode(tokenizer.encode(f"a{character}b")) == "a\ufffdb"


@pytest.mark.parametrize("text", VARIED)
def test_ids_are_those_of_transformers(tokenizer, oracle, text):
    assert tokenizer.encode(text) == oracle.encode(text, add_special_tokens=False)


def test_digits_stand_alone(tokenizer):
    """llama.cpp and the original tokenizer cut every numeral off, which transformers' reading of a GGUF does not."""
    assert [tokenizer.decode([number]) for number in tokenizer.encode("10½")][:2] == ["1", "0"]
    assert tokenizer.encode("a½ ") == tokenizer.encode("a") + tokenizer.encode("½") + tokenizer.encode(" ")


CONVERSATIONS = [
    [("user", "Why is the bridge closed?")],
    [("system", "Be brief."), ("user", "\n\nWhat is 2+2?\n"), ("assistant", "4"), ("user", "你好 🎉")],
    [("user", "")],
    [("user", "  \n"), ("assistant", "")],
]


@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("prompt", [True, False])
def test_a_conversation_is_written_as_transformers_writes_it(tokenizer, oracle, conversation, prompt):
    messages = [{"role": role, "content": text} for role, text in conversation]
    expected = oracle.apply_chat_template(messages, add_generation_prompt=prompt, return_dict=False)
    assert tokenizer.render(conversation, add_generation_prompt=prompt) == expected


@settings(max_examples=200, deadline=None)
@given(text=TEXTS)
def test_no_text_can_open_or_close_a_turn(tokenizer, text):
    def controls(ids):
        return [number for number in ids if number <= 16]

    ids = tokenizer.render([("system", text), ("user", text)])
    assert controls(ids) == [1, 2, 1, 2, 1]
    assert spelled(text) in tokenizer.decode(ids)


@settings(max_examples=100, deadline=None)
@given(text=st.text(min_size=1))
def test_harmless_text_is_written_as_if_it_were_part_of_the_template(tokenizer, text):
    assume("<" not in text)
    ids = tokenizer.render([("system", "s"), ("user", text)])
    middle = ids[ids.index(1, 1) + 1 : len(ids) - 1 - ids[::-1].index(2)]
    assert middle == tokenizer.encode(f"user\n{text}")


@settings(max_examples=150, deadline=None)
@given(text=st.text().map(spelled).filter(lambda text: "\ufffd" not in text))
def test_a_stream_shows_the_text_and_never_part_of_a_code_point(tokenizer, text):
    detokenizer = tokenizer.detokenizer()
    shown = [detokenizer.push(number) for number in tokenizer.encode(text)]
    assert "\ufffd" not in "".join(shown)
    assert "".join(shown) + detokenizer.finish() == text


@settings(max_examples=150, deadline=None)
@given(ids=st.lists(st.integers(0, 49151), max_size=30))
def test_a_stream_of_any_ids_adds_up_to_their_text(tokenizer, ids):
    detokenizer = tokenizer.detokenizer()
    shown = "".join(map(detokenizer.push, ids)) + detokenizer.finish()
    assert shown == tokenizer.decode(ids)


def test_an_emoji_cut_off_at_the_end_is_not_shown(tokenizer):
    ids = tokenizer.encode("ok 🦒")
    assert len(ids) > 3, "the giraffe takes several tokens"
    assert [tokenizer.decode(ids[:-1]), tokenizer.decode(ids)] == ["ok ", "ok 🦒"]


def test_it_travels_to_another_process(tokenizer):
    twin = pickle.loads(pickle.dumps(tokenizer))
    assert twin.render(CONVERSATIONS[1]) == tokenizer.render(CONVERSATIONS[1])
    assert twin.eos_ids == tokenizer.eos_ids == {0, 2}


def test_control_tokens_have_no_text(tokenizer):
    assert tokenizer.decode([1, 2, 0, 3]) == ""


def test_a_vocabulary_that_does_not_fit_is_refused(gguf_path):
    file = GgufFile(gguf_path)
    file.metadata["tokenizer.ggml.merges"] = ["a nonsense-token"]
    with pytest.raises(CheckpointError, match="nonsense-token"):
        TokenizerFiles.from_gguf(file)
    file.metadata["tokenizer.ggml.tokens"][7] = file.metadata["tokenizer.ggml.tokens"][8]
    with pytest.raises(CheckpointError, match="49152 tokens, 49151 different, 49152 kinds"):
        TokenizerFiles.from_gguf(file)
    file = GgufFile(gguf_path)
    file.metadata["tokenizer.ggml.model"] = "llama"
    with pytest.raises(CheckpointError, match=r"no key tokenizer\.ggml\.scores"):
        TokenizerFiles.from_gguf(file)
