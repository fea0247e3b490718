"""Texts -> unit vectors, with a sentence-transformers model on this machine."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from transformers.utils import logging as transformers_logging

from ingest.bert import PackedBert, is_plain_bert
from ingest.wording import worded

BATCH = 64  # texts of one forward pass
MAX_CHARS = 8192  # more never fits a model's window, and tokenizing it would hold up everyone
MIN_COSINE = 0.99  # a faster way must give the same vectors to this
PROBES = (
    "The harbour bridge is closed.",
    "Tormenta en la costa, sin luz desde las 9",
    "\u6771\u4eac\u3067\u5730\u9707",
    "",
)

Forward = Callable[[list[list[int]]], torch.Tensor]  # token ids, the shortest text first -> [n, dim] unit rows


class Embedder:
    """A sentence-transformers model from a local folder. Never touches the network. Blocking, one caller at a time.

    Posts and questions are worded for it alike (ingest/wording.py). Runs in bfloat16 where the CPU computes in it, and
    without padding if the model is a BERT, as long as the vectors stay the same (cosine >= 0.99 on a few probes).
    """

    def __init__(self, path: Path) -> None:
        if not (path / "config.json").is_file():
            raise FileNotFoundError(f"{path} holds no embedding model: run `groundswell fetch`")
        # A team of OpenMP threads that shares its cores with other processes spins: 2 of 2 cores were 5 times slower.
        torch.set_num_threads(min(torch.get_num_threads(), max(1, (os.cpu_count() or 1) // 2)))
        model = _load(path, torch.float32)
        self._tokenizer = model.tokenizer.backend_tokenizer
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(model.max_seq_length)
        self._forward: Forward = _Padded(model)
        with torch.inference_mode():
            self.dim = int(self._forward([self._tokenizer.encode("").ids]).shape[1])
        exact = self.embed(PROBES)
        for faster in _faster(path, model):
            slower, self._forward = self._forward, faster
            if (exact * self.embed(PROBES)).sum(axis=1).min() >= MIN_COSINE:
                break
            self._forward = slower

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """[n, dim] float32 unit rows, always finite; an empty text has a vector too. Long texts are cut."""
        ids = [e.ids for e in self._tokenizer.encode_batch([_clean(worded(text)) for text in texts])]
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))  # like lengths together: little padding
        vectors = np.empty((len(ids), self.dim), dtype=np.float32)
        with torch.inference_mode():
            for start in range(0, len(order), BATCH):
                rows = order[start : start + BATCH]
                vectors[rows] = self._forward([ids[i] for i in rows]).numpy()
        return vectors


class _Padded:
    """The model as it comes."""

    def __init__(self, model: SentenceTransformer) -> None:
        self._model = model

    def __call__(self, ids: list[list[int]]) -> torch.Tensor:
        tokens = torch.full((len(ids), len(ids[-1])), self._model.tokenizer.pad_token_id, dtype=torch.long)
        mask = torch.zeros_like(tokens)
        for row, row_ids in enumerate(ids):
            tokens[row, : len(row_ids)] = torch.tensor(row_ids)
            mask[row, : len(row_ids)] = 1
        vectors = self._model({"input_ids": tokens, "attention_mask": mask})["sentence_embedding"].float()
        return torch.nn.functional.normalize(vectors, dim=1)


def _faster(path: Path, model: SentenceTransformer) -> Iterator[Forward]:
    """The fastest first; each is loaded only when it is asked for."""
    has_bfloat16 = torch.cpu._is_avx512_bf16_supported()
    if is_plain_bert(model):
        yield PackedBert(model, torch.bfloat16 if has_bfloat16 else torch.float32)
    if has_bfloat16:
        yield _Padded(_load(path, torch.bfloat16))


def _load(path: Path, dtype: torch.dtype) -> SentenceTransformer:
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    return SentenceTransformer(str(path), device="cpu", local_files_only=True, model_kwargs={"dtype": dtype}).eval()


def _clean(text: str) -> str:
    """The tokenizer refuses lone surrogates."""
    return text[:MAX_CHARS].encode("utf-8", "replace").decode()
