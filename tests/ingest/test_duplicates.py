from ingest.duplicates import collapse, repeat_key
from tests.ingest.made import found


def test_case_space_width_urls_and_leading_mentions_make_no_difference():
    key = repeat_key("Bridge closed!")
    assert repeat_key("  BRIDGE\n closed! https://t.co/abc") == key
    assert repeat_key("RT @ana.example: Bridge closed!") == key
    assert repeat_key(".@ana @ben_2 bridge closed! www.example.org/x") == key
    assert repeat_key("\uff22ridge closed!") == key


def test_other_words_and_other_marks_make_one():
    key = repeat_key("Bridge closed!")
    assert repeat_key("Bridge closed?") != key
    assert repeat_key("Bridge is closed!") != key
    assert repeat_key("Bridge closed! @ana") != key


def test_texts_that_are_nothing_but_a_link_or_emoji_are_themselves():
    assert repeat_key("https://a.example") != repeat_key("https://b.example")
    assert repeat_key("\U0001f62d") != repeat_key("\U0001f602")
    assert repeat_key("@ana") != repeat_key("@ben")


def test_the_earliest_stands_for_the_repeats_with_the_best_score():
    late = found("b", "Bridge closed", score=0.9, sort_ms=20, author="x")
    early = found("a", "bridge closed https://t.co/1", score=0.4, sort_ms=10, author="y")
    again = found("c", "Bridge  closed", score=0.3, sort_ms=30, author="x")
    other = found("d", "Storm coming", score=0.6)
    first, second = collapse([late, other, early, again])
    assert (first.post_id, first.text, first.score) == ("a", "bridge closed https://t.co/1", 0.9)
    assert (first.repeats, first.why["authors"]) == (3, 2.0)
    assert (second.post_id, second.repeats, second.why["authors"]) == ("d", 1, 1.0)


def test_reposts_collapse_into_the_original_even_when_they_are_older_by_clock():
    original = found("a", "Bridge closed, avoid", sort_ms=50)
    repost = found("b", "quoting this", repost_of="a", score=0.9, sort_ms=10)
    (match,) = collapse([repost, original])
    assert (match.post_id, match.repeats, match.score) == ("a", 2, 0.9)


def test_reposts_of_an_original_that_was_not_found_stand_for_each_other():
    (match,) = collapse([found("b", "x", repost_of="a", sort_ms=20), found("c", "y", repost_of="a", sort_ms=10)])
    assert (match.post_id, match.repeats) == ("c", 2)


def test_two_groups_become_one_when_a_later_match_belongs_to_both():
    text_twin = found("t", "Bridge closed", score=0.9, sort_ms=30)
    original = found("a", "The bridge is shut", score=0.8, sort_ms=20)
    joins = found("r", "bridge closed", repost_of="a", score=0.1, sort_ms=40)
    (match,) = collapse([text_twin, original, joins])
    assert (match.post_id, match.repeats) == ("a", 3)


def test_pieces_of_one_post_count_once_and_the_better_piece_is_shown():
    (match,) = collapse([found("a", "second part", number=1, score=0.9), found("a", "first part", score=0.2)])
    assert (match.number, match.repeats) == (1, 1)


def test_nothing_found_is_nothing():
    assert collapse([]) == []
