"""What a grammar allows is what JSON and the schema allow, whatever the tokens; nothing makes it do otherwise."""

import functools
import json
import random
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model_runtime.grammar import GrammarCompiler, GrammarState, forbid
from model_runtime.request import GenerationFailed, Grammar, UnusableRequest
from model_runtime.tokenizer import Tokenizer
from tests.model_runtime.byte_vocabulary import CONTROL, END, ByteVocabulary

BYTES = ByteVocabulary()
LETTERS = "abcdefghijklmnopqrst"


@functools.cache
def compiler(path: Path) -> tuple[GrammarCompiler, Tokenizer, frozenset[int]]:
    tokenizer = Tokenizer.from_checkpoint(path)
    silent = frozenset(token_id for token_id in range(49_152) if not tokenizer.token_bytes(token_id))
    return GrammarCompiler(tokenizer), tokenizer, silent


def allowed_ids(state: GrammarState) -> list[int]:
    row = torch.zeros(8 * len(state.allowed()))
    forbid(row, state.allowed())
    return torch.nonzero(row == 0).view(-1).tolist()


def compile_bytes(schema: object = None) -> GrammarState:
    return GrammarCompiler(BYTES).compile(Grammar(None if schema is None else json.dumps(schema)))


def allows(state: GrammarState, text: str | bytes) -> bool:
    """Byte by byte, up to a complete answer."""
    state = state.copy()
    for byte in text.encode() if isinstance(text, str) else text:
        if byte not in allowed_ids(state):
            return False
        state.advance(byte)
    return END in allowed_ids(state)


def fits(text: bytes, schema: object) -> bool:
    try:
        jsonschema.validate(json.loads(text.decode()), schema, cls=jsonschema.Draft202012Validator)
    except (ValueError, jsonschema.ValidationError):
        return False
    return not text[:1].isspace() and not text[-1:].isspace()


def walk(
    state: GrammarState, tokenizer: Tokenizer, chance: random.Random, budget: int = 60
) -> Iterator[tuple[bytes, list[int]]]:
    """The text so far and what may follow, at each step of a random answer. After `budget` tokens it prefers what
    closes strings, objects and arrays."""
    closing = [tokenizer.encode(text)[0] for text in ('"', "}", "]", ":", "0", ",")]
    text = b""
    for step in range(20 * budget):
        ids = allowed_ids(state)
        yield text, ids
        ends = sorted(tokenizer.eos_ids.intersection(ids))
        if ends and (len(ids) == len(ends) or step > budget or chance.random() < 0.3):
            state.advance(ends[0])
            return
        closers = [token_id for token_id in closing if token_id in ids]
        among = sorted(set(ids) - tokenizer.eos_ids)
        token_id = closers[0] if closers and (step > budget or chance.random() < 0.3) else chance.choice(among)
        state.advance(token_id)
        text += tokenizer.token_bytes(token_id)
    raise AssertionError(f"no end after {text!r}")


POST = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 1, "maxLength": 40},
        "tags": {"type": "array", "items": {"type": "string", "pattern": "^#[a-z]+$"}, "minItems": 1, "maxItems": 3},
        "score": {"type": "number", "minimum": 0, "maximum": 1},
        "count": {"type": "integer", "exclusiveMinimum": -5, "multipleOf": 5},
        "kind": {"enum": ["news", "rumour", 3, None]},
        "author": {
            "type": "object",
            "properties": {"id": {"type": "string", "format": "uuid"}, "followers": {"type": ["integer", "null"]}},
            "required": ["id"],
            "additionalProperties": False,
        },
    },
    "required": ["title", "score", "kind", "author"],
    "additionalProperties": False,
}
TREE = {
    "$ref": "#/$defs/t",
    "$defs": {"t": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/t"}}, {"const": 1}]}},
}
SCHEMAS = {
    "anything": {},
    "object": {"type": "object"},
    "post": POST,
    "tree": TREE,
    "pattern": {"type": "string", "pattern": "^[A-Z]{2}-\\d{3,5}( ok)?$"},
    "pattern inside": {"type": "string", "pattern": "ab", "maxLength": 12},
    "map": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 10, "maximum": 4711}},
    "tuple": {"type": "array", "prefixItems": [{"type": "boolean"}, {"const": {"a": [1, "é"]}}], "items": False,
              "minItems": 2},
    "one of": {"oneOf": [{"type": "string", "maxLength": 3}, {"type": "integer"}, {"type": "null"}]},
    "all of": {"allOf": [{"type": "integer", "minimum": -3}, {"maximum": 12}]},
    "quotes": {"enum": ['a "quoted" word', "back\\slash", "line\nbreak", "日本", "🦒"]},
}  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", SCHEMAS)
def test_any_allowed_tokens_make_json_that_fits_and_may_end_exactly_then(gguf_path: Path, name: str, seed: int) -> None:
    grammars, tokenizer, silent = compiler(gguf_path)
    schema = SCHEMAS[name]
    state = grammars.compile(Grammar(json.dumps(schema)))
    for text, ids in walk(state, tokenizer, random.Random(seed)):
        assert set(ids).isdisjoint(silent - tokenizer.eos_ids)
        assert tokenizer.eos_ids.issubset(ids) == fits(text, schema)
        assert tokenizer.eos_ids.isdisjoint(ids) != fits(text, schema)
    assert fits(text, schema)
    assert state.is_done


@pytest.mark.parametrize("seed", range(3))
def test_without_a_schema_it_is_any_json(gguf_path: Path, seed: int) -> None:
    grammars, tokenizer, _ = compiler(gguf_path)
    *_, (text, _) = walk(grammars.compile(Grammar()), tokenizer, random.Random(seed))
    json.loads(text)


TEXTS = st.characters(max_codepoint=0x1FFFF, exclude_categories=["Cs"])  # SmolLM2 cannot spell planes 4 to 11


def strings() -> st.SearchStrategy[dict[str, object]]:
    length = st.integers(0, 4)
    return st.one_of(
        st.builds(lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more}, length, length),
        st.builds(
            lambda texts: {"enum": texts}, st.lists(st.text(TEXTS, max_size=5), min_size=1, max_size=4, unique=True)
        ),
        st.sampled_from([{"type": "string", "format": "date"}, {"type": "string", "pattern": "^a+b?$"}]),
    )


def numbers() -> st.SearchStrategy[dict[str, object]]:
    return st.builds(
        lambda kind, low, more: {"type": kind, "minimum": low, "maximum": low + more},
        st.sampled_from(["integer", "number"]),
        st.integers(-2000, 2000),
        st.integers(0, 3000),
    )


def containers(inner: st.SearchStrategy[dict[str, object]]) -> st.SearchStrategy[dict[str, object]]:
    names = st.text(TEXTS, min_size=1, max_size=4)
    return st.one_of(
        st.builds(lambda items, most: {"type": "array", "items": items, "maxItems": most}, inner, st.integers(0, 3)),
        st.builds(lambda options: {"anyOf": options}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(
            lambda properties, optional: {
                "type": "object",
                "properties": properties,
                "required": sorted(properties)[optional:],
                "additionalProperties": False,
            },
            st.dictionaries(names, inner, max_size=3),
            st.integers(0, 2),
        ),
    )


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.recursive(st.one_of(strings(), numbers(), st.just({"type": "null"})), containers, max_leaves=5),
    st.integers(0, 99),
)
def test_random_schemas(gguf_path: Path, schema: dict[str, object], seed: int) -> None:
    grammars, tokenizer, silent = compiler(gguf_path)
    state = grammars.compile(Grammar(json.dumps(schema)))
    for text, ids in walk(state, tokenizer, random.Random(seed), budget=20):
        assert set(ids).isdisjoint(silent - tokenizer.eos_ids)
        assert tokenizer.eos_ids.isdisjoint(ids) != fits(text, schema)
    assert fits(text, schema)


@pytest.mark.parametrize(
    "good",
    ['{}', '{"a": [1, -2.5e3, null]}', '"\\u00e9\\n\\"é"', "[[], [[]]]", "false", "-0.1", '"🦒"',
     '"\\ud83e\\udd92"', '"\\u0000"'],
)  # fmt: skip
def test_valid_json_is_allowed(good: str) -> None:
    assert allows(compile_bytes(), good)


@pytest.mark.parametrize(
    "bad",
    ['{"a": 1,}', "[1,]", "01", "1.", "+1", ".5", "'a'", "{a: 1}", '"a\nb"', '"\\x41"', '"\\u00g0"', '"\\ud83e"',
     '"\\udd92"', "tru", "NaN", "[1 2]", "{} {}", '"\x00"', "", " {}", "{} ", "undefined", '{"a" 1}', "--1", "1e",
     '"open', "// no"],
)  # fmt: skip
def test_invalid_json_is_not(bad: str) -> None:
    assert not allows(compile_bytes(), bad)


@pytest.mark.parametrize("bad", [b'"\xff"', b'"\xc3("', b'"\xed\xa0\x80"', b'"\xf0\x9f"', b'"\xc0\xaf"'])
def test_bytes_that_are_no_text_are_not_allowed(bad: bytes) -> None:
    assert not allows(compile_bytes(), bad)


GOOD = {
    "title": "a",
    "tags": ["#big"],
    "score": 0.5,
    "count": 10,
    "kind": "news",
    "author": {"id": "12345678-1234-1234-1234-123456789abc", "followers": None},
}


@pytest.mark.parametrize(
    "change",
    [
        {"title": ""},
        {"title": "a" * 41},
        {"title": 1},
        {"tags": []},
        {"tags": ["#a"] * 4},
        {"tags": ["Big"]},
        {"score": 1.5},
        {"score": -0.1},
        {"count": 7},
        {"count": -5},
        {"count": 5.5},
        {"kind": "other"},
        {"author": {}},
        {"author": {"id": "1234"}},
        {"author": {**GOOD["author"], "name": "x"}},
        {"unknown": 1},
    ],
    ids=str,
)
def test_what_the_schema_forbids_is_not_allowed(change: dict[str, object]) -> None:
    state = compile_bytes(POST)
    assert allows(state, json.dumps(GOOD))
    assert not allows(state, json.dumps(GOOD | change))


@pytest.mark.parametrize("name", POST["properties"])
def test_only_what_is_required_must_be_there(name: str) -> None:
    rest = {key: value for key, value in GOOD.items() if key != name}
    assert allows(compile_bytes(POST), json.dumps(rest)) == (name not in POST["required"])


def test_properties_come_in_the_order_of_the_schema() -> None:
    assert not allows(compile_bytes(POST), json.dumps(dict(reversed(GOOD.items()))))


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date-time", "2026-11-30T18:00:00Z", "2026-11-30 18:00"),
        ("date", "2026-11-30", "30.11.2026"),
        ("time", "18:00:00+01:00", "6 pm"),
        ("duration", "P1DT2H", "2 hours"),
        ("email", "ana@example.com", "ana"),
        ("hostname", "feed.example.com", "-feed-"),
        ("ipv4", "192.168.0.1", "192.168.0.256"),
        ("ipv6", "2001:db8::1", "2001:db8::1::2"),
        ("uuid", "12345678-1234-1234-1234-123456789abc", "12345678"),
        ("uri", "https://example.com/a?b=c#d", "example com"),
    ],
)
def test_formats_are_kept(name: str, good: str, bad: str) -> None:
    state = compile_bytes({"type": "string", "format": name})
    assert allows(state, json.dumps(good))
    assert not allows(state, json.dumps(bad))


def test_a_character_may_be_split_over_tokens_but_not_cut_off(gguf_path: Path) -> None:
    grammars, tokenizer, _ = compiler(gguf_path)
    pieces = tokenizer.encode("🦒")
    assert len(pieces) > 1
    state = grammars.compile(Grammar('{"type": "string", "maxLength": 1}'))
    state.advance(tokenizer.encode('"')[0])
    for piece in pieces:
        assert piece in allowed_ids(state)
        state.advance(piece)
        if piece != pieces[-1]:
            assert all(0x80 <= tokenizer.token_bytes(token_id)[0] < 0xC0 for token_id in allowed_ids(state))
    assert allowed_ids(state) == [i for i in allowed_ids(state) if tokenizer.token_bytes(i).startswith(b'"')] != []


def test_a_schema_that_the_vocabulary_cannot_spell_is_refused(gguf_path: Path) -> None:
    grammars, *_ = compiler(gguf_path)
    with pytest.raises(UnusableRequest, match="cannot spell"):
        grammars.compile(Grammar('{"const": "\U00040000"}'))


def test_space_between_values_is_bounded() -> None:
    state = compile_bytes({"type": "array", "items": {"type": "integer"}})
    assert allows(state, "[\n" + " " * 32 + "1,\n\t2 ]")
    assert not allows(state, "[\n" + " " * 33 + "1]")
    assert not allows(state, "[\n\n1]")


@pytest.mark.parametrize(
    "keywords",
    [
        {"not": {"type": "string"}},
        {"type": "array", "uniqueItems": True},
        {"type": "array", "contains": {"const": 1}},
        {"if": {"type": "string"}, "then": {"maxLength": 1}},
        {"type": "object", "dependentRequired": {"a": ["b"]}},
        {"type": "object", "propertyNames": {"maxLength": 3}},
        {"type": "object", "unevaluatedProperties": False},
        {"type": "object", "patternProperties": {"^a": {"type": "string"}}},
        {"type": "string", "format": "iri-reference"},
        {"type": "string", "pattern": "(?=a)b"},
        {"type": "string", "pattern": "(a)\\1"},
        {"oneOf": [{"type": "number"}, {"type": "integer"}]},
        {"$ref": "https://example.com/schema"},
        {"$ref": "#/$defs/missing"},
        {"type": "text"},
        {"type": "string", "minLength": "three"},
        {"type": "object", "properties": {"a": {"not": {}}}, "required": ["a"]},
    ],
    ids=str,
)
@pytest.mark.parametrize("options", [{}, {"x-guidance": {"lenient": True, "coerce_one_of": True}}], ids=["", "lenient"])
def test_what_is_not_supported_is_refused(keywords: dict[str, object], options: dict[str, object]) -> None:
    with pytest.raises(UnusableRequest, match="the JSON schema cannot be used"):
        compile_bytes(keywords | options)


def test_the_librarys_own_options_have_no_effect() -> None:
    state = compile_bytes({"type": "array", "x-guidance": {"whitespace_pattern": "x", "item_separator": ";"}})
    assert allows(state, "[1, 2]")
    assert not allows(state, "[1;2]") and not allows(state, "[x1]")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "12", '"string"', "null", "false", '{"a": NaN}', "{'a': 1}", '{"const": "\\ud800"}', "[" * 30_000,
     '{"enum": []}', '{"type": "number", "minimum": 5, "maximum": 3}', '{"$ref": "#"}', '{"allOf": [{"$ref": "#"}]}',
     json.dumps({"enum": ["long " * 10 + str(number) for number in range(1000)]}),
     '{"items":' * 200 + "{}" + "}" * 200,
     '{"multipleOf": 10007}', '{"multipleOf": 1.00000007}',
     json.dumps({"anyOf": [{"multipleOf": 997 + number} for number in range(20)]}),
     json.dumps({"type": "object", "properties": {f"p{number}": {} for number in range(600)}}),
     json.dumps({"allOf": [{"anyOf": [{"required": [f"a{i}"]}, {"required": [f"b{i}"]}]} for i in range(16)]}),
     json.dumps({"$ref": "#/x", "x": {"patternProperties": {f"^{number}_": {} for number in range(400)}}}),
    ],
    ids=lambda text: text[:40],
)  # fmt: skip
def test_what_is_no_schema_or_too_much_is_refused(text: str) -> None:
    with pytest.raises(UnusableRequest, match="the JSON schema cannot be used"):
        GrammarCompiler(BYTES).compile(Grammar(text))


def test_a_property_may_have_a_keywords_name() -> None:
    assert allows(compile_bytes({"properties": {"multipleOf": {"type": "integer"}}}), '{"multipleOf": 3}')


def test_a_text_that_becomes_too_complex_fails_and_does_not_end(gguf_path: Path) -> None:
    """The library would have it end there, as if it were complete."""
    grammars, tokenizer, _ = compiler(gguf_path)
    patterns = [{"type": "string", "pattern": f".*{letter}.{{{length}}}"} for length, letter in enumerate(LETTERS, 9)]
    state = grammars.compile(Grammar(json.dumps({"type": "array", "items": {"anyOf": patterns}})))
    for token_id in tokenizer.encode('["'):
        state.advance(token_id)
    while ids := allowed_ids(state):
        assert tokenizer.eos_ids.isdisjoint(ids)
        state.advance(max(ids))
    assert not state.is_done
    with pytest.raises(GenerationFailed):
        state.advance(tokenizer.encode('"')[0])


def test_a_token_that_is_not_allowed_is_refused() -> None:
    state = compile_bytes({"type": "object"})
    assert CONTROL not in allowed_ids(state) and END not in allowed_ids(state)
    for token_id in (ord("x"), CONTROL, END):
        wrong = state.copy()
        with pytest.raises(GenerationFailed):
            wrong.advance(token_id)
        assert allowed_ids(wrong) == []
    state.advance(ord("{"))  # the copies' fate is theirs


def test_states_of_one_grammar_are_apart() -> None:
    grammars, grammar = GrammarCompiler(BYTES), Grammar('{"type": "boolean"}')
    first, second = grammars.compile(grammar), grammars.compile(grammar)
    first.advance(ord("t"))
    copy = first.copy()
    copy.advance(ord("r"))
    assert ord("r") in allowed_ids(first) and ord("f") not in allowed_ids(first)
    assert ord("f") in allowed_ids(second)
    assert not first.is_done
    for byte in b"ue":
        copy.advance(byte)
    assert copy.is_done and not first.is_done
    assert allowed_ids(copy) == [END]


def test_an_answer_that_could_go_on_is_not_done() -> None:
    state = compile_bytes({"type": "integer"})
    state.advance(ord("1"))
    assert END in allowed_ids(state) and not state.is_done


@pytest.mark.parametrize("space_in_front", [False, True])
@pytest.mark.parametrize("free", [0, 9000])
def test_other_vocabularies(space_in_front: bool, free: int) -> None:
    """Ids without text between others, two ids for the same text, and text that is spelt with a space in front."""
    vocabulary = ByteVocabulary(space_in_front=space_in_front, free=free)
    schema = {"type": "object", "properties": {"name": {"const": "é"}}, "required": ["name"]}
    state = GrammarCompiler(vocabulary).compile(Grammar(json.dumps(schema | {"additionalProperties": False})))
    assert {vocabulary.token_bytes(token_id) for token_id in allowed_ids(state)} == {b"{", b'{"'}
    ids: list[int] = []
    chance = random.Random(4)
    while not state.is_done:
        among = [token_id for token_id in allowed_ids(state) if not vocabulary.token_bytes(token_id).isspace()]
        assert all(vocabulary.token_bytes(token_id) for token_id in among)
        ids.append(chance.choice(among))
        state.advance(ids[-1])
    assert json.loads(vocabulary.decode(ids)) == {"name": "é"}


def test_forbid_covers_logits_beyond_the_vocabulary() -> None:
    state = compile_bytes({"type": "boolean"})
    for vocab in (len(BYTES.tokens) + 100, 8 * len(state.allowed()), 130):
        row = torch.ones(vocab)
        forbid(row, state.allowed())
        assert {i for i in range(vocab) if row[i] == 1} == {i for i in allowed_ids(state) if i < vocab}
        assert row[row != 1].eq(-torch.inf).all()
