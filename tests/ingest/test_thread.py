from dataclasses import replace

from ingest.ask import Ask
from ingest.thread import context_ids, in_context, is_left_out
from tests.ingest.made import found


def test_the_thread_is_read_from_its_beginning_each_post_once_and_never_itself():
    match = replace(found("c", "text"), conversation="a", reply_to="b", quote_of="a")
    assert context_ids(match) == ["a", "b"]
    assert context_ids(replace(match, conversation="c", reply_to=None)) == ["a"]
    assert context_ids(found("c", "text")) == []


def test_what_is_not_found_any_more_is_left_out():
    match = replace(found("c", "text"), conversation="a", reply_to="b")
    (context,) = in_context(match, {"b": found("b", "the question"), "x": found("x", "else")}).context
    assert context.text == "the question"


def test_an_excluded_author_or_label_is_not_shown_around_another_post_either():
    by_ana = replace(found("b", "the question", author="did:ana"), author_handle="Ana.example")
    asked = Ask("bridge", without_authors=("@ana.EXAMPLE",), without_labels=("nsfw",))
    assert is_left_out(by_ana, asked)
    assert is_left_out(by_ana, Ask("bridge", without_authors=("did:ana",)))
    assert is_left_out(replace(by_ana, author_handle="bo", labels=("news", "nsfw")), asked)
    assert not is_left_out(replace(by_ana, author_handle="bo", labels=("news",)), asked)
    assert not is_left_out(replace(by_ana, author_id="", author_handle=""), Ask("bridge"))
