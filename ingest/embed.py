"""Texts -> unit vectors, with a sentence-transformers model on this machine. Queries go before ingest."""

import asyncio
import heapq
import itertools
import os
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from transformers.utils import logging as transformers_logging

BATCH = 64  # texts of one forward pass: 808 posts/s on one core, 521 at 16
INGEST_TURN = 16  # texts of ingest between two looks for a query: about 30 ms on one core
MAX_CHARS = 8192  # more never fits a model's window, and tokenizing it would hold up everyone
MIN_COSINE = 0.99  # bfloat16 must give the same vectors to this
PROBES = (
    "The harbour bridge is closed.",
    "Tormenta en la costa, sin luz desde las 9",
    "\u6771\u4eac\u3067\u5730\u9707",
    "",
)


class Vectors(Protocol):
    """Texts -> [n, dim] float32 unit rows; blocking."""

    def embed(self, texts: Sequence[str]) -> np.ndarray: ...


class Embedder:
    """A sentence-transformers model from a local folder. Never touches the network. Blocking, one caller at a time.

    Runs in bfloat16 where the CPU computes in it and the vectors stay the same (cosine >= 0.99 on a few probes).
    """

    def __init__(self, path: Path) -> None:
        if not (path / "config.json").is_file():
            raise FileNotFoundError(f"{path} holds no embedding model: run `groundswell fetch`")
        # A team of OpenMP threads that shares its cores with other processes spins: 2 of 2 cores were 5 times slower.
        torch.set_num_threads(min(torch.get_num_threads(), max(1, (os.cpu_count() or 1) // 2)))
        self._model = _load(path, torch.float32)
        self._tokenizer = self._model.tokenizer.backend_tokenizer
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self._model.max_seq_length)
        self.dim = int(self._forward([self._tokenizer.encode("").ids]).shape[1])
        if torch.cpu._is_avx512_bf16_supported():
            self._use_bfloat16(path)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """[n, dim] float32 unit rows, always finite; an empty text has a vector too. Long texts are cut."""
        ids = [e.ids for e in self._tokenizer.encode_batch([_clean(text) for text in texts])]
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))  # like lengths together: little padding
        vectors = np.empty((len(ids), self.dim), dtype=np.float32)
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            vectors[rows] = self._forward([ids[i] for i in rows])
        return vectors

    def _forward(self, ids: list[list[int]]) -> np.ndarray:
        """Sorted by length, so the last is the longest."""
        tokens = torch.full((len(ids), len(ids[-1])), self._model.tokenizer.pad_token_id, dtype=torch.long)
        mask = torch.zeros_like(tokens)
        for row, row_ids in enumerate(ids):
            tokens[row, : len(row_ids)] = torch.tensor(row_ids)
            mask[row, : len(row_ids)] = 1
        with torch.inference_mode():
            vectors = self._model({"input_ids": tokens, "attention_mask": mask})["sentence_embedding"].float()
            unit: np.ndarray = torch.nn.functional.normalize(vectors, dim=1).numpy()
        return unit

    def _use_bfloat16(self, path: Path) -> None:
        exact, exact_model = self.embed(PROBES), self._model
        self._model = _load(path, torch.bfloat16)
        if (exact * self.embed(PROBES)).sum(axis=1).min() < MIN_COSINE:
            self._model = exact_model


class EmbedQueue:
    """The one way to an embedder from an event loop: one worker thread, queries first, ingest in small turns."""

    def __init__(self, embedder: Vectors) -> None:
        self._embedder = embedder
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embed")
        self._waiting: list[tuple[bool, int, asyncio.Future[None]]] = []  # heap: urgent first, then by arrival
        self._arrivals = itertools.count()
        self._busy = False

    async def embed(self, texts: Sequence[str], *, urgent: bool) -> np.ndarray:
        """[n, dim] float32 unit rows. `urgent` is for what a person waits for; it waits for one turn at most."""
        by_length = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        size = BATCH if urgent else INGEST_TURN
        turns = [by_length[i : i + size] for i in range(0, len(by_length), size)] or [[]]
        parts = []
        for rows in turns:
            async with self._turn(urgent):
                call = asyncio.get_running_loop().run_in_executor(
                    self._thread, self._embedder.embed, [texts[i] for i in rows]
                )
                parts.append(await call)
        vectors = np.empty_like(np.concatenate(parts))
        vectors[by_length] = np.concatenate(parts)
        return vectors

    def close(self) -> None:
        """Waits for the turn that runs; later calls raise RuntimeError."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    @asynccontextmanager
    async def _turn(self, urgent: bool) -> AsyncIterator[None]:
        if self._busy:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiting, (not urgent, next(self._arrivals), turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._pass_on()  # the turn came in the same moment as the cancellation
                raise
        self._busy = True
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        """Gives the turn to the first who still waits; `_busy` stays set on the way, so that nobody slips in."""
        while self._waiting:
            turn = heapq.heappop(self._waiting)[2]
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False


def _load(path: Path, dtype: torch.dtype) -> SentenceTransformer:
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    return SentenceTransformer(str(path), device="cpu", local_files_only=True, model_kwargs={"dtype": dtype}).eval()


def _clean(text: str) -> str:
    """The tokenizer refuses lone surrogates."""
    return text[:MAX_CHARS].encode("utf-8", "replace").decode()
