"""Answers that have to be JSON, or JSON that a schema allows: which tokens may come next. llguidance parses. Knows no
sampling.

A schema means what JSON Schema 2020-12 says, except that properties come in the schema's order, that keys which it
does not name may repeat, and that a line is indented by 32 characters at most, so that no answer is endless space."""

import json
import logging
from collections.abc import Iterator
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any, NoReturn, Protocol

import torch
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from torch import Tensor

from model_runtime.request import GenerationFailed, Grammar, UnusableRequest

logger = logging.getLogger(__name__)

MOST_SCHEMA_BYTES = 32 * 1024
MOST_MULTIPLE = 10_000
_KEPT_GRAMMARS = 64
_LONGEST_GAP = 16_384  # ids without text between two that have some; Gemma leaves the most free, 6,242

_SPACE = r"( |\n[ \t]{0,32})"
# A step of the worst schemas found takes some 10 ms with these. A schema of 50 properties needs a tenth of them.
_LIMITS = LLParserLimits(
    initial_lexer_fuel=300_000, step_lexer_fuel=100_000, step_max_items=20_000, verbose_errors=False
)
_BITS = torch.tensor([[0.0 if byte >> bit & 1 else -torch.inf for bit in range(8)] for byte in range(256)])


class Vocabulary(Protocol):
    """The tokenizer, as far as a grammar needs it."""

    @property
    def eos_ids(self) -> frozenset[int]: ...

    def token_bytes(self, token_id: int) -> bytes: ...

    def encode(self, text: str) -> list[int]: ...


class GrammarCompiler:
    """Any thread may call it. The latest grammars are kept."""

    def __init__(self, tokenizer: Vocabulary) -> None:
        self._vocabulary = tokenizer
        self._matcher = lru_cache(_KEPT_GRAMMARS)(self._new_matcher)

    def compile(self, grammar: Grammar) -> "GrammarState":
        """The state of an answer that has not begun. Takes milliseconds, a tenth of a second for the worst schemas
        found; the first time half a second more, to index the vocabulary. Raises UnusableRequest for a schema that is
        none, is too big, asks for what is not supported, or allows nothing."""
        return GrammarState(self._matcher("{}" if grammar.schema is None else grammar.schema).deep_copy())

    @cached_property
    def _spelling(self) -> "_Spelling":
        return _Spelling(self._vocabulary)

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        return LLTokenizer(
            self._spelling,  # type: ignore[arg-type]  # it asks for these attributes, not for the class
            eos_token=sorted(self._vocabulary.eos_ids),
            slices=LLTokenizer.json_slices(),
        )

    def _new_matcher(self, text: str) -> LLMatcher:
        schema = _checked(text)
        if not self._spelling.letters.issuperset(json.dumps(schema, ensure_ascii=False).encode(errors="replace")):
            _refuse("it has characters that the model's vocabulary cannot spell")
        try:
            grammar = LLMatcher.grammar_from_json_schema(
                json.dumps(schema),
                overrides={"whitespace_pattern": _SPACE, "json_allow_general_unicode_escapes": True},
            )
        except ValueError as error:
            _refuse(str(error))
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=_LIMITS)
        if not matcher.is_error():
            _try_first_token(matcher.deep_copy())
            return matcher
        _refuse(matcher.get_error())


class GrammarState:
    """Where one answer stands."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    @property
    def is_done(self) -> bool:
        """The answer is complete and nothing but its end can follow."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    def allowed(self) -> Tensor:
        """uint8: bit i % 8 of byte i // 8 says whether id i may come next. An id that ends the answer may when the
        answer is complete. Nothing may when the parser has given up."""
        bits = torch.frombuffer(bytearray(self._matcher.compute_bitmask()), dtype=torch.uint8)
        if self._matcher.is_error():  # llguidance would have the answer end here, as if it were complete
            logger.warning("a grammar became too complex for its parser")
            return torch.zeros_like(bits)
        return bits

    def advance(self, token_id: int) -> None:
        """Raises GenerationFailed if that token is not allowed, or makes the text too complex to parse on."""
        if not self._matcher.consume_token(token_id):
            raise GenerationFailed("the grammar does not allow the token, or has become too complex for its parser")

    def copy(self) -> "GrammarState":
        return GrammarState(self._matcher.deep_copy())


def forbid(row: Tensor, allowed: Tensor) -> None:
    """Makes the logits [vocab] of what is not allowed -inf, in place; also of ids beyond the tokenizer's."""
    vocab = min(8 * len(allowed), len(row))
    bits = _BITS.to(row.device).index_select(0, allowed.to(row.device).int())
    row[:vocab] += bits.view(-1)[:vocab]
    row[vocab:] = -torch.inf


class _Spelling:
    """What LLTokenizer asks of a tokenizer. An id without bytes is never allowed, unless it ends the answer."""

    is_tokenizer_wrapper = True
    bos_token_id = None
    special_token_ids = ()

    def __init__(self, tokenizer: Vocabulary) -> None:
        self._tokenizer = tokenizer
        self.tokens = _token_bytes(tokenizer)
        self.eos_token_id = min(tokenizer.eos_ids)
        self._ids = {text: token_id for token_id, text in enumerate(self.tokens) if text}
        self.letters = frozenset(text[0] for text in self._ids if len(text) == 1)
        self._longest = max(map(len, self.tokens))

    def __call__(self, text: str) -> list[int]:
        """The ids of text that the grammar leaves no choice about. SentencePiece may put a space in front of a text:
        then the longest tokens that fit."""
        ids, wanted = self._tokenizer.encode(text), text.encode()
        return ids if b"".join(self.tokens[token_id] for token_id in ids) == wanted else list(self._longest_fit(wanted))

    def _longest_fit(self, text: bytes) -> Iterator[int]:
        while text:
            size = next(size for size in range(min(self._longest, len(text)), 0, -1) if text[:size] in self._ids)
            yield self._ids[text[:size]]
            text = text[size:]


def _token_bytes(tokenizer: Vocabulary) -> list[bytes]:
    """Of every id, up to the last that stands for text or ends an answer."""
    tokens: list[bytes] = []
    last = max(tokenizer.eos_ids)
    while len(tokens) <= last + _LONGEST_GAP:
        tokens.append(tokenizer.token_bytes(len(tokens)))
        if tokens[-1]:
            last = max(last, len(tokens) - 1)
    return tokens[: last + 1]


def _checked(text: str) -> dict[str, Any]:
    """The schema, without what only llguidance would understand. Raises UnusableRequest."""
    if len(text.encode("utf-8", "surrogatepass")) > MOST_SCHEMA_BYTES:
        _refuse(f"it is longer than {MOST_SCHEMA_BYTES} bytes")
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        _refuse(f"it is not JSON: {error}")
    if not isinstance(schema, dict | bool):
        _refuse("it is neither an object nor true or false")
    _refuse_slow_keywords(schema)
    if schema is True:
        return {}
    if schema is False:
        _refuse("it allows nothing")
    schema.pop("x-guidance", None)  # options of the library, among them to ignore what it does not support
    return schema


def _refuse_slow_keywords(schema: Any) -> None:
    """The two whose cost llguidance does not limit: 400 patterns take eleven seconds, a multiple of 99,991 half a
    second. Looks everywhere, since a $ref may point anywhere."""
    multiples = Decimal(0)
    places = [schema]
    while places:
        place = places.pop()
        places += place.values() if isinstance(place, dict) else place if isinstance(place, list) else ()
        if isinstance(place, dict) and "patternProperties" in place:
            _refuse("patternProperties is not supported")
        multiple = place.get("multipleOf") if isinstance(place, dict) else None
        if isinstance(multiple, int | float):
            multiples += int("".join(map(str, Decimal(str(multiple)).as_tuple().digits)))
    if multiples > MOST_MULTIPLE:
        _refuse(f"the digits of all multipleOf add up to more than {MOST_MULTIPLE}")


def _try_first_token(matcher: LLMatcher) -> None:
    """Some schemas that allow nothing, or too much at once, show it only here."""
    state = GrammarState(matcher)
    ids = torch.nonzero(_BITS.index_select(0, state.allowed().int()).view(-1) == 0).view(-1).tolist()
    if not ids:
        _refuse("it allows nothing, or too much at once")
    try:
        state.advance(ids[0])
    except GenerationFailed:
        _refuse("it is too complex")


def _refuse(why: str) -> NoReturn:
    raise UnusableRequest(f"the JSON schema cannot be used: {why}")
