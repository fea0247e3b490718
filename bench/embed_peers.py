"""This project's embedder beside sentence-transformers, on the same tweets, in a process of its own.

A service that is measured afterwards must not share the cores with what a model leaves behind.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.figures import figure

ONE_AT_A_TIME = "sentence-transformers, one post at a time, float32"
BATCHES = "sentence-transformers, batches of 32, float32"


@dataclass(frozen=True)
class Peers:
    rates: dict[str, float]  # posts/s


def measure_peers(model: Path, texts: Sequence[str], quick: bool) -> Peers:
    some = list(texts[: 512 if quick else 4096])
    command = [sys.executable, "-m", "bench.embed_peers", str(model)]
    done = subprocess.run(command, input=json.dumps(some), capture_output=True, text=True, check=True)
    measured = json.loads(done.stdout)
    cosine, ours = measured.pop("cosine"), measured.pop("ours")
    for peer, theirs in measured.items():
        about = {"peer": peer, "theirs": theirs, "cosine_min": round(cosine, 4)}
        figure("ingest.embed_posts_per_s", ours, "posts/s", posts=len(some), **about, runs=1, quick=quick)
    return Peers(measured)


def main() -> None:
    from ingest.embed import Embedder
    from ingest.wording import worded

    path, texts = Path(sys.argv[1]), json.load(sys.stdin)
    rates, expected = as_it_comes(path, [worded(text) for text in texts])
    embedder = Embedder(path)  # takes half of the threads: a service has other work for the other half
    embedder.embed(texts[:32])
    vectors: list[np.ndarray] = []
    ours_s = seconds(lambda: vectors.extend(embedder.embed(texts[i : i + 256]) for i in range(0, len(texts), 256)))
    cosine = float((np.concatenate(vectors) * expected).sum(axis=1).min())
    print(json.dumps({**rates, "ours": len(texts) / ours_s, "cosine": cosine}))


def as_it_comes(path: Path, texts: Sequence[str]) -> tuple[dict[str, float], np.ndarray]:
    """Posts/s of both ways, and the unit vectors."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(path), device="cpu", local_files_only=True)
    model.encode(texts[:32], show_progress_bar=False)
    few = texts[: len(texts) // 8]
    vectors: list[np.ndarray] = []
    one_s = seconds(lambda: [model.encode(text, show_progress_bar=False) for text in few])
    batches_s = seconds(lambda: vectors.append(model.encode(texts, normalize_embeddings=True, show_progress_bar=False)))
    return {ONE_AT_A_TIME: len(few) / one_s, BATCHES: len(texts) / batches_s}, vectors[0]


def seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
