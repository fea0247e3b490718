"""The language of short posts, and that it says nothing when it is not sure."""

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.language import Languages

DATA = Path(__file__).parents[2] / "../shared/data/retrieval"


@pytest.fixture(scope="module")
def languages() -> Languages:
    return Languages()


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The harbour bridge is closed until further notice, take the tunnel instead", "en"),
        ("Cortan el puente del puerto por la tormenta, hay mucha cola", "es"),
        ("Die Hafenbrücke ist wegen des Sturms gesperrt, bitte den Tunnel nehmen", "de"),
        ("Le pont du port est fermé à cause de la tempête", "fr"),
        ("東京で大きな地震がありました", "ja"),
        ("港口大桥因为暴风雨已经关闭，请大家绕道走隧道", "zh"),
        ("تم إغلاق الجسر بسبب العاصفة القوية", "ar"),
        ("Мост закрыт из-за сильного шторма", "ru"),
        ("@ana @ben https://t.co/abc #BREAKING Cortan el puente del puerto por la tormenta", "es"),
        ("THE HARBOUR BRIDGE IS CLOSED UNTIL FURTHER NOTICE", "en"),
    ],
)
def test_posts(languages: Languages, text: str, language: str) -> None:
    assert languages.detect([text]) == [language]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\U0001f62d\U0001f62d\U0001f62d",
        "https://t.co/abc https://example.org/the-bridge-is-closed-for-the-day",
        "storm warning",
        "ok",
        "jajaja xD",
        "@ana @ben @chris @dora",
        "#storm #harbour #bridge #closed",
        "12:30 5-3 4x4 2026",
        "!!! ... ???",
        "\ud83d lone",
        "hmm hmm hmm",
    ],
)
def test_unsure_is_empty(languages: Languages, text: str) -> None:
    assert languages.detect([text]) == [""]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(max_size=60), max_size=3))
def test_any_text_has_an_answer(languages: Languages, texts: list[str]) -> None:
    found = languages.detect(texts)
    assert len(found) == len(texts) and all(language.islower() or not language for language in found)


def posts_of(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        if "text" in value and "lang" in value:
            yield value["text"], value["lang"]
        for inner in value.values():
            yield from posts_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from posts_of(inner)


def test_what_x_says_of_its_own_posts(languages: Languages) -> None:
    file = DATA / "x_api_v2_real/clef2021_es_dev_tweets.json.gz"
    if not file.is_file():
        pytest.skip("no shared data")
    posts = [
        (text, lang) for text, lang in posts_of(json.loads(gzip.decompress(file.read_bytes()))) if lang in ("es", "ca")
    ]
    counts = Counter(
        found == lang if found else None
        for (_, lang), found in zip(posts, languages.detect([text for text, _ in posts]), strict=True)
    )
    assert len(posts) > 1000
    assert counts[True] > 0.93 * len(posts) and counts[False] < 0.02 * len(posts)
