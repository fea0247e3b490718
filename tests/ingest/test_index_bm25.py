import pytest

from ingest.index_bm25 import (
    content_words,
    is_unspaced,
    language_of,
    post_terms,
    question_terms,
    search_vector,
)


def share(question, post, lang=""):
    return question_terms(question).share_in(frozenset(post_terms(post, lang).indices))


@pytest.mark.parametrize(
    ("question", "count"),
    [
        ("What happened at the harbour bridge?", 2),
        ("¿Qué pasó en el puente del puerto?", 2),
        ("Was ist mit der Hafenbrücke passiert?", 1),
        ("港口大桥发生了什么？", 2),
        ("橋で何が起きましたか", 1),
        ("ماذا حدث للجسر", 1),
        ("Hi, how are you?", 0),
        ("What's happening right now?", 0),
        ("你好", 0),
        ("", 0),
        ("https://example.org/bridge", 0),
    ],
)
def test_what_is_left_of_a_question_is_what_it_asks_about(question, count):
    assert len(question_terms(question).words) == count


@pytest.mark.parametrize(
    ("text", "lang"),
    [
        ("The bridge is closed and nobody knows why", "en"),
        ("El puente está cerrado y nadie sabe por qué", "es"),
        ("Die Brücke ist gesperrt und niemand weiß warum", "de"),
        ("Le pont est fermé et personne ne sait pourquoi", "fr"),
        ("Мост закрыт", "ru"),
        ("الجسر مغلق", "ar"),
        ("xyzzy", "en"),
        ("", "en"),
    ],
)
def test_the_language_is_told_by_its_small_words(text, lang):
    assert language_of(text) == lang


def test_the_share_counts_the_questions_words_that_the_post_holds():
    assert share("harbour bridge closed", "The bridges were closing", "en") == pytest.approx(2 / 3)
    assert share("harbour bridge", "a cake", "en") == 0
    assert share("what is it?", "what is it?", "en") == 0


def test_words_that_only_ask_weigh_less_and_count_for_nothing():
    question = question_terms("latest news bridge")
    assert len(question.words) == 1
    assert min(question.vector.values) < 1 == max(question.vector.values)


def test_a_post_in_a_language_nobody_stems_keeps_its_words():
    assert share("most zamknięty", "most zamknięty", "pl") == 1
    assert share("서울 지진", "서울 지진 발생", "ko") == 1


def test_numbers_are_kept_beside_a_script_without_spaces():
    assert share("A38 66", "A38公路66号出口关闭", "zh") == 1


def test_a_tag_says_its_words_too():
    assert share("harbour bridge", "#HarbourBridge", "en") == 1
    assert share("HarbourBridge", "#HarbourBridge", "en") == 1


def test_links_are_no_words():
    assert post_terms("https://t.co/bridge www.bridge.example", "en").indices == []


def test_every_term_of_a_mixed_text_has_one_weight():
    terms = post_terms("橋 bridge 橋 bridge 2 days", "ja")
    assert len(terms.indices) == len(set(terms.indices)) == len(terms.values) == 4


def test_how_an_answer_should_be_is_not_what_is_asked_about():
    asked = question_terms("Tell me everything known about the Quillfeather aqueduct, in many long sentences please.")
    said = frozenset(post_terms("The Quillfeather aqueduct is closed.", "en").indices)
    assert asked.share_in(said) == 1.0


def test_a_link_says_its_headline():
    headline = "https://news.example/2026/11/harbour-bridge-closed-after-crash.html?q=x-storm-flood-rain"
    assert share("harbour bridge crash", f"look {headline}", "en") == 1
    assert share("storm flood html", f"look {headline}", "en") == 0
    assert share("harbour bridge crash", "https://news.example/bridge_in_harbour+crash+live", "en") == 1
    assert share("maria videos", "https://video.example/users/maria/videos", "en") == 0
    assert share("r\u00edo crecido", "https://n.example/a/el-r%C3%ADo-crecido-en-la-ciudad", "es") == 1


@pytest.mark.parametrize(
    "link", ["http://[::1", "https://", "https://a/%ff%fe-%zz-b", "https://a/\ud800-x-y-z", "www.a"]
)
def test_a_broken_link_harms_nothing(link):
    assert share("bridge", f"bridge {link}", "en") == 1


def test_given_terms_take_the_place_of_the_questions_own():
    question = question_terms("harbour bridge")
    assert search_vector(question, ()) is question.vector
    given = search_vector(question, ((7, 0.5), (9, 0.25)))
    assert (given.indices, given.values) == ([7, 9], [0.5, 0.25])


def test_content_words_are_those_that_say_what_is_asked_as_written():
    assert content_words("What happened at the Harbour Bridge today? #HarbourBridge") == (
        "Harbour",
        "Bridge",
        "HarbourBridge",
    )
    assert content_words("\u00bfQu\u00e9 pas\u00f3 en M\u00e1laga?") == ("M\u00e1laga",)
    assert content_words("\u6e2f\u53e3 A38") == ("A38",)
    assert content_words("hello") == ()


def test_a_script_without_spaces_is_known():
    assert is_unspaced("\u6e2f\u53e3")
    assert not is_unspaced("harbour \uc11c\uc6b8")
