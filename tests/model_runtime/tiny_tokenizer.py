"""Small tokenizers of every kind, trained in the test by the tokenizers library, and the folders and GGUF files that
checkpoints would keep them in."""

import json
from pathlib import Path
from typing import Any

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CORPUS = [
    "The bridge is closed because the water rose 1234 centimetres, it's 56.7 % more than we'll see again.",
    "El puente está cerrado; 橋は通行止めです。 الجسر مغلق ПОЧЕМУ МостЗакрыт naïve Ünïcödé",
    "x = 3.14 * 2 ** 10  # comment\n\n\ndef f(value):\n    return [1, 22, 333]\n\t\tpass  \r\n",
    "HELLO WORLD, HelloWorld don't DON'T I'LL you're YOU'RE <s> </s> <|im_start|> [INST] <think>",
] * 3
BLANK = "        "
CONTROL = ["<|endoftext|>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "[INST]", "[/INST]"]
GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


def byte_level(
    *steps: pre_tokenizers.PreTokenizer, composed: bool = False, whole_words_first: bool = False
) -> Tokenizer:
    """`steps` cut the text, byte pairs are merged within the pieces."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=whole_words_first))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(False, use_regex=False)])
    tokenizer.normalizer = normalizers.NFC() if composed else None
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=CONTROL, initial_alphabet=alphabet, show_progress=False, min_frequency=1
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken(BLANK, normalized=False)])
    return tokenizer


def split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def sentencepiece(kind: str, scheme: str) -> Tokenizer:
    """`kind`: "BPE" or "Unigram"; `scheme`: where a space is put in front: "first", "always", "never", or "prepend",
    which is "always" as Llama 2's and Mixtral's first files had it."""
    special = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "[INST]", "[/INST]"]
    if kind == "BPE":
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
        trainer: Any = trainers.BpeTrainer(
            vocab_size=800, special_tokens=special + BYTE_TOKENS, show_progress=False, min_frequency=1
        )
    else:
        tokenizer = Tokenizer(models.Unigram())
        trainer = trainers.UnigramTrainer(
            vocab_size=400, special_tokens=special, unk_token="<unk>", show_progress=False
        )
    if scheme == "prepend":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    spec = json.loads(tokenizer.to_str())
    spec["added_tokens"] = [token for token in spec["added_tokens"] if token["content"] not in BYTE_TOKENS]
    if kind == "Unigram":
        spec["model"]["vocab"] += [[token, 0.0] for token in BYTE_TOKENS]
        spec["model"]["byte_fallback"] = True
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    tokenizer.decoder = decoders.Sequence(steps if scheme == "never" else [*steps, decoders.Strip(" ", 1, 0)])
    tokenizer.add_tokens([AddedToken("<think>", normalized=False)])
    return tokenizer


def save(folder: Path, tokenizer: Tokenizer, template: str = "", **names: str) -> PreTrainedTokenizerFast:
    """Saves a folder as transformers does, and reads it as transformers does."""
    names = {"bos_token": "<s>", "eos_token": "</s>"} | names
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template or None, **names).save_pretrained(folder)
    oracle: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(folder)
    return oracle


def save_gguf(path: Path, tokenizer: Tokenizer, pre: str = "", **keys: Any) -> Path:
    """The vocabulary as llama.cpp's converter writes it: `pre` empty for SentencePiece's (model "llama")."""
    spec = json.loads(tokenizer.to_str())
    ids = tokenizer.get_vocab(with_added_tokens=True)
    tokens = sorted(ids, key=lambda token: ids[token])
    added = {token["content"]: token["special"] for token in spec["added_tokens"]}
    kinds = [
        2
        if token == "<unk>"
        else 6
        if token in BYTE_TOKENS
        else {True: 3, False: 4}[added[token]]
        if token in added
        else 1
        for token in tokens
    ]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2" if pre else "llama")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    if pre:
        writer.add_tokenizer_pre(pre)
        writer.add_token_merges([" ".join(merge) for merge in spec["model"]["merges"]])
    else:
        writer.add_token_scores([-float(number) for number in range(len(tokens))])
    for key, value in ({"bos_token_id": ids["<s>"], "eos_token_id": ids["</s>"]} | keys).items():
        add = writer.add_bool if isinstance(value, bool) else writer.add_uint32
        (writer.add_string if isinstance(value, str) else add)(
            f"tokenizer.{key}" if "chat" in key else f"tokenizer.ggml.{key}", value
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path
