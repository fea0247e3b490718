import asyncio
import threading

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from ingest.embed import INGEST_TURN, Embedder, EmbedQueue

TEXTS = [
    "The harbour bridge is closed after the storm.",
    "",
    "\U0001f62d\U0001f62d",
    "Der Sturm hat die Hafenbrücke beschädigt, Umleitung über Nordstraße. " * 30,
    "東京で大きな地震がありました",
    "lone \ud83d surrogate",
    "a",
]


@pytest.fixture(scope="module")
def embedder(minilm_path):
    return Embedder(minilm_path)


def test_the_vectors_are_those_of_sentence_transformers_in_float32(embedder, minilm_path):
    model = SentenceTransformer(str(minilm_path), device="cpu", local_files_only=True)
    clean = [text.encode("utf-8", "replace").decode() for text in TEXTS]
    expected = model.encode(clean, normalize_embeddings=True, show_progress_bar=False)
    vectors = embedder.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), embedder.dim) == (7, 384)
    assert (vectors * expected).sum(axis=1).min() >= 0.99


def test_rows_are_finite_units_in_float32(embedder):
    vectors = embedder.embed(TEXTS)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3)


def test_no_texts_make_no_rows(embedder):
    assert embedder.embed([]).shape == (0, 384)


def test_a_megabyte_is_cut_before_it_is_tokenized(embedder):
    long = "storm " * 200_000
    assert np.allclose(embedder.embed([long]), embedder.embed([long[:8192]]), atol=1e-2)


def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="groundswell fetch"):
        Embedder(tmp_path)


class Recorder:
    """Vectors that say which text they are for; holds its first call until released."""

    def __init__(self):
        self.calls = []
        self.release = threading.Event()
        self.started = threading.Event()

    def embed(self, texts):
        self.calls.append(list(texts))
        self.started.set()
        assert self.release.wait(10)
        return np.array([[float(text)] for text in texts], dtype=np.float32).reshape(len(texts), 1)


async def test_a_query_waits_for_one_small_turn_of_ingest_at_most():
    recorder = Recorder()
    queue = EmbedQueue(recorder)
    ingest = asyncio.create_task(queue.embed([str(i) for i in range(5 * INGEST_TURN)], urgent=False))
    await asyncio.to_thread(recorder.started.wait)
    more = asyncio.create_task(queue.embed(["1000"], urgent=False))
    query = asyncio.create_task(queue.embed(["2000"], urgent=True))
    await asyncio.sleep(0)
    recorder.release.set()
    assert (await query).tolist() == [[2000]]
    assert (await more).tolist() == [[1000]]
    assert (await ingest)[:, 0].tolist() == [float(i) for i in range(5 * INGEST_TURN)]
    assert len(recorder.calls[0]) == INGEST_TURN
    assert recorder.calls[1] == ["2000"]
    queue.close()


async def test_a_cancelled_wait_does_not_stop_the_others():
    recorder = Recorder()
    queue = EmbedQueue(recorder)
    running = asyncio.create_task(queue.embed(["1"], urgent=False))
    await asyncio.to_thread(recorder.started.wait)
    left, stays = (asyncio.create_task(queue.embed([text], urgent=True)) for text in "23")
    await asyncio.sleep(0)
    left.cancel()
    running.cancel()
    recorder.release.set()
    assert (await stays).tolist() == [[3]]
    assert (await queue.embed(["4"], urgent=False)).tolist() == [[4]]
    assert ["2"] not in recorder.calls
    queue.close()


async def test_a_turn_given_to_one_who_is_cancelled_in_that_moment_is_passed_on():
    recorder = Recorder()
    recorder.release.set()
    queue = EmbedQueue(recorder)
    first = asyncio.create_task(queue.embed(["1"], urgent=True))
    second = asyncio.create_task(queue.embed(["2"], urgent=True))
    third = asyncio.create_task(queue.embed(["3"], urgent=True))
    first.add_done_callback(lambda _: second.cancel())  # its turn has been set, it has not run yet
    assert (await third).tolist() == [[3]]
    assert (await first).tolist() == [[1]]
    with pytest.raises(asyncio.CancelledError):
        await second
    queue.close()


async def test_a_failing_model_fails_that_call_only():
    recorder = Recorder()
    recorder.release.set()
    queue = EmbedQueue(recorder)
    with pytest.raises(ValueError, match="not a number"):
        await queue.embed(["not a number"], urgent=True)
    assert (await queue.embed(["7"], urgent=True)).tolist() == [[7]]
    queue.close()


async def test_rows_come_back_in_the_order_of_the_texts(embedder):
    texts = [f"{'storm ' * (i % 7)}number {i}" for i in range(40)]
    queue = EmbedQueue(embedder)
    vectors = await queue.embed(texts, urgent=False)
    assert np.allclose((vectors * embedder.embed(texts)).sum(axis=1), 1, atol=1e-2)
    assert (await queue.embed([], urgent=False)).shape == (0, 384)
    queue.close()
