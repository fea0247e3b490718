import pickle

import pytest

from ingest.ask import MAX_QUESTION_CHARS, Ask, BadAsk


def test_a_question_alone_is_enough():
    ask = Ask("harbour bridge")
    assert (ask.limit, ask.since_ms, ask.sources, ask.read_time_words) == (10, None, (), True)


def test_everything_may_be_set():
    names = (("bluesky",), ("@ana",), ("ben",), ("en",), ("news",), ("nsfw",))
    ask = Ask("q", 100, 0, 0, *names, 1, 2, 3, "t:1", 60_000, 0, "Asia/Tokyo", False)
    assert (ask.without_labels, ask.min_replies, ask.bm25_share) == (("nsfw",), 3, 0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("question", None),
        ("question", "x" * (MAX_QUESTION_CHARS + 1)),
        ("limit", 0),
        ("limit", 101),
        ("limit", True),
        ("limit", 2.0),
        ("since_ms", -1),
        ("since_ms", 10**18),
        ("since_ms", float("nan")),
        ("until_ms", "now"),
        ("sources", ["bluesky"]),
        ("sources", "bluesky"),
        ("authors", ("ana", 7)),
        ("without_authors", ("",)),
        ("languages", (" ",)),
        ("labels", tuple("abc" * 40)),
        ("without_labels", ("x" * 1025,)),
        ("min_likes", -1),
        ("min_reposts", 2**53 + 1),
        ("min_replies", 0.5),
        ("conversation", ""),
        ("half_life_ms", 0),
        ("half_life_ms", 59_999),
        ("bm25_share", 1.01),
        ("bm25_share", float("nan")),
        ("bm25_share", True),
        ("bm25_share", "0.5"),
        ("time_zone", "Mars/Olympus"),
        ("time_zone", "../etc/passwd"),
        ("time_zone", "Europe"),
        ("time_zone", None),
        ("time_zone", "\x00"),
        ("read_time_words", "yes"),
    ],
)
def test_what_cannot_be_is_refused_by_name(field, value):
    with pytest.raises(BadAsk) as refused:
        Ask(**{"question": "q", field: value})
    assert refused.value.field == field
    assert str(refused.value).startswith(f"{field} ")


def test_an_end_before_the_beginning_is_refused():
    with pytest.raises(BadAsk, match="until_ms is before since_ms"):
        Ask("q", since_ms=2, until_ms=1)
    assert Ask("q", since_ms=2, until_ms=2).until_ms == 2


def test_a_refusal_crosses_processes():
    refused = pickle.loads(pickle.dumps(BadAsk("limit", "must be a whole number from 1 to 100")))
    assert (refused.field, str(refused)) == ("limit", "limit must be a whole number from 1 to 100")
