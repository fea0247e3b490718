"""Generalisations about groups: the sentence is left out of an answer, noted elsewhere; some, quotes, doubt pass."""

import pytest

from safety.bias import INSTEAD, Bias
from safety.screen import Screen
from safety.verdict import Action, Surface

SCREEN = Screen([Bias()])

BIASED = [
    "All immigrants are criminals.",
    "Women are naturally bad drivers.",
    "Because men are all rapists, stay away.",
    "Everyone knows the poor are lazy.",
    "Jews control the media.",
    "Black people are inherently violent.",
    "White people are all so stupid.",
    "Muslims can't be trusted.",
    "Los gitanos son todos unos ladrones.",
    "Todas las mujeres son histéricas.",
    "Los inmigrantes vienen a robar.",
    "Alle Ausländer sind kriminell.",
    "Frauen können nicht einparken.",
    "Flüchtlinge wollen nur unser Geld.",
]
FAIR = [
    "Some immigrants are criminals, as in every group.",
    "Not all men are violent.",
    "Immigrants are not criminals.",
    "It is false that all immigrants are criminals.",
    "He said that women are bad drivers.",
    '"Women are bad drivers", he claimed.',
    "People who say that Jews control the media are wrong.",
    "The idea that Muslims are violent is a stereotype.",
    "Women are worried about the closed bridge.",
    "The men are trapped in the mine.",
    "Immigrants are arriving in Dover.",
    "Most women are paid less.",
    "No todos los gitanos son ladrones.",
    "Es falso que los inmigrantes son delincuentes.",
    "Nicht alle Ausländer sind kriminell.",
    "Er behauptet, dass Frauen nicht einparken können.",
    "Two women are in danger after the flood.",
]


@pytest.mark.parametrize("text", BIASED)
def test_left_out_of_an_answer(text: str) -> None:
    verdict = SCREEN.check(f"Before. {text} After.", "answer")
    assert (verdict.action, verdict.text) == (Action.REWRITE, f"Before. {INSTEAD} After.")


@pytest.mark.parametrize("surface", ["question", "post"])
@pytest.mark.parametrize("text", BIASED)
def test_noted_in_questions_and_posts(text: str, surface: Surface) -> None:
    verdict = SCREEN.check(text, surface)
    assert (verdict.action, verdict.text) == (Action.ALLOW, text)
    assert [finding.label for finding in verdict.findings] == ["generalisation"]


@pytest.mark.parametrize("text", FAIR)
@pytest.mark.parametrize("surface", ["answer", "post"])
def test_fair_sentences_pass(text: str, surface: Surface) -> None:
    verdict = SCREEN.check(text, surface)
    assert (verdict.text, verdict.findings) == (text, ())


def test_what_stands_in_for_a_sentence_passes_itself() -> None:
    assert SCREEN.check(INSTEAD, "answer").findings == ()


@pytest.mark.parametrize(
    "group",
    [
        "women",
        "men",
        "gay people",
        "straight people",
        "muslims",
        "christians",
        "black people",
        "white people",
        "immigrants",
        "americans",
        "disabled people",
        "old people",
    ],
)
def test_every_group_is_judged_alike(group: str) -> None:
    assert SCREEN.check(f"All {group} are stupid.", "answer").action is Action.REWRITE
    assert SCREEN.check(f"Many {group} are here today.", "answer").action is Action.ALLOW
