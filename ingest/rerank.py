"""A cross-encoder that reads the question and each post together: slower and better than either score of the index.

Optional, from a local folder, never from the network. It has a fixed time: when it is late, the first order stands, and
while a late one still works the next question does not wait for it.
"""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import CrossEncoder

from ingest.post import Match

BUDGET_S = 0.15
BATCH = 8  # between two looks at the clock
MOST = 32  # of the best; the others are left out, as their scores do not compare
MAX_TOKENS = 256


class Reranker:
    """Raises FileNotFoundError when the folder holds no model, ValueError when that does not give one score a pair."""

    def __init__(self, path: Path, budget_s: float = BUDGET_S) -> None:
        if not (path / "config.json").is_file():
            raise FileNotFoundError(f"{path} holds no cross-encoder")
        self._model = CrossEncoder(str(path), device="cpu", local_files_only=True, max_length=MAX_TOKENS)
        if self._model.num_labels != 1:
            raise ValueError(f"{path} gives {self._model.num_labels} scores a pair: a reranker has one")
        self._budget_s = budget_s
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rerank")
        self._is_busy = False
        self.late = 0  # questions that kept their first order

    async def rerank(self, question: str, matches: Sequence[Match]) -> list[Match]:
        """Best first. Its score (0 to 1, why["rerank"]) takes the place of relevance; recency still counts."""
        best = matches[:MOST]
        scores = await self._scores(question, [match.text for match in best]) if best else None
        if scores is None:
            return list(matches)
        ranked = [
            replace(match, score=score * match.why["recency"], why={**match.why, "rerank": score})
            for match, score in zip(best, map(float, scores), strict=True)
        ]
        return sorted(ranked, key=lambda match: (-match.score, -match.sort_ms, match.post_id, match.number))

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    async def _scores(self, question: str, texts: list[str]) -> np.ndarray | None:
        """None when it is late, or still busy with a question that was."""
        scores = None
        if not self._is_busy:
            self._is_busy = True
            until = time.monotonic() + self._budget_s
            work = asyncio.get_running_loop().run_in_executor(self._thread, self._score, question, texts, until)
            work.add_done_callback(self._free)
            done, _ = await asyncio.wait({work}, timeout=self._budget_s)
            scores = work.result() if done else None
        self.late += scores is None
        return scores

    def _free(self, _: "asyncio.Future[np.ndarray | None]") -> None:
        self._is_busy = False

    def _score(self, question: str, texts: list[str], until: float) -> np.ndarray | None:
        """[n] from 0 to 1; None as soon as it is too late to matter. Long texts last, so that batches are even."""
        scores = np.empty(len(texts))
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for start in range(0, len(order), BATCH):
            if time.monotonic() >= until:
                return None
            rows = order[start : start + BATCH]
            pairs = [(question, texts[i].encode("utf-8", "replace").decode()) for i in rows]
            scores[rows] = self._model.predict(pairs, activation_fn=torch.nn.Sigmoid(), show_progress_bar=False)
        return scores
