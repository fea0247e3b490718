from dataclasses import replace

from ingest.thread import context_ids, in_context
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
