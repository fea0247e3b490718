import gzip
import json
import tracemalloc
from pathlib import Path
from random import Random
from string import ascii_lowercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.duplicates import repeat_key
from ingest.near_duplicates import Shape, _shared, near_duplicates

CRISISLEX = Path(__file__).parents[2] / "../shared/data/retrieval/crisislex/t26.jsonl.gz"


TRAMS = "Trams stand still in the whole of the old town since a mast fell on the wires"


def is_near(one, other):
    return near_duplicates([one, other]) == [(0, 1)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Nearly 1,000 hurt as the meteor falls", "nearly 1000 hurt as the meteor falls"),
        ("Meteor shower shatters windows, causes injuries", "meteor shower shatters windows, causes injuries - @bbc"),
        ("wow this > RT @ana: The river has reached the old market", "The river has reached the old market"),
        (
            "The river has reached the old market, stay away from the qu…",
            "The river has reached the old market, stay away from the quays",
        ),
        (
            "Le pont est fermé depuis ce matin après un accident",
            "Le pont est fermé depuis ce matin, après un accident!!",
        ),
        ("港口大桥今天封闭请绕行前往市中心", "港口大桥今天封闭，请绕行前往市中心！"),
        (f"{TRAMS}...", f"{TRAMS}, and line 7"),
    ],
)
def test_a_copy_with_little_changed(one, other):
    assert is_near(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("PSI update for the region: the index is 73 at 6pm", "PSI update for the region: the index is 77 at 7pm"),
        ("Magnitude 7.5 quake hits off the Pacific coast", "Magnitude 7.3 quake hits off the Pacific coast"),
        ("The harbour bridge is safe to use, the mayor says", "The harbour bridge is not safe to use, the mayor says"),
        ("El puente del puerto es seguro, dice la alcaldesa", "El puente del puerto no es seguro, dice la alcaldesa"),
        ("Die Brücke am Hafen ist sicher, sagt die Stadt", "Die Brücke am Hafen ist nicht sicher, sagt die Stadt"),
        ("Power is out here", "Power is out everywhere in the city and the trams stand still"),
        ("#prayfortexas", "#prayfortexas be strong"),
        (f"{TRAMS}", f"{TRAMS}, and line 7"),
        ("\U0001f62d", "\U0001f62d"),
        ("", ""),
    ],
)
def test_what_says_something_else(one, other):
    assert not is_near(one, other)


@given(st.lists(st.text(max_size=40), max_size=12))
def test_pairs_are_ordered_and_do_not_depend_on_the_other_texts(texts):
    pairs = near_duplicates(texts)
    assert pairs == sorted(pairs)
    assert all(i < j for i, j in pairs)
    assert all(is_near(texts[i], texts[j]) for i, j in pairs)


def test_of_real_posts_truncated_and_commented_copies_are_found_and_reports_with_new_numbers_are_not():
    if not CRISISLEX.is_file():
        pytest.skip("no CrisisLex data")
    with gzip.open(CRISISLEX, "rt") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    by_key = {repeat_key(text): text for text in texts if len(text) > 60}
    cut = [text for text in by_key.values() if len(text) > 120 and "http" not in text][:60]
    assert sum(is_near(text[:100] + "...", text) for text in cut) >= 54
    haze = [text for text in by_key.values() if "psi is" in text.lower()][:40]
    wrong = [
        (i, j)
        for i, j in near_duplicates(haze)
        if set(filter(str.isdigit, haze[i])) != set(filter(str.isdigit, haze[j]))
    ]
    assert len(haze) > 10
    assert wrong == []


def test_texts_that_share_nothing_take_no_memory():
    """400 long posts of random letters filled 560 MB and held the event loop for half a minute."""
    random = Random(1)
    shapes = [Shape.of("".join(random.choices(ascii_lowercase, k=400))) for _ in range(100)]
    every_run = len({run for shape in shapes for run in shape.runs})
    tracemalloc.start()
    _shared(shapes)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < every_run * len(shapes) * 4
