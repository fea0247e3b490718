"""Text <-> token ids, and the checkpoint's chat template. Text that users or posts contain never becomes a control
token: only the template itself can write one. Knows no torch."""

import codecs
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import jinja2
import tokenizers
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import models, pre_tokenizers
from tokenizers.pre_tokenizers import PreTokenizer

from model_runtime.gguf_file import CheckpointError, GgufFile

_CONTROL = 3  # GGUF token type
_END_NAMES = frozenset({"<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "</s>"})

# By `tokenizer.ggml.pre`: how text is cut before byte pairs are merged.
_PRE_TOKENIZERS: dict[str, Callable[[], PreTokenizer]] = {
    "smollm": lambda: pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    ),
}


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """What a GGUF says about its tokenizer. `kinds[i]` 3 marks a control token."""

    tokens: tuple[str, ...]
    kinds: tuple[int, ...]
    merges: tuple[tuple[str, str], ...]
    pre: str
    chat_template: str
    bos_id: int
    eos_id: int

    @classmethod
    def from_gguf(cls, file: GgufFile) -> "TokenizerFiles":
        """Raises CheckpointError if something is missing, does not fit, or is of a kind not known here."""
        model, pre = file.require("tokenizer.ggml.model", str), file.get("tokenizer.ggml.pre", "")
        if model != "gpt2" or pre not in _PRE_TOKENIZERS:
            known = ", ".join(f"gpt2/{name}" for name in _PRE_TOKENIZERS)
            raise CheckpointError(file.path, f"tokenizer {model}/{pre or '-'}; supported: {known}")
        tokens = file.require("tokenizer.ggml.tokens", list)
        kinds = file.require("tokenizer.ggml.token_type", list)
        merges = [merge.partition(" ") for merge in map(str, file.require("tokenizer.ggml.merges", list))]
        vocabulary = set(tokens)
        if len(kinds) != len(tokens) or len(vocabulary) != len(tokens):
            raise CheckpointError(file.path, f"{len(tokens)} tokens, {len(vocabulary)} different, {len(kinds)} kinds")
        for left, _, right in merges:
            if not {left, right, left + right} <= vocabulary:
                raise CheckpointError(file.path, f"merge of {left!r} and {right!r} is not in the vocabulary")
        return cls(
            tokens=tuple(tokens),
            kinds=tuple(kinds),
            merges=tuple((left, right) for left, _, right in merges),
            pre=pre,
            chat_template=file.get("tokenizer.chat_template", ""),
            bos_id=file.require("tokenizer.ggml.bos_token_id", int),
            eos_id=file.require("tokenizer.ggml.eos_token_id", int),
        )


class TemplateRefused(ValueError):
    """The checkpoint's chat template does not accept these messages (order of roles, an unknown role, ...)."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Tokenizer:
    """Byte-level BPE as a GGUF describes it. Pickles as the GGUF's own lists."""

    def __init__(self, files: TokenizerFiles) -> None:
        self._files = files
        vocabulary = {token: number for number, token in enumerate(files.tokens)}
        # No token is registered as special: the merges cannot build one, so no text can spell one.
        self._bpe = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=list(files.merges)))
        self._bpe.pre_tokenizer = _PRE_TOKENIZERS[files.pre]()
        self._bytes = frozenset(byte for letter, byte in _BYTES.items() if letter in vocabulary)
        self._control = {token: number for number, token in enumerate(files.tokens) if files.kinds[number] == _CONTROL}
        ends = {number for token, number in self._control.items() if token in _END_NAMES}
        self.eos_ids = frozenset(ends | {files.eos_id})

    @classmethod
    def from_gguf(cls, path: Path | str) -> "Tokenizer":
        """Raises CheckpointError if the file is damaged or its tokenizer is of a kind not known here."""
        return cls(TokenizerFiles.from_gguf(GgufFile(path)))

    def __reduce__(self) -> tuple[type["Tokenizer"], tuple[TokenizerFiles]]:
        return Tokenizer, (self._files,)

    def encode(self, text: str) -> list[int]:
        """Never holds a control id, whatever the text spells. A lone surrogate, or a character with a byte that the
        vocabulary lacks (SmolLM2: six C0 controls and planes 4 to 11), becomes U+FFFD."""
        unknown = {character for character in set(text) if not self._can_spell(character)}
        if unknown:
            text = text.translate(dict.fromkeys(map(ord, unknown), "\ufffd"))
        return self._bpe.encode(text, add_special_tokens=False).ids

    def _can_spell(self, character: str) -> bool:
        return not "\ud800" <= character <= "\udfff" and self._bytes.issuperset(character.encode())

    def count(self, text: str) -> int:
        return len(self.encode(text))

    def decode(self, ids: Iterable[int]) -> str:
        """Control tokens have no text. A code point whose last bytes are missing at the end is left out."""
        detokenizer = self.detokenizer()
        return "".join([*map(detokenizer.push, ids), detokenizer.finish()])

    def detokenizer(self) -> "Detokenizer":
        return Detokenizer(self)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for; none for a control token. Raises IndexError for an id beyond the vocabulary."""
        token = self._files.tokens[token_id]
        return b"" if token in self._control else bytes(_BYTES[character] for character in token)

    def render(self, messages: Sequence[tuple[str, str]], add_generation_prompt: bool = True) -> list[int]:
        """The ids of a conversation of (role, text) by the checkpoint's chat template. The template sees a stand-in for
        each text, so its control tokens are known to be its own. Around the seams the ids are those of the whole text.

        Raises TemplateRefused, and ValueError for a role that is not a plain word."""
        nonce = secrets.token_hex(8)
        stand_ins = {f"\ufdd0{nonce}.{number}\ufdd1": text for number, (_, text) in enumerate(messages)}
        turns = [
            {"role": _plain(role), "content": _with_edges(stand_in, text)}
            for (role, text), stand_in in zip(messages, stand_ins, strict=True)
        ]
        try:
            written = self._template.render(messages=turns, add_generation_prompt=add_generation_prompt)
        except jinja2.TemplateError as error:
            raise TemplateRefused(str(error)) from error
        return self._encode_written(written, {key: text.strip() for key, text in stand_ins.items()})

    def _encode_written(self, written: str, texts: dict[str, str]) -> list[int]:
        """Texts join what the template wrote around them; control tokens are searched in the template's parts only."""
        marks = "|".join(map(re.escape, sorted([*self._control, *texts], key=len, reverse=True)))
        ids: list[int] = []
        run: list[str] = []
        for piece in re.split(f"({marks})", written) if marks else [written]:
            if piece in self._control:
                ids += self.encode("".join(run)) + [self._control[piece]]
                run.clear()
            else:
                run.append(texts.get(piece, piece))
        return ids + self.encode("".join(run))

    @cached_property
    def _template(self) -> jinja2.Template:
        if not self._files.chat_template:
            raise TemplateRefused("the checkpoint has no chat template")
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _refuse
        environment.globals["bos_token"] = self._files.tokens[self._files.bos_id]
        environment.globals["eos_token"] = self._files.tokens[self._files.eos_id]
        return environment.from_string(self._files.chat_template)


class Detokenizer:
    """Turns one stream of ids into text as it comes, whole code points only."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._token_bytes = tokenizer.token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """What can be shown now; empty while a code point is incomplete. Bytes that are no UTF-8 become U+FFFD."""
        return self._decoder.decode(self._token_bytes(token_id))

    def finish(self) -> str:
        """What was held back: always empty, because a code point that was cut off is not shown."""
        self._decoder.reset()
        return ""


def _refuse(reason: str) -> None:
    raise TemplateRefused(reason)


def _plain(role: str) -> str:
    if not role.isidentifier():
        raise ValueError(f"role {role!r} is not a plain word")
    return role


def _with_edges(stand_in: str, text: str) -> str:
    """The stand-in between the text's own leading and trailing space, so that a template's `trim` works on the text.
    A text without anything else stays itself, for templates that ask whether there is content."""
    core = text.strip()
    if not core:
        return text
    start = text.index(core)
    return text[:start] + stand_in + text[start + len(core) :]


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's letters for bytes: printable ones stand for themselves, the others for U+0100 and up, in order."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(0x100 + number): byte for number, byte in enumerate(others)}


_BYTES = _byte_alphabet()
