"""What a sentence claims: words, numbers, yes or no."""

import pytest

from services.terms import clauses, terms


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("6 pm", "18:00"),
        ("6:30 p.m.", "18:30"),
        ("3 am", "03:00"),
        ("12 am", "midnight"),
        ("noon", "12:00"),
        ("19時", "19:00"),
        ("18时30分", "18:30"),
        ("gegen 3 Uhr", "03:00 Uhr"),
        ("3,200 homes", "3200 homes"),
        ("1.200 Haushalte", "1200 Haushalte"),
        ("52.3", "52,3"),
        ("2\u20131", "2-1"),
        ("Fifty volunteers", "50 volunteers"),
        ("Freitag", "viernes"),
        ("\u0663", "3"),
        ("\uff15", "5"),
    ],
)
def test_numbers_and_times_have_one_spelling(left: str, right: str) -> None:
    assert terms(left).numbers == terms(right).numbers != frozenset()


@pytest.mark.parametrize(
    ("left", "right"), [("18:00", "20:00"), ("9", "19"), ("2-1", "3-1"), ("3,200", "3.2"), ("Monday", "Sunday")]
)
def test_other_numbers_stay_apart(left: str, right: str) -> None:
    assert terms(left).numbers.isdisjoint(terms(right).numbers)


def test_the_age_of_a_post_is_no_claim() -> None:
    assert terms("4 min ago, hace 5 minutos, vor 6 Minuten, 3 小时前").numbers == frozenset()


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("closes", "closed"),
        ("reopening", "reopened"),
        ("stations", "station"),
        ("eléctrica", "ELÉCTRICA"),
        ("الجسر", "جسر"),
    ],
)
def test_forms_of_a_word_meet(left: str, right: str) -> None:
    assert terms(left).words == terms(right).words != frozenset()


def test_scripts_without_spaces_are_compared_by_pairs() -> None:
    assert terms("地铁停运").words == {"地铁", "铁停", "停运"}
    assert terms("橋は閉鎖されています").words == {"橋", "閉鎖"}


@pytest.mark.parametrize(
    "text",
    [
        "It is not open",
        "It isn\u2019t open",
        "No trains",
        "kein Zug",
        "sin luz",
        "没有停运",
        "止まっていません",
        "ليس مغلقا",
    ],
)
def test_negation_is_seen(text: str) -> None:
    assert terms(text).negated


@pytest.mark.parametrize("text", ["It is open", "Nothern Line note", "不久恢复", "abierto"])
def test_and_only_negation(text: str) -> None:
    assert not terms(text).negated


def test_clauses_part_where_yes_and_no_can_differ() -> None:
    assert len(clauses("Closed today, no reopening before 18:00 and nobody knows more.")) == 3
