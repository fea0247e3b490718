"""Text <-> the ids of a vocabulary without control tokens, so that no text can spell one. Knows no templates."""

import json
import re
from collections.abc import Iterator
from typing import Any

import tokenizers

SPACE = "\u2581"  # stands for a space in SentencePiece's vocabularies
BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
NOT_A_CHARACTER = "\ufdd0"  # begins the names of tokens that no text can spell, where they cannot be left out (Unigram)


class Spelling:
    """`definition`: a tokenizers JSON without control tokens, as tokenizer_files.py makes it. Two kinds: byte-level
    (every letter of a token is a byte) and SentencePiece's (letters, a mark for the space, and tokens for the bytes of
    what else there is). Raises ValueError for any other, or where the JSON does not hold together."""

    def __init__(self, definition: str) -> None:
        spec = json.loads(definition)
        vocabulary: dict[str, int] = _vocabulary(spec["model"])
        steps = [*_steps(spec.get("normalizer")), *_steps(spec.get("pre_tokenizer"))]
        self._byte_level = any(step["type"] == "ByteLevel" for step in steps)
        if not self._byte_level and not all(f"<0x{byte:02X}>" in vocabulary for byte in range(256)):
            raise ValueError("the vocabulary is not byte-level and has no tokens for bytes: it cannot spell every text")
        self._start = _load(definition)
        middle = _never_first(spec)
        self._middle = self._start if middle == spec else _load(json.dumps(middle))
        self._tokens = {number: token for token, number in vocabulary.items()}
        self._spelled: dict[int, bytes] = {}  # asked for once a token of every answer
        self._unspelled = NOT_A_CHARACTER if spec["model"]["type"] == "Unigram" else ""
        self._bytes = frozenset(byte for letter, byte in _BYTES.items() if letter in vocabulary)
        self.strips_first_space = not self._byte_level and any(map(_puts_space_in_front, steps))

    def encode(self, text: str, *, starts: bool = True) -> list[int]:
        """`starts`: the text begins a sequence, which some SentencePiece vocabularies mark by a space in front. A lone
        surrogate, or a character with a byte that the vocabulary lacks (SmolLM2: six C0 controls and planes 4 to 11),
        becomes U+FFFD."""
        unknown = {character for character in set(text) if not self._can_spell(character)}
        if unknown:
            text = text.translate(dict.fromkeys(map(ord, unknown), "\ufffd"))
        tokenizer = self._start if starts else self._middle
        return tokenizer.encode(text, add_special_tokens=False).ids

    def token_bytes(self, token_id: int) -> bytes:
        """Empty for an id that is not in the vocabulary."""
        spelled = self._spelled.get(token_id)
        if spelled is None:
            token = self._tokens.get(token_id)
            if token is None:
                return b""
            spelled = self._spelled[token_id] = self._bytes_of(token)
        return spelled

    def _bytes_of(self, token: str) -> bytes:
        if self._unspelled and token.startswith(self._unspelled):
            return b""
        if self._byte_level:
            known = all(letter in _BYTES for letter in token)  # a run of spaces, added later, is written as it is
            return bytes(_BYTES[letter] for letter in token) if known else token.encode()
        if byte := BYTE_TOKEN.fullmatch(token):
            return bytes.fromhex(byte[1])
        return token.replace(SPACE, " ").encode()

    def _can_spell(self, character: str) -> bool:
        if "\ud800" <= character <= "\udfff" or character == self._unspelled:
            return False
        return not self._byte_level or self._bytes.issuperset(character.encode())


def _load(definition: str) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(definition)
    except Exception as error:  # tokenizers raises Exception itself
        raise ValueError(f"tokenizers cannot read it: {error}") from error


def _vocabulary(model: dict[str, Any]) -> dict[str, int]:
    if model["type"] == "Unigram":
        return {token: number for number, (token, _) in enumerate(model["vocab"])}
    return dict(model["vocab"])


def _steps(part: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """The steps of a normalizer or pre-tokenizer, those of a sequence one by one."""
    if part is None:
        return
    if part["type"] == "Sequence":
        for step in part.get("normalizers") or part.get("pretokenizers") or ():
            yield from _steps(step)
    else:
        yield part


def _puts_space_in_front(step: dict[str, Any]) -> bool:
    if step["type"] == "Metaspace":
        older = "always" if step.get("add_prefix_space", True) else "never"
        return str(step.get("prepend_scheme", older)) != "never"
    return bool(step["type"] == "Prepend")


def _never_first(spec: Any) -> Any:
    """The same definition for a text in the middle of a sequence."""
    if isinstance(spec, list):
        return [_never_first(part) for part in spec]
    if not isinstance(spec, dict):
        return spec
    if spec.get("type") == "Metaspace" and spec.get("prepend_scheme") == "first":
        return {**spec, "prepend_scheme": "never"}
    return {key: part if key in ("model", "added_tokens") else _never_first(part) for key, part in spec.items()}


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's letters for bytes: printable ones stand for themselves, the others for U+0100 and up, in order."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(0x100 + number): byte for number, byte in enumerate(others)}


_BYTES = _byte_alphabet()
