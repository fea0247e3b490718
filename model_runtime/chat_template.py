"""The checkpoint's chat template (Jinja, as transformers runs it): messages -> one text. Knows no ids."""

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

_OPEN, _JSON, _CLOSE = "\ufdd2", "\ufdd3", "\ufdd1"  # no characters: no text of Unicode has them
STAND_IN = re.compile(f"([{_OPEN}{_JSON}][0-9a-f]+[.][0-9]+{_CLOSE})")


class TemplateRefused(ValueError):
    """The checkpoint's chat template does not accept these messages (order of roles, an unknown role, ...)."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ChatTemplate:
    """`source`: Jinja; empty: the checkpoint has none. `names`: its names of control tokens (bos_token, ...)."""

    def __init__(self, source: str, names: Mapping[str, str]) -> None:
        self._source, self._names = source, dict(names)

    def write(self, messages: Sequence[tuple[str, str]], *, add_generation_prompt: bool) -> tuple[str, dict[str, str]]:
        """A conversation of (role, text), with a stand-in for each text, and the text of each stand-in: what is not in
        a stand-in, the template wrote itself. Where a template takes a text to pieces, it sees the stand-in.

        Raises TemplateRefused, and ValueError for a role that is not a plain word."""
        nonce = secrets.token_hex(8)
        stand_ins = [f"{_OPEN}{nonce}.{number}{_CLOSE}" for number in range(len(messages))]
        turns = [
            {"role": _plain(role), "content": _with_edges(stand_in, text)}
            for (role, text), stand_in in zip(messages, stand_ins, strict=True)
        ]
        try:
            written = self._template.render(messages=turns, add_generation_prompt=add_generation_prompt, **self._names)
        except jinja2.TemplateError as error:
            raise TemplateRefused(str(error)) from error
        except TemplateRefused:
            raise
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError) as error:
            raise TemplateRefused(f"the chat template failed: {type(error).__name__}") from error
        cores = {stand_in: text.strip() for stand_in, (_, text) in zip(stand_ins, messages, strict=True)}
        quoted = {_as_json(stand_in): json.dumps(core, ensure_ascii=False)[1:-1] for stand_in, core in cores.items()}
        return written, cores | quoted

    @cached_property
    def _template(self) -> jinja2.Template:
        if not self._source:
            raise TemplateRefused("the checkpoint has no chat template")
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
        return environment.from_string(self._source)


class _Generation(Extension):
    """{% generation %} ... {% endgeneration %} marks what a model is to learn from: here it is only its body."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """transformers' filter: unlike Jinja's, it escapes no HTML. Stand-ins stand for a text in JSON's spelling then."""
    written = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
    if ensure_ascii:
        written = re.sub(f"[^\x00-\x7f{_OPEN}{_CLOSE}]", lambda match: json.dumps(match[0])[1:-1], written)
    return STAND_IN.sub(lambda match: _as_json(match[0]), written)


def _as_json(stand_in: str) -> str:
    return stand_in.replace(_OPEN, _JSON)


def _refuse(reason: str) -> None:
    raise TemplateRefused(reason)


def _plain(role: str) -> str:
    if not role.isidentifier():
        raise ValueError(f"role {role!r} is not a plain word")
    return role


def _with_edges(stand_in: str, text: str) -> str:
    """The stand-in between the text's own leading and trailing space, so that a template's `trim` works on the text.
    A text without anything else stays itself, for templates that ask whether there is content."""
    core = text.strip()
    if not core:
        return text
    start = text.index(core)
    return text[:start] + stand_in + text[start + len(core) :]
