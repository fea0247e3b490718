"""Conversations are written as transformers writes them, and no text in them becomes part of the template."""

import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_tokenizer import GPT_2, byte_level, save, sentencepiece, split

from model_runtime.chat_template import ChatTemplate, TemplateRefused
from model_runtime.tokenizer import Tokenizer

CHATML = """{% for message in messages %}
{{ '<|im_start|>' + message.role + '\n' }}
{%- if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>\n' }}{% endgeneration %}
{%- else %}{{ message['content'] + '<|im_end|>' + '\n' }}{% endif %}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

HEADERS = """{{- bos_token }}
{%- set today = strftime_now("%Y") if strftime_now is defined else "2024" %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}{%- set system_message = "" %}{%- endif %}
{{- "<|im_start|>system\n\nToday: " + today + "\n\n" + system_message + "<|im_end|>" }}
{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\n\n' + message['content'] | trim + '<|im_end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n\n' }}{%- endif %}"""

INSTRUCTIONS = """{%- set ns = namespace(system='', turn=0) %}
{{- bos_token }}
{%- for message in messages %}
    {%- if message['role'] == 'system' %}{%- set ns.system = message['content'] + '\n\n' %}{%- continue %}{%- endif %}
    {%- if (message['role'] == 'user') != (ns.turn % 2 == 0) %}
        {{- raise_exception('After the optional system message, roles must alternate user/assistant') }}
    {%- endif %}
    {%- if message['role'] == 'user' %}
        {{- '[INST] ' + (ns.system if ns.turn == 0 else '') + message['content'] + ' [/INST]' }}
    {%- else %}{{- ' ' + message['content'] + eos_token }}{%- endif %}
    {%- set ns.turn = ns.turn + 1 %}
{%- endfor %}"""

CHANNELS = """{{- "<|im_start|>system\nKnowledge: " ~ (strftime_now('%Y') | string) }}
{%- macro turn(role, text) %}
    {{- '<|im_start|>' ~ role ~ '<think>' ~ {'text': text, 'n': [1, 'é<']} | tojson }}
{%- endmacro %}
{%- for message in messages %}
    {%- if loop.index0 > 20 %}{%- break %}{%- endif %}
    {{- turn(message.role, message.content) }}{{ '<|im_end|>' if message.content is string and message.content }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant' }}{% endif %}"""

TEMPLATES = {"chatml": CHATML, "headers": HEADERS, "instructions": INSTRUCTIONS, "channels": CHANNELS}
TOKENIZERS = {
    "byte-level": lambda: byte_level(split(GPT_2)),
    "first": lambda: sentencepiece("BPE", "first"),
    "always": lambda: sentencepiece("Unigram", "always"),
    "prepend": lambda: sentencepiece("BPE", "prepend"),
}
CONVERSATIONS = [
    [("user", "Why is the bridge closed?")],
    [
        ("system", "Be brief."),
        ("user", "\n\nWhat is 2+2?\n"),
        ("assistant", "4"),
        ("user", "你好 🎉 'quoted' \"x\" \\ \t"),
    ],
    [("user", "")],
    [("user", "  \n"), ("assistant", "")],
]
MARKS = [
    "<s>",
    "</s>",
    "<|im_start|>",
    "<|im_end|>",
    "[INST]",
    "[/INST]",
    "<think>",
    "<unk>",
    "\ufdd2",
    "\ufdd1",
    '"',
    "\\",
]
TEXTS = st.lists(st.sampled_from(MARKS) | st.text(max_size=5), max_size=6).map("".join)


class Pair:
    def __init__(self, folder: Path, template: str, tokenizer: str) -> None:
        self.oracle = save(folder, TOKENIZERS[tokenizer](), TEMPLATES[template])
        self.ours = Tokenizer.from_checkpoint(folder)
        self.template = template
        self.marks = {self.oracle.convert_tokens_to_ids(mark) for mark in MARKS[:8]} - {None}

    def expected(self, conversation: list[tuple[str, str]], prompt: bool = True) -> Any:
        messages = [{"role": role, "content": text} for role, text in conversation]
        return self.oracle.apply_chat_template(messages, add_generation_prompt=prompt, return_dict=False)


@pytest.fixture(scope="module", params=[(one, two) for one in TEMPLATES for two in TOKENIZERS], ids="-".join)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(tmp_path_factory.mktemp("folder"), *request.param)


@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("prompt", [True, False])
def test_a_conversation_is_written_as_transformers_writes_it(pair: Pair, conversation: list[Any], prompt: bool):
    assert pair.ours.render(conversation, add_generation_prompt=prompt) == pair.expected(conversation, prompt)


@settings(max_examples=50, deadline=None)
@given(
    text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<[\ufdd0\ufdd1\ufdd2\ufdd3"), max_size=20)
)
def test_harmless_text_is_written_as_if_it_were_part_of_the_template(pair: Pair, text: str):
    conversation = [("system", text), ("user", text), ("assistant", text), ("user", text)]
    assert pair.ours.render(conversation) == pair.expected(conversation)


@settings(max_examples=50, deadline=None)
@given(text=TEXTS)
def test_no_text_can_open_or_close_a_turn(pair: Pair, text: str):
    def control(ids: list[int]) -> list[int]:
        return [number for number in ids if number in pair.marks]

    def talk(text: str) -> list[int]:
        return pair.ours.render([("system", text), ("user", text), ("assistant", text), ("user", text)])

    assert control(talk(text)) == control(talk("x" if text else ""))
    written = pair.ours.decode(talk(text))
    text = text.strip()
    if not re.search("[\ud800-\udfff\ufdd0▁]", text):
        assert (json.dumps(text, ensure_ascii=False)[1:-1] if pair.template == "channels" else text) in written


@pytest.mark.parametrize("role", ["user<|im_end|>", "user\n", "", "a b"])
def test_a_role_is_a_plain_word(role: str):
    with pytest.raises(ValueError, match="plain word"):
        ChatTemplate(CHATML, {}).write([(role, "hi")], add_generation_prompt=True)


@pytest.mark.parametrize(
    ("template", "match"),
    [
        ("", "no chat template"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{% for %}", "Expected|Unexpected|expected"),
        ("{{ messages[0].content + 1 }}", "failed: TypeError"),
        ("{{ 1 // 0 }}", "failed: ZeroDivisionError"),
        ("{{ messages[99].content }}", "has no element"),
        ("{% generation %}", "endgeneration"),
    ],
)
def test_a_template_can_refuse_and_cannot_reach_python(template: str, match: str):
    with pytest.raises(TemplateRefused, match=match) as caught:
        ChatTemplate(template, {}).write([("user", "hi")], add_generation_prompt=True)
    assert pickle.loads(pickle.dumps(caught.value)).reason == caught.value.reason


def test_a_template_that_refuses_repeats_no_text():
    with pytest.raises(TemplateRefused) as caught:
        ChatTemplate("{{ messages[0].content + 1 }}", {}).write([("user", "my secret")], add_generation_prompt=True)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("options", ["", "indent=2", "ensure_ascii=true", "separators=(',', ':'), sort_keys=true"])
def test_json_of_a_text_is_the_json_of_that_text(options: str):
    text = 'é "quoted" \\ \n 🎉'
    template = ChatTemplate("{{ messages | tojson(" + options + ") }}", {})
    written, texts = template.write([("user", text)], add_generation_prompt=True)
    for stand_in, held in texts.items():
        written = written.replace(stand_in, held)
    assert json.loads(written) == [{"role": "user", "content": text}]
