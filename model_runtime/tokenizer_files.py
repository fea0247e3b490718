"""What a checkpoint says about its tokenizer: in the header of a GGUF, or in the files of a Hugging Face folder."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_runtime import tokenizer_gguf
from model_runtime.gguf_file import CheckpointError, GgufFile
from model_runtime.spelling import BYTE_TOKEN, NOT_A_CHARACTER

_END_NAMES = frozenset(
    {"<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|return|>", "<|call|>", "</s>"}
)
_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_NEVER = -1e4  # a score far below all others: SentencePiece matches no byte's own token in a text


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """`spelling`: a tokenizers JSON without control tokens. `marks`: what the chat template alone can write, and its
    ids: control tokens and other tokens that were added to the vocabulary (<think>, ...). Ids in `silent` have no
    text. `names`: what the template may call them. `first`: the id that begins a sequence even where the template
    does not write it."""

    spelling: str
    marks: Mapping[str, int]
    silent: frozenset[int]
    names: Mapping[str, str]
    eos_ids: frozenset[int]
    chat_template: str
    first: int | None = None

    @classmethod
    def from_gguf(cls, file: GgufFile) -> "TokenizerFiles":
        """Raises CheckpointError if something is missing, does not fit, or is of a kind not known here."""
        tokens = file.require("tokenizer.ggml.tokens", list)
        sorts = tokenizer_gguf.sort_tokens(file)
        special = tokenizer_gguf.special_ids(file)
        return cls(
            spelling=json.dumps(tokenizer_gguf.definition(file, sorts)),
            marks=sorts.marks,
            silent=sorts.silent,
            names={f"{name}_token": tokens[number] for name, number in special.items()},
            eos_ids=_ends(file.path, sorts.marks, (number for name, number in special.items() if name != "bos")),
            chat_template=tokenizer_gguf.chat_template(file),
            first=special.get("bos") if tokenizer_gguf.begins_with_bos(file) else None,
        )

    @classmethod
    def from_folder(cls, folder: Path) -> "TokenizerFiles":
        """Reads tokenizer.json, tokenizer_config.json, special_tokens_map.json, chat_template.jinja and
        generation_config.json as transformers does. Raises CheckpointError."""
        path = folder / "tokenizer.json"
        if not path.exists():
            also = (folder / "tokenizer.model").exists()
            hint = (
                "; AutoTokenizer.from_pretrained(...).save_pretrained(...) makes it of tokenizer.model" if also else ""
            )
            raise CheckpointError(str(folder), f"there is no tokenizer.json{hint}")
        try:
            return cls._from_spec(folder, _read(path))
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise CheckpointError(str(path), f"not as tokenizers writes it: {error!r}") from error

    @classmethod
    def _from_spec(cls, folder: Path, spec: dict[str, Any]) -> "TokenizerFiles":
        settings = _read(folder / "tokenizer_config.json")
        names = _names(_read(folder / "special_tokens_map.json")) | _names(settings)
        vocabulary = _vocabulary(folder, spec["model"])
        added = [token for token in spec.get("added_tokens") or () if not BYTE_TOKEN.fullmatch(token["content"])]
        blank = {
            token["content"]: token["id"] for token in added if not token["special"] and token["content"].isspace()
        }
        marks = {token["content"]: token["id"] for token in added if token["content"] not in blank}
        named = {token: vocabulary[token] for token in names.values() if token in vocabulary}
        marks |= named
        silent = {token["id"] for token in added if token["special"]} | set(named.values())
        ends = _listed(_read(folder / "generation_config.json") or _read(folder / "config.json"))
        if names.get("eos_token") in marks:
            ends.append(marks[names["eos_token"]])
        return cls(
            spelling=json.dumps(_without(spec, marks, blank)),
            marks=marks,
            silent=frozenset(silent),
            names=names,
            eos_ids=_ends(str(folder), marks, ends),
            chat_template=_chat_template(folder, settings),
        )


def _ends(path: str, marks: Mapping[str, int], said: Iterable[int]) -> frozenset[int]:
    """What ends an answer: what the checkpoint says, and what is always an end by its name."""
    ends = {*said, *(number for token, number in marks.items() if token in _END_NAMES)}
    if not ends:
        raise CheckpointError(path, "no token ends an answer (eos_token_id)")
    return frozenset(ends)


def _read(path: Path) -> dict[str, Any]:
    """Empty if there is no such file. Raises CheckpointError if it is no JSON object."""
    try:
        read = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except ValueError as error:
        raise CheckpointError(str(path), f"no JSON: {error}") from error
    if not isinstance(read, dict):
        raise CheckpointError(str(path), "no JSON object")
    return read


def _names(settings: Mapping[str, Any]) -> dict[str, str]:
    """Tokens are written as text, or as an object that holds it."""
    given = {name: settings.get(name) for name in _NAMES}
    texts = {name: token.get("content") if isinstance(token, dict) else token for name, token in given.items()}
    return {name: token for name, token in texts.items() if isinstance(token, str)}


def _vocabulary(folder: Path, model: dict[str, Any]) -> dict[str, int]:
    if model["type"] == "BPE":
        return dict(model["vocab"])
    if model["type"] == "Unigram":
        return {token: number for number, (token, _) in enumerate(model["vocab"])}
    raise CheckpointError(str(folder / "tokenizer.json"), f"tokenizer {model['type']}; supported: BPE, Unigram")


def _without(spec: dict[str, Any], marks: dict[str, int], blank: dict[str, int]) -> dict[str, Any]:
    """The same tokenizer, unable to spell the marks. Runs of spaces that were added later stay: they are text."""
    model = dict(spec["model"])
    if model["type"] == "Unigram":
        names = (f"{NOT_A_CHARACTER}{number}" if token in marks else token for number, (token, _) in _pieces(model))
        scores = (_NEVER if BYTE_TOKEN.fullmatch(token) else score for _, (token, score) in _pieces(model))
        model["vocab"] = list(zip(names, scores, strict=True))
        blank = {token: number for token, number in blank.items() if number < len(model["vocab"])}
    else:
        model["vocab"] = {token: number for token, number in model["vocab"].items() if token not in marks} | blank
        pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
        model["merges"] = [
            [left, right] for left, right in pairs if marks.keys().isdisjoint({left, right, left + right})
        ]
        model |= {"unk_token": None, "dropout": None}
    kept = [token for token in spec.get("added_tokens") or () if token["content"] in blank]
    texts = {key: spec.get(key) for key in ("version", "normalizer", "pre_tokenizer")}
    return {**texts, "model": model, "added_tokens": kept}


def _pieces(model: dict[str, Any]) -> Iterable[tuple[int, tuple[str, float]]]:
    return enumerate(model["vocab"])


def _listed(settings: Mapping[str, Any]) -> list[int]:
    ends = settings.get("eos_token_id")
    return [ends] if isinstance(ends, int) else [end for end in ends or () if isinstance(end, int)]


def _chat_template(folder: Path, settings: Mapping[str, Any]) -> str:
    """The one file, or what the settings hold: a template, or named ones of which `default` is for a conversation."""
    path = folder / "chat_template.jinja"
    if path.exists():
        return path.read_text(encoding="utf-8")
    held = settings.get("chat_template") or ""
    if isinstance(held, str):
        return held
    named = {variant["name"]: str(variant["template"]) for variant in held}
    return named.get("default", "")
