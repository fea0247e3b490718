import random

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from ingest.bert import ATTENDED_TOGETHER, PackedBert, is_plain_bert
from ingest.embed import Embedder
from ingest.wording import worded

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
    clean = [worded(text).encode("utf-8", "replace").decode() for text in TEXTS]
    expected = model.encode(clean, normalize_embeddings=True, show_progress_bar=False)
    vectors = embedder.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), embedder.dim) == (7, 384)
    assert (vectors * expected).sum(axis=1).min() >= 0.99


@pytest.mark.parametrize("count", [1, 2, ATTENDED_TOGETHER, ATTENDED_TOGETHER + 1, 3 * ATTENDED_TOGETHER - 1])
def test_without_padding_the_numbers_are_those_of_the_model(minilm_path, count):
    """To float32's precision: any mistake in a mask, a place or a norm shows."""
    model = SentenceTransformer(str(minilm_path), device="cpu", local_files_only=True).eval()
    assert is_plain_bert(model)
    rng = random.Random(count)
    ids = sorted(([101, *rng.choices(range(1000, 30000), k=rng.randrange(40)), 102] for _ in range(count)), key=len)
    packed = PackedBert(model, torch.float32)
    with torch.inference_mode():
        vectors = packed(ids)
        for row, of_text in enumerate(ids):
            features = {"input_ids": torch.tensor([of_text]), "attention_mask": torch.ones(1, len(of_text), dtype=int)}
            expected = torch.nn.functional.normalize(model(features)["sentence_embedding"], dim=1)[0]
            assert torch.allclose(vectors[row], expected, atol=2e-5)


def test_a_model_of_another_kind_is_used_as_it_comes(minilm_path, tmp_path):
    """The same weights, pooled by the first token: PackedBert's vectors would differ, so it must not be taken."""
    for file in minilm_path.rglob("*"):
        if file.is_file():
            copy = tmp_path / file.relative_to(minilm_path)
            copy.parent.mkdir(exist_ok=True)
            copy.write_bytes(file.read_bytes())
    pooling = tmp_path / "1_Pooling/config.json"
    pooling.write_text('{"word_embedding_dimension": 384, "pooling_mode_cls_token": true}')
    model = SentenceTransformer(str(tmp_path), device="cpu", local_files_only=True)
    expected = model.encode([worded(TEXTS[0])], normalize_embeddings=True, show_progress_bar=False)
    assert (Embedder(tmp_path).embed(TEXTS[:1]) * expected).sum() >= 0.99


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
