"""Tokenizers of every family, from folders and from GGUF files, give the ids that the tokenizers library gives."""

import json
import pickle
import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_tokenizer import BLANK, CONTROL, GPT_2, byte_level, save, save_gguf, sentencepiece, split
from tokenizers import pre_tokenizers
from transformers.convert_slow_tokenizer import TikTokenConverter
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX as QWEN_2

from model_runtime.gguf_file import CheckpointError
from model_runtime.tokenizer import Tokenizer

LLAMA_3 = TikTokenConverter().pattern
# As openai/gpt-oss-20b's tokenizer.json has it.
O200K = "|".join(
    [
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""\p{N}{1,3}""",
        r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
        r"""\s*[\r\n]+""",
        r"""\s+(?!\S)""",
        r"""\s+""",
    ]
)
DIGITS = pre_tokenizers.Digits(individual_digits=True)
BYTE_LEVEL = {
    "smollm": lambda: byte_level(DIGITS, split(GPT_2)),
    "refact": lambda: byte_level(DIGITS, split(GPT_2)),
    "olmo": lambda: byte_level(split(GPT_2), composed=True),
    "gpt-2": lambda: byte_level(split(GPT_2)),
    "llama-bpe": lambda: byte_level(split(LLAMA_3), whole_words_first=True),
    "dbrx": lambda: byte_level(split(LLAMA_3)),
    "qwen2": lambda: byte_level(split(QWEN_2), composed=True),
    "gpt-4o": lambda: byte_level(split(O200K)),
}
SENTENCEPIECE = {
    f"{kind} {scheme}": lambda kind=kind, scheme=scheme: sentencepiece(kind, scheme)
    for kind, scheme in [
        ("BPE", "first"),
        ("BPE", "always"),
        ("BPE", "never"),
        ("BPE", "prepend"),
        ("Unigram", "first"),
        ("Unigram", "always"),
    ]
}
KINDS = BYTE_LEVEL | SENTENCEPIECE
VARIED = [
    "Hello there, it's 12345 o'clock — WE'LL see HelloWorld ½ ²3.",
    "   leading, trailing   \n\n\t tabs \r\n  ",
    "El puente está cerrado; 橋は通行止めです。 الجسر مغلق 🎉👩‍👩‍👧 naïve ПОЧЕМУ? e\u0301",
    f"x=3.14*2**10 # kommentar\n\n\ndef f():\n{BLANK}return [1, 22, 333]{BLANK}{BLANK} \n",
    "",
    "\u2029\u00a0\u200b\x00\x7f",
    "<0x41>",
]
SPELLED = [*CONTROL, "<unk>", "<think>", "<0x41>", "▁", " ", "s", "\ud800", "\ufdd0" + "1", "<", ">", "|"]
TEXTS = st.text() | st.lists(st.sampled_from(SPELLED) | st.text(max_size=5), max_size=8).map("".join)


class Pair:
    """One tokenizer as we read it, from a folder, and as transformers does."""

    def __init__(self, folder: Path, name: str) -> None:
        self.trained = KINDS[name]()
        self.oracle = save(folder, self.trained)
        self.ours = Tokenizer.from_checkpoint(folder)
        self.name = name
        self.added = {self.trained.token_to_id(token) for token in [*CONTROL, "<unk>", "<think>"]} - {None}

    def spelled(self, text: str) -> str:
        """The text that these ids stand for: what is lost, is lost in the original too."""
        text = re.sub("[\ud800-\udfff\ufdd0]" if "Unigram" in self.name else "[\ud800-\udfff]", "\ufffd", text)
        if self.name in BYTE_LEVEL:
            return unicodedata.normalize("NFC", text) if self.name in ("qwen2", "olmo") else text
        text = text.replace("▁", " ")
        return text.removeprefix(" ") if self.name.endswith(("first", "always")) else text


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(tmp_path_factory.mktemp("folder"), request.param)


@pytest.mark.parametrize("text", VARIED)
def test_ids_and_text_are_those_of_transformers(pair: Pair, text: str):
    ids = pair.ours.encode(text)
    if text != "<0x41>":  # the library takes a byte's own name for the byte
        assert ids == pair.oracle.encode(text, add_special_tokens=False)
    assert pair.ours.decode(ids) == pair.spelled(text)


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<[|\ufdd0"), max_size=40))
def test_ids_of_any_text_are_those_of_transformers(pair: Pair, text: str):
    assert pair.ours.encode(text) == pair.oracle.encode(text, add_special_tokens=False)


@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_text_survives_and_never_becomes_an_added_token(pair: Pair, text: str):
    ids = pair.ours.encode(text)
    assert pair.added.isdisjoint(ids)
    assert pair.ours.decode(ids) == pair.spelled(text)
    assert pair.ours.count(text) == len(ids)


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=20))
def test_a_stream_shows_the_text_and_never_part_of_a_code_point(pair: Pair, text: str):
    text = pair.spelled(text).replace("\ufffd", "?")
    detokenizer = pair.ours.detokenizer()
    shown = [detokenizer.push(number) for number in pair.ours.encode(text)]
    assert "\ufffd" not in "".join(shown)
    assert "".join(shown) + detokenizer.finish() == text


def test_the_bytes_of_every_token_are_those_the_decoder_gives(pair: Pair):
    a = pair.trained.token_to_id("a")
    for number in range(pair.trained.get_vocab_size()):
        token = pair.ours.token_bytes(number)
        if pair.trained.id_to_token(number) in [*CONTROL, "<unk>"]:
            assert token == b""
            continue
        around = pair.oracle.decode([a, number, a], skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert (b"a" + token + b"a").decode(errors="replace") == around
    assert pair.ours.token_bytes(pair.trained.token_to_id("<think>")) == b"<think>"


def test_it_travels_to_another_process(pair: Pair):
    twin = pickle.loads(pickle.dumps(pair.ours))
    assert twin.encode(VARIED[0]) == pair.ours.encode(VARIED[0])
    assert twin.eos_ids == pair.ours.eos_ids


def test_rows_beyond_the_vocabulary_have_no_bytes(pair: Pair):
    assert pair.ours.token_bytes(151_900) == b""
    assert pair.ours.decode([pair.trained.token_to_id("a"), 151_900]) == pair.ours.decode(
        [pair.trained.token_to_id("a")]
    )


@pytest.mark.parametrize("pre", BYTE_LEVEL)
@pytest.mark.parametrize("text", VARIED)
def test_a_gguf_names_how_its_family_cuts_text(pre: str, text: str, tmp_path: Path):
    trained = BYTE_LEVEL[pre]()
    ours = Tokenizer.from_checkpoint(save_gguf(tmp_path / "tiny.gguf", trained, pre))
    assert ours.encode(text) == trained.encode(text, add_special_tokens=False).ids
    assert ours.token_bytes(trained.token_to_id("<think>")) == b"<think>"


def by_definition(tokenizer: Any, text: str) -> list[int]:
    """SentencePiece's BPE, by its definition: of all neighbours, join those that make the token of the best score
    (here, the lowest id), the leftmost first; what is no token then, is spelled by bytes."""
    vocabulary = {
        token: number for token, number in tokenizer.get_vocab().items() if number > 262 and token != "<think>"
    }
    pieces = list("▁" + text.replace(" ", "▁")) if text else []
    while True:
        joined = [vocabulary.get(left + right, 10**9) for left, right in zip(pieces, pieces[1:], strict=False)]
        if min(joined, default=10**9) == 10**9:
            break
        at = joined.index(min(joined))
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
    bytes_of = [
        [vocabulary[piece]] if piece in vocabulary else [7 + byte for byte in piece.encode()] for piece in pieces
    ]
    return [number for ids in bytes_of for number in ids]


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Tokenizer]:
    trained = sentencepiece("BPE", "prepend")
    assert trained.token_to_id("<0x00>") == 7
    return trained, Tokenizer.from_checkpoint(save_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", trained))


@settings(max_examples=200, deadline=None)
@given(
    text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufdd0"), max_size=30)
    | st.text("tha is", max_size=30)
)
def test_a_gguf_of_sentencepiece_joins_by_score(scored: tuple[Any, Tokenizer], text: str):
    trained, ours = scored
    assert ours.encode(text) == by_definition(trained, text)
    assert ours.decode(ours.encode(text)) == text.replace("▁", " ")


def test_a_gguf_says_where_a_space_comes_first_and_what_ends_an_answer(tmp_path: Path):
    trained = sentencepiece("BPE", "prepend")
    path = save_gguf(
        tmp_path / "tiny.gguf", trained, add_space_prefix=False, eot_token_id=trained.token_to_id("[/INST]")
    )
    ours = Tokenizer.from_checkpoint(path)
    assert [ours.token_bytes(number) for number in ours.encode("be")] == [b"be"]
    assert ours.decode(ours.encode(" be")) == " be"
    assert ours.eos_ids == {trained.token_to_id(token) for token in ("</s>", "[/INST]", "<|im_end|>")}


@pytest.mark.parametrize(
    ("model", "add", "first"),
    [("", True, True), ("", False, False), ("", None, True), ("qwen2", None, False), ("llama-bpe", None, True)],
)
def test_a_gguf_begins_with_bos_where_the_template_does_not_write_it(
    model: str, add: bool | None, first: bool, tmp_path: Path
):
    trained = BYTE_LEVEL[model]() if model else sentencepiece("BPE", "prepend")
    bos = trained.token_to_id("<s>")
    keys = {} if add is None else {"add_bos_token": add}
    for written in ("", "{{ bos_token }}"):
        template = written + "{{ messages[0].content }}"
        path = save_gguf(tmp_path / "tiny.gguf", trained, model, chat_template=template, **keys)
        ids = Tokenizer.from_checkpoint(path).render([("user", "<s>the")])
        assert ids.count(bos) == (1 if written or first else 0) and (bos not in ids[1:])


def test_a_gguf_with_several_templates_uses_the_one_for_a_conversation(tmp_path: Path):
    keys = {"chat_template.default": "{{ messages[0].content }}", "chat_template.rag": "{{ 1 / 0 }}"}
    ours = Tokenizer.from_checkpoint(save_gguf(tmp_path / "tiny.gguf", BYTE_LEVEL["qwen2"](), "qwen2", **keys))
    assert ours.decode(ours.render([("user", "hi")])) == "hi"


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(tmp_path, BYTE_LEVEL["qwen2"](), "{{ messages[0].content }}")
    return tmp_path


def test_what_ends_an_answer_is_said_in_several_places(folder: Path):
    ids = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    usual = {ids["</s>"], ids["<|im_end|>"], ids["<|endoftext|>"]}
    assert Tokenizer.from_checkpoint(folder).eos_ids == usual
    for said in (ids["[INST]"], [ids["[INST]"], ids["</s>"]]):
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": said}))
        assert Tokenizer.from_checkpoint(folder).eos_ids == usual | {ids["[INST]"]}


def test_templates_stand_in_several_places(folder: Path):
    def first() -> str:
        ours = Tokenizer.from_checkpoint(folder)
        return ours.decode(ours.render([("user", "hi")]))

    (folder / "chat_template.jinja").write_text("from a file {{ messages[0].content }}")
    assert first() == "from a file hi"
    (folder / "chat_template.jinja").unlink()
    edit(folder / "tokenizer_config.json", chat_template="from settings {{ messages[0].content }}")
    assert first() == "from settings hi"
    named = [{"name": "rag", "template": "no"}, {"name": "default", "template": "by name {{ messages[0].content }}"}]
    edit(folder / "tokenizer_config.json", chat_template=named)
    assert first() == "by name hi"


def test_truncation_and_padding_of_the_file_do_not_count(folder: Path):
    before = Tokenizer.from_checkpoint(folder).encode(VARIED[0])
    spec = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    spec.enable_truncation(3)
    spec.enable_padding(length=99)
    spec.save(str(folder / "tokenizer.json"))
    assert len(spec.encode(VARIED[0]).ids) == 99
    assert Tokenizer.from_checkpoint(folder).encode(VARIED[0]) == before


def test_merges_may_be_written_as_text(folder: Path):
    before = Tokenizer.from_checkpoint(folder).encode(VARIED[0])
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    edit(folder / "tokenizer.json", model=model | {"merges": [" ".join(merge) for merge in model["merges"]]})
    assert Tokenizer.from_checkpoint(folder).encode(VARIED[0]) == before


def test_merges_that_spell_a_control_token_do_not_count(folder: Path):
    spec = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = spec["model"]["vocab"] | {"<s": len(spec["model"]["vocab"]) + 2}
    merges = [["<", "s"], ["<s", ">"], *spec["model"]["merges"]]
    letters = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    model = spec["model"] | {"vocab": vocabulary, "merges": merges}
    edit(folder / "tokenizer.json", model=model, pre_tokenizer=letters)
    ours = Tokenizer.from_checkpoint(folder)
    assert ours.encode("<s>") == [vocabulary["<s"], vocabulary[">"]]


def test_what_cannot_be_read_is_refused_by_name(folder: Path):
    def refused(match: str) -> None:
        with pytest.raises(CheckpointError, match=match) as caught:
            Tokenizer.from_checkpoint(folder)
        assert caught.value.file.startswith(str(folder))

    path = folder / "tokenizer.json"
    whole = path.read_text()
    model = json.loads(whole)["model"]
    for changed, match in [
        ({"model": {"type": "WordPiece", "vocab": {}}}, "tokenizer WordPiece; supported: BPE, Unigram"),
        ({"pre_tokenizer": None}, "no tokens for bytes"),
        ({"normalizer": {"type": "Strange"}}, "tokenizers cannot read it"),
        ({"model": {"type": "BPE"}}, "KeyError"),
        ({"model": model | {"merges": [["nonsense", "token"]]}}, "tokenizers cannot read it"),
    ]:
        edit(path, **changed)
        refused(match)
        path.write_text(whole)
    edit(folder / "tokenizer_config.json", eos_token=None)
    edit(path, model=model | {"vocab": {t: n for t, n in model["vocab"].items() if t not in CONTROL}}, added_tokens=[])
    refused("no token ends an answer")
    path.write_text("{")
    refused("no JSON")
    path.write_text("[]")
    refused("no JSON object")
    path.unlink()
    refused("there is no tokenizer.json$")
    (folder / "tokenizer.model").write_bytes(b"")
    refused("there is no tokenizer.json; AutoTokenizer.*makes it of tokenizer.model")


def test_a_gguf_that_does_not_fit_is_refused(tmp_path: Path):
    trained = BYTE_LEVEL["gpt-2"]()
    path = save_gguf(tmp_path / "tiny.gguf", trained, "gpt-2", eos_token_id=99_999)
    with pytest.raises(CheckpointError, match="eos_token_id is 99999, there are"):
        Tokenizer.from_checkpoint(path)
    path = save_gguf(tmp_path / "tiny.gguf", trained, "poro-chat")
    with pytest.raises(CheckpointError, match="tokenizer gpt2/poro-chat; supported: llama, gpt2/smollm"):
        Tokenizer.from_checkpoint(path)
