from dataclasses import replace

import numpy as np
import pytest

from ingest.feedback import MOST_WORDS, POSTS, SHARE, TERMS, expanded_terms, is_short
from ingest.index_bm25 import post_terms, question_terms
from tests.ingest.made import found, vector

VECTOR = np.array(vector("question"))
NAMES = [f"{letter}{letter}o" for letter in "abcdefghijklmnopqrstuvwxyz"]


def match(name, text, *, bm25=1.0, of="question"):
    return replace(found(name, text), why={"bm25": bm25, "cosine": 0.0, "words": 1.0}, vector=vector(of))


def quake(names):
    """Posts of one subject, each in words of its own."""
    return [match(f"q{name}", f"Tromso earthquake: Fjellheim tower swayed, says {name}") for name in names]


def fish(names):
    return [match(f"f{name}", f"Tromso fish market, {name} was there", bm25=0.5, of="other") for name in names]


def weights(question, matches):
    return dict(expanded_terms(question_terms(question), matches, VECTOR))


def terms(text):
    return set(post_terms(text, "en").indices)


def test_what_the_best_say_and_the_others_do_not_is_added():
    new = weights("Tromso earthquake", [*quake(NAMES[:POSTS]), *fish(NAMES)])
    assert terms("Fjellheim tower swayed") <= new.keys()
    assert not terms("fish market") & new.keys()
    assert terms("Tromso earthquake") <= new.keys()


def test_what_all_that_was_found_say_weighs_less():
    best = [replace(match, text=f"{match.text} (Norway)") for match in quake(NAMES[:POSTS])]
    new = weights("Tromso earthquake", [*best, *(replace(match, text=f"{match.text} Norway") for match in fish(NAMES))])
    (norway,), tower = terms("Norway"), terms("Fjellheim")
    assert new.get(norway, 0.0) < min(new[term] for term in tower) / 2


def test_the_question_keeps_its_part_of_the_weight():
    question = question_terms("Tromso earthquake")
    new = weights("Tromso earthquake", [*quake(NAMES[:POSTS]), *fish(NAMES)])
    assert sum(new.values()) == pytest.approx(1.0)
    own = set(question.vector.indices)
    assert sum(weight for term, weight in new.items() if term not in own) <= SHARE + 1e-9
    assert len(new.keys() - own) <= TERMS


def test_meaning_decides_with_words_who_is_among_the_best():
    near = [match(f"n{name}", f"Tromso: the ground shook, {name} writes") for name in NAMES[:POSTS]]
    far = [match(f"a{name}", f"Tromso football results, {name} writes", of="other") for name in NAMES[:POSTS]]
    new = weights("Tromso", [*far, *near])
    assert terms("ground shook") <= new.keys()
    assert not terms("football results") & new.keys()


def test_a_text_counts_once_however_often_it_was_posted():
    spam = [match(f"s{i}", "Tromso earthquake? Buy Glimmerol pills", bm25=2.0) for i in range(40)]
    assert weights("Tromso earthquake", spam) == {}
    new = weights("Tromso earthquake", [*spam, *quake(NAMES), *fish(NAMES)])
    tower, pills = (
        min(new.get(term, 0.0) for term in terms(text)) for text in ("Fjellheim tower swayed", "Glimmerol pills")
    )
    assert tower > pills


def test_too_few_posts_teach_nothing():
    assert weights("Tromso earthquake", quake(NAMES[:POSTS])) == {}
    assert weights("Tromso earthquake", []) == {}


@pytest.mark.parametrize(("question", "short"), [("Tromso earthquake", True), ("hello", False), ("", False)])
def test_a_question_with_words_of_its_own_has_something_to_gain(question, short):
    assert is_short(question_terms(question)) is short


def test_a_long_question_says_enough():
    words = " ".join(NAMES)
    assert is_short(question_terms(" ".join(NAMES[:MOST_WORDS])))
    assert not is_short(question_terms(words))
