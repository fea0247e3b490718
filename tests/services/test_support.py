"""Which posts support a sentence, on a set judged by hand (attribution.jsonl) with the default embedder.

A row: the sentence, the posts (and their authors' handles), the numbers that are right, and those that are neither
right nor wrong ("also"). The thresholds were chosen on this set. On 148 written rows, half of them hard negatives
(another number, the opposite, another name, made up, partly true, too general, a greeting): precision 0.99, recall
0.93. On 78 sentences that SmolLM2-135M wrote (kind "model"), half of them picked because they had fooled an earlier
version: precision 0.73, recall 0.79; of all its sentences that get a marker, nine in ten deserve it.
"""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingest.embed import Embedder
from services.support import Evidence, Support, is_claim
from tests import fakes

ROWS: list[dict[str, Any]] = [
    json.loads(line) for line in (Path(__file__).parent / "attribution.jsonl").read_text("utf-8").splitlines()
]


@pytest.fixture(scope="module")
def vectors(minilm_path: Path) -> dict[str, np.ndarray]:
    texts = sorted({text for row in ROWS for text in [row["sentence"], *row["posts"]]})
    return dict(zip(texts, Embedder(minilm_path).embed(texts), strict=True))


async def found(row: dict[str, Any], vectors: dict[str, np.ndarray]) -> list[int]:
    async def embed(texts: Sequence[str]) -> np.ndarray:
        return np.stack([vectors[text] for text in texts])

    handles = row.get("handles", [""] * len(row["posts"]))
    support = Support([Evidence(*post) for post in zip(row["posts"], handles, strict=True)], embed)
    return [place + 1 for place in await support.of(row["sentence"])][:2]


@pytest.mark.parametrize(
    ("by_model", "min_precision", "min_recall"), [(False, 0.96, 0.9), (True, 0.65, 0.7)], ids=["written", "model"]
)
async def test_precision_and_recall_on_the_judged_set(
    vectors: dict[str, np.ndarray], by_model: bool, min_precision: float, min_recall: float
) -> None:
    right = wrong = missed = 0
    for row in ROWS:
        if (row["kind"] == "model") == by_model:
            got = set(await found(row, vectors))
            right += len(got & set(row["right"]))
            wrong += len(got - set(row["right"]) - set(row.get("also", ())))
            missed += len(set(row["right"]) - got)
    assert right / (right + wrong) >= min_precision
    assert right / (right + missed) >= min_recall


@pytest.mark.parametrize("kind", ["number", "negation", "general", "greeting", "mixed"])
async def test_hard_negatives_stay_unmarked(vectors: dict[str, np.ndarray], kind: str) -> None:
    rows = [row for row in ROWS if row["kind"] == kind and not row["right"]]
    assert len(rows) >= 2
    assert [row["sentence"] for row in rows if set(await found(row, vectors)) - set(row.get("also", ()))] == []


async def test_the_judged_set_is_large_and_mixed() -> None:
    kinds = Counter(row["kind"] for row in ROWS)
    assert len(ROWS) >= 60
    assert sum(not row["right"] for row in ROWS) >= 60
    assert min(kinds[kind] for kind in ("copy", "paraphrase", "number", "negation", "invented", "model")) >= 10


async def test_who_is_quoted_must_have_said_it() -> None:
    posts = [Evidence("The bridge is closed.", "city.desk"), Evidence("The tunnel is open.", "ana")]

    async def embed(texts: Sequence[str]) -> np.ndarray:
        return np.ones((len(texts), 1))

    support = Support(posts, embed)
    assert await support.of("@city.desk: The bridge is closed.") == [0]
    assert await support.of("@Ana: The bridge is closed.") == []
    assert await support.of("@stranger: The bridge is closed.") == [0]


async def test_a_sentence_without_shared_words_is_never_embedded() -> None:
    async def embed(texts: Sequence[str]) -> np.ndarray:
        raise AssertionError(texts)

    support = Support([Evidence("The harbour bridge is closed.")], embed)
    assert await support.of("Bananas are rich in potassium and vitamins.") == []


async def test_a_post_that_the_model_named_needs_a_little_less() -> None:
    texts = ["Ferry line 3 is late because of thick fog on the river."]

    async def embed(wanted: Sequence[str]) -> np.ndarray:
        return np.asarray([[1.0, 0.0] if text in texts else [0.6, 0.8] for text in wanted])

    support = Support([Evidence(texts[0])], embed)
    sentence = "The ferry is delayed by fog on the river."
    assert await support.of(sentence) == []
    assert await support.of(sentence, named=[0]) == [0]
    assert await support.of("The tram is delayed by fog in town.", named=[0]) == []


async def test_vectors_that_came_with_the_posts_are_used() -> None:
    asked: list[str] = []

    async def embed(texts: Sequence[str]) -> np.ndarray:
        asked.extend(texts)
        return fakes.embed(texts)

    text = "The harbour bridge is closed."
    vector = tuple(fakes.embed([text])[0].tolist())
    assert await Support([Evidence(text, vector=vector)], embed).of(text) == [0]
    assert asked == [text]
    assert await Support([Evidence(text)], embed).of(text) == [0]
    assert asked == [text, text, text]


@pytest.mark.parametrize(
    "sentence",
    [
        "Hello! I can help you with the harbour bridge today.",
        "Here is what people are posting about the harbour bridge:",
        "## Harbour bridge closed today",
        "Is the harbour bridge closed today?",
        "I do not have recent posts about the harbour bridge.",
        "Let me know if you want more about the harbour bridge.",
        "It is closed.",
        "以下是关于大桥的最新消息。",
        "",
    ],
)
def test_what_claims_nothing_is_not_counted(sentence: str) -> None:
    assert not is_claim(sentence)


@pytest.mark.parametrize(
    "sentence", ["The harbour bridge was sold to a private investor.", "市政府宣布明天学校全部停课。"]
)
def test_what_claims_something_is_counted(sentence: str) -> None:
    assert is_claim(sentence)
