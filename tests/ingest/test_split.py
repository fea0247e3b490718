import regex
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from ingest.split import split

WINDOW = 256


def test_a_post_of_usual_length_stays_whole():
    text = "The harbour bridge is closed until Friday. " * 6
    assert split(text) == [text.strip()]


def test_blank_texts_have_no_pieces():
    assert split("") == []
    assert split(" \n\t ") == []


def test_long_texts_are_cut_after_a_sentence():
    sentence = "The bridge is closed until Friday evening, says the harbour authority."
    pieces = split(" ".join([sentence] * 40))
    assert len(pieces) > 1
    assert all(piece.endswith("authority.") for piece in pieces)


def test_without_sentences_the_cut_is_at_a_space():
    pieces = split(" ".join(["harbour"] * 400))
    assert len(pieces) > 1
    assert {word for piece in pieces for word in piece.split()} == {"harbour"}


def test_japanese_is_cut_after_its_own_full_stop():
    pieces = split("橋は金曜日まで閉鎖されています。" * 40)
    assert len(pieces) > 1
    assert all(piece.endswith("。") for piece in pieces)


def test_a_family_of_emoji_is_never_cut():
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
    for piece in split(family * 200):
        assert set(regex.findall(r"\X", piece)) == {family}


def test_a_single_cluster_larger_than_the_window_stays_whole():
    heap = "e" + "\u0301" * 1000
    assert split(f"{heap} then words") == [heap, "then words"]


@given(st.text(max_size=1500))
def test_nothing_but_spaces_is_lost_and_no_cluster_is_cut(text):
    pieces = split(text)
    assert [c for piece in pieces for c in piece if not c.isspace()] == [c for c in text if not c.isspace()]
    whole = regex.findall(r"\X", text)
    assert all(cluster.strip() in {w.strip() for w in whole} for p in pieces for cluster in regex.findall(r"\X", p))


def test_pieces_fit_the_window_of_the_real_model(minilm_path):
    tokenizer = AutoTokenizer.from_pretrained(minilm_path, local_files_only=True)
    texts = [
        "Delays on the coast road near Millbrook, avoid the junction with the A38 if you can. " * 40,
        "Verkehrsbehinderungen auf der Hafenbrücke wegen Sturmschäden, Umleitung über die Nordstraße. " * 40,
        "كل الطرق المؤدية إلى الميناء مغلقة بسبب العاصفة. " * 40,
        "港口大桥因暴风雨关闭，请绕行。" * 60,
        "橋は閉鎖されています。迂回してください。" * 60,
        "#HarbourBridge @ana_1987 https://t.co/aB3dE9xYz1 " * 60,
    ]
    for text in texts:
        pieces = split(text)
        assert len(pieces) > 1
        assert max(len(tokenizer(piece)["input_ids"]) for piece in pieces) <= WINDOW
