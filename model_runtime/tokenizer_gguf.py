"""A GGUF's vocabulary as a tokenizers definition. Knows no templates."""

from dataclasses import dataclass
from typing import Any

from model_runtime.gguf_file import CheckpointError, GgufFile
from model_runtime.spelling import BYTE_TOKEN, SPACE

# Token types of GGUF.
UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 2, 3, 4, 5
_SILENT = (UNKNOWN, CONTROL, UNUSED)

# How text is cut before byte pairs are merged: the published tokenizer.json of each family. The names are those that
# llama.cpp's converter writes as `tokenizer.ggml.pre`.
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA_3 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_REST}"
_QWEN_2 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_REST}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_GPT_4O = (  # o200k: a word ends where its case changes
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_PATTERNS: dict[str, tuple[str, ...]] = {
    "smollm": (r"\p{N}", _GPT_2),
    "refact": (r"\p{N}", _GPT_2),  # Granite 3
    "starcoder": (r"\p{N}", _GPT_2),
    "gpt-2": (_GPT_2,),
    "olmo": (_GPT_2,),
    "llama-bpe": (_LLAMA_3,),
    "dbrx": (_LLAMA_3,),
    "smaug-bpe": (_LLAMA_3,),
    "qwen2": (_QWEN_2,),
    "gpt-4o": (_GPT_4O,),  # gpt-oss
    "default": (r"[\p{P}$+<=>^~|]+", _GPT_2, r"\p{N}+", "[0-9][0-9][0-9]"),  # of files older than the key
}
_WHOLE_WORDS_FIRST = frozenset({"llama-bpe"})  # a word that is a token is not put together by merges
_COMPOSED = frozenset({"qwen2", "olmo"})  # Unicode's NFC before all else


@dataclass(frozen=True, slots=True)
class Sorts:
    """Tokens by what they are for, each with its id. `usable`: what text may become; `blank`: those of them that are
    runs of spaces, matched before text is cut; `marks` and `silent`: see TokenizerFiles."""

    usable: dict[str, int]
    blank: dict[str, int]
    marks: dict[str, int]
    silent: frozenset[int]


def sort_tokens(file: GgufFile) -> Sorts:
    """Raises CheckpointError if tokens are there twice, or do not fit their kinds."""
    tokens, kinds = file.require("tokenizer.ggml.tokens", list), file.require("tokenizer.ggml.token_type", list)
    if not len(tokens) == len(kinds) == len(set(tokens)):
        raise CheckpointError(file.path, f"{len(tokens)} tokens, {len(set(tokens))} different, {len(kinds)} kinds")
    sorts = Sorts({}, {}, {}, frozenset(number for number, kind in enumerate(kinds) if kind in _SILENT))
    for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True)):
        if kind == CONTROL or (kind == USER_DEFINED and not token.isspace()):
            sorts.marks[token] = number
        elif kind not in _SILENT:
            sorts.usable[token] = number
            if kind == USER_DEFINED:
                sorts.blank[token] = number
    return sorts


def special_ids(file: GgufFile) -> dict[str, int]:
    """Of "bos", "eos", "eot" (of a turn), "eom" (of a message), those that the file names."""
    ids = {name: file.get(f"tokenizer.ggml.{name}_token_id", -1) for name in ("bos", "eos", "eot", "eom")}
    size = len(file.require("tokenizer.ggml.tokens", list))
    for name, number in ids.items():
        if number >= size:
            raise CheckpointError(file.path, f"{name}_token_id is {number}, there are {size} tokens")
    return {name: number for name, number in ids.items() if number >= 0}


def begins_with_bos(file: GgufFile) -> bool:
    """Where the file does not say, as llama.cpp has it."""
    usual = file.get("tokenizer.ggml.model", "") == "llama" or file.get("tokenizer.ggml.pre", "") in _WHOLE_WORDS_FIRST
    return bool(file.get("tokenizer.ggml.add_bos_token", usual))


def chat_template(file: GgufFile) -> str:
    """Of several, the one for a conversation. Empty: none."""
    return file.get("tokenizer.chat_template", "") or file.get("tokenizer.chat_template.default", "")


def definition(file: GgufFile, sorts: Sorts) -> dict[str, Any]:
    """A tokenizers JSON. Raises CheckpointError if something is missing, does not fit, or is of a kind not known."""
    model, pre = file.require("tokenizer.ggml.model", str), file.get("tokenizer.ggml.pre", "")
    if model == "gpt2" and pre in _PATTERNS:
        spec = _definition(sorts.usable, _stored_merges(file, sorts.usable), pre in _WHOLE_WORDS_FIRST)
        letters = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        steps = [*(_split(pattern) for pattern in _PATTERNS[pre]), letters]
        spec["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
        spec["normalizer"] = {"type": "NFC"} if pre in _COMPOSED else None
    elif model == "llama":
        spec = _definition(sorts.usable, _merges_by_score(file, sorts.usable), False)
        space = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
        prefix = [{"type": "Prepend", "prepend": SPACE}] if file.get("tokenizer.ggml.add_space_prefix", True) else []
        spec["normalizer"] = {"type": "Sequence", "normalizers": [*prefix, space]}
    else:
        known = ", ".join(["llama", *(f"gpt2/{name}" for name in _PATTERNS)])
        raise CheckpointError(file.path, f"tokenizer {model}/{pre or '-'}; supported: {known}")
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    spec["added_tokens"] = [{"id": number, "content": token, **flags} for token, number in sorts.blank.items()]
    return spec


def _split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _definition(vocabulary: dict[str, int], merges: list[tuple[str, str]], whole_words_first: bool) -> dict[str, Any]:
    model = {"type": "BPE", "vocab": vocabulary, "merges": merges, "ignore_merges": whole_words_first}
    return {"version": "1.0", "model": model | {"byte_fallback": "<0x00>" in vocabulary}}


def _stored_merges(file: GgufFile, usable: dict[str, int]) -> list[tuple[str, str]]:
    merges = []
    known = set(file.require("tokenizer.ggml.tokens", list))
    for merge in map(str, file.require("tokenizer.ggml.merges", list)):
        left, _, right = merge.partition(" ")
        if not {left, right, left + right} <= known:
            raise CheckpointError(file.path, f"merge of {left!r} and {right!r} is not in the vocabulary")
        if {left, right, left + right} <= usable.keys():
            merges.append((left, right))
    return merges


def _merges_by_score(file: GgufFile, usable: dict[str, int]) -> list[tuple[str, str]]:
    """SentencePiece's BPE joins the two neighbours whose token has the highest score: as merges, every way to make
    each token, best token first."""
    scores = file.require("tokenizer.ggml.scores", list)
    if len(scores) != len(file.require("tokenizer.ggml.tokens", list)):
        raise CheckpointError(file.path, f"{len(scores)} scores do not fit the tokens")
    spelled = {token: number for token, number in usable.items() if not BYTE_TOKEN.fullmatch(token)}
    by_score = sorted(spelled, key=lambda token: -scores[spelled[token]])
    return [
        (token[:cut], token[cut:])
        for token in by_score
        for cut in range(1, len(token))
        if token[:cut] in spelled and token[cut:] in spelled
    ]
