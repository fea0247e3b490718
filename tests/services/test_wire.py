from typing import Any

import pytest
from scripted_chat import ask

from services.events import Message
from services.wire import ALLOWED, ApiError, read_chat


def refusal(raw: Any) -> tuple[int, str | None, str | None]:
    with pytest.raises(ApiError) as caught:
        read_chat(raw, max_messages=1024)
    error = caught.value
    assert error.body["error"].keys() == {"message", "type", "param", "code"}
    assert error.type == "invalid_request_error"
    return error.status, error.param, error.code


def turns(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"model": "groundswell", "messages": list(messages)}


USER = {"role": "user", "content": "hi"}
NULLABLE = """
    temperature top_p n max_tokens max_completion_tokens stop seed stream stream_options logprobs top_logprobs
    logit_bias presence_penalty frequency_penalty tools tool_choice functions function_call response_format
    modalities audio user metadata store service_tier reasoning_effort parallel_tool_calls prediction groundswell
""".split()  # noqa: SIM905


def test_the_smallest_request():
    call = read_chat(ask("hi"), 10)
    assert call.request.messages == (Message("user", "hi"),)
    assert call.request.id.startswith("chatcmpl-")
    assert (call.stream, call.include_usage, call.progress, call.unknown_fields) == (False, False, False, 0)
    assert (call.request.max_tokens, call.request.temperature, call.request.stop) == (None, None, ())


def test_every_optional_field_may_be_null():
    call = read_chat(ask("hi", **dict.fromkeys(NULLABLE)), 10)
    assert call.request.max_tokens is None and not call.stream and call.unknown_fields == 0


def test_served_fields_reach_the_chat():
    call = read_chat(
        ask(
            temperature=1,
            top_p=0.5,
            seed=-7,
            stop=["a", "", "b"],
            max_tokens=5,
            max_completion_tokens=9,
            stream=True,
            stream_options={"include_usage": True, "include_obfuscation": False},
            groundswell={"progress": True},
        ),
        10,
    )
    request = call.request
    assert (request.temperature, request.top_p, request.seed, request.stop) == (1.0, 0.5, -7, ("a", "b"))
    assert request.max_tokens == 9, "max_completion_tokens wins"
    assert (call.stream, call.include_usage, call.progress) == (True, True, True)
    assert read_chat(ask(max_tokens=5), 10).request.max_tokens == 5
    assert read_chat(ask(stop="end"), 10).request.stop == ("end",)
    assert read_chat(ask(stop=[], tools=[]), 10).request.stop == ()


def test_how_to_sample_is_passed_on():
    asked = ask(
        presence_penalty=0.5,
        frequency_penalty=-1,
        logit_bias={"50256": -100, "7": 2.5},
        top_k=40,
        min_p=0.1,
        repetition_penalty=1.2,
    )
    request = read_chat(asked, 10).request
    assert (request.presence_penalty, request.frequency_penalty, request.repetition_penalty) == (0.5, -1, 1.2)
    assert (request.logit_bias, request.top_k, request.min_p) == (((50256, -100), (7, 2.5)), 40, 0.1)
    assert read_chat(ask(top_k=-1), 10).request.top_k == 0, "vLLM's word for all"


@pytest.mark.parametrize(
    ("name", "value", "param"),
    [
        ("presence_penalty", 2.1, "presence_penalty"),
        ("frequency_penalty", "1", "frequency_penalty"),
        ("logit_bias", {"50256": 101}, "logit_bias.50256"),
        ("logit_bias", {"<s>": 1}, "logit_bias"),
        ("logit_bias", {"-1": 1}, "logit_bias.-1"),
        ("logit_bias", {str(number): 1 for number in range(1025)}, "logit_bias"),
        ("logit_bias", [1], "logit_bias"),
        ("top_k", 1.5, "top_k"),
        ("min_p", 2, "min_p"),
        ("repetition_penalty", 0, "repetition_penalty"),
    ],
)
def test_a_way_to_sample_that_is_none_is_refused(name: str, value: Any, param: str):
    status, named, _ = refusal(ask(**{name: value}))
    assert (status, named.removesuffix(".[key]")) == (400, param)


def test_unknown_fields_pass_and_are_counted_and_known_harmless_ones_are_not():
    assert read_chat(ask(best_of=4, mirostat=2, user="u", metadata={"a": "b"}), 10).unknown_fields == 2


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in ALLOWED.items() for value in values])
def test_values_that_ask_for_nothing_pass(name: str, value: Any):
    assert read_chat(ask(**{name: value}), 10).unknown_fields == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 3),
        ("n", 0),
        ("n", "2"),
        ("logprobs", True),
        ("top_logprobs", 5),
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("tool_choice", "required"),
        ("tool_choice", {"type": "function", "function": {"name": "f"}}),
        ("functions", [{"name": "f"}]),
        ("function_call", {"name": "f"}),
        ("response_format", {"type": "json_object"}),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}),
        ("modalities", ["text", "audio"]),
        ("audio", {"voice": "alloy", "format": "mp3"}),
        ("search_parameters", {"mode": "off"}),
        ("search_recency_filter", "day"),
        ("disable_search", True),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(name: str, value: Any):
    assert refusal(ask(**{name: value})) == (400, name, "unsupported_value")


@pytest.mark.parametrize(
    ("raw", "param", "code"),
    [
        ([], None, "invalid_type"),
        ("hi", None, "invalid_type"),
        ({"messages": [USER]}, "model", "missing_required_parameter"),
        ({"model": "groundswell"}, "messages", "missing_required_parameter"),
        ({"model": 7, "messages": [USER]}, "model", "invalid_type"),
        ({"model": "groundswell", "messages": []}, "messages", "invalid_value"),
        ({"model": "groundswell", "messages": {"0": USER}}, "messages", "invalid_type"),
        (turns("hi"), "messages.0", "invalid_type"),
        (turns({"content": "hi"}), "messages.0.role", "missing_required_parameter"),
        (turns({"role": "oracle", "content": "hi"}), "messages.0.role", "invalid_value"),
        (turns({"role": "user", "content": 5}), "messages.0.content", "invalid_type"),
        (turns({"role": "user"}), "messages.0.content", "missing_required_parameter"),
        (turns(USER, {"role": "assistant", "content": None}, USER), "messages.1.content", "missing_required_parameter"),
        (turns({"role": "user", "content": ["hi"]}), "messages.0.content.0", "invalid_type"),
        (
            turns({"role": "user", "content": [{"text": "hi"}]}),
            "messages.0.content.0.type",
            "missing_required_parameter",
        ),
        (
            turns({"role": "user", "content": [{"type": "text"}]}),
            "messages.0.content.0.text",
            "missing_required_parameter",
        ),
        (
            turns({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}]}),
            "messages.0.content.1.type",
            "unsupported_value",
        ),
        (
            turns({"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}),
            "messages.0.content.0.type",
            "unsupported_value",
        ),
        (turns({"role": "user", "content": " \n"}), "messages.0.content", "invalid_value"),
        (turns({"role": "user", "content": []}), "messages.0.content", "invalid_value"),
        (turns(USER, {"role": "assistant", "content": "a"}), "messages.1.role", "invalid_value"),
        (turns({"role": "system", "content": "a"}), "messages.0.role", "invalid_value"),
        (ask(temperature="0.7"), "temperature", "invalid_type"),
        (ask(temperature=True), "temperature", "invalid_type"),
        (ask(temperature=2.1), "temperature", "invalid_value"),
        (ask(top_p=-0.1), "top_p", "invalid_value"),
        (ask(max_tokens=0), "max_tokens", "invalid_value"),
        (ask(max_completion_tokens="9"), "max_completion_tokens", "invalid_type"),
        (ask(seed=1 << 63), "seed", "invalid_value"),
        (ask(seed=1.5), "seed", "invalid_type"),
        (ask(stop=[1]), "stop.0", "invalid_type"),
        (ask(stop={}), "stop", "invalid_type"),
        (ask(stop=["a"] * 5), "stop", "invalid_value"),
        (ask(stream="yes"), "stream", "invalid_type"),
        (ask(stream_options=True), "stream_options", "invalid_type"),
        (ask(stream_options={"include_usage": 1}), "stream_options.include_usage", "invalid_type"),
        (ask(groundswell={"progres": True}), "groundswell.progres", "invalid_value"),
    ],
)
def test_faults_name_the_field(raw: Any, param: str | None, code: str):
    assert refusal(raw) == (400, param, code)


def test_too_many_messages():
    assert refusal(turns(*[USER] * 1025)) == (400, "messages", "array_above_max_length")


def test_another_model_is_not_found():
    assert refusal(ask() | {"model": "gpt-4o"}) == (404, "model", "model_not_found")


def test_an_error_never_repeats_what_was_sent():
    with pytest.raises(ApiError) as caught:
        read_chat(ask(temperature="my secret is 4711"), 10)
    assert "4711" not in str(caught.value.body) + str(caught.value)


def test_roles_and_parts_become_plain_messages_in_order():
    call = read_chat(
        turns(
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "kind."}]},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "u"},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function"}]},
            {"role": "tool", "tool_call_id": "1", "content": "42"},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            {"role": "assistant", "content": None, "refusal": "Still no."},
            {"role": "function", "name": "f", "content": "43"},
            {"role": "system", "content": "And honest."},
            {"role": "user", "content": "c"},
        ),
        10,
    )
    assert call.request.messages == (
        Message("system", "Be brief.\n\nBe\nkind.\n\nAnd honest."),
        Message("user", "a\nb"),
        Message("assistant", ""),
        Message("tool", "42"),
        Message("assistant", "No."),
        Message("assistant", "Still no."),
        Message("tool", "43"),
        Message("user", "c"),
    )


def test_the_users_words_are_not_in_a_repr():
    call = read_chat(ask("my secret is 4711"), 10)
    assert "4711" not in repr(call) + repr(call.request)
