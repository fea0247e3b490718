"""Rules that make some experts likelier for some prompts: a pattern in the prompt -> experts and a factor."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import regex
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from model_runtime.kv_cache import Boost

logger = logging.getLogger(__name__)

_SEARCH_TIMEOUT_S = 0.05  # of one rule: a pattern may need time exponential in the prompt's length


class Rule(BaseModel):
    """`pattern`: a regular expression (of the `regex` package) that is searched in the prompt. In every layer that has
    experts, the router's probabilities for `experts` are multiplied by `factor`; below 1 they become less likely."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    pattern: str = Field(min_length=1, max_length=1000)
    experts: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    factor: float = Field(gt=0, le=1e6, allow_inf_nan=False)

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            regex.compile(pattern)
        except regex.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return pattern

    @field_validator("experts")
    @classmethod
    def _different(cls, experts: list[int]) -> list[int]:
        if len(set(experts)) < len(experts):
            raise ValueError("the same expert twice")
        return experts


_RULES = TypeAdapter(list[Rule])


class Boosts:
    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self._rules = [
            (rule.name, regex.compile(rule.pattern), Boost(tuple(rule.experts), rule.factor)) for rule in rules
        ]

    @classmethod
    def from_file(cls, path: Path | str, num_experts: int) -> "Boosts":
        """A JSON list of rules for a model of `num_experts`. Raises ValueError that says what is wrong, and where."""
        try:
            rules = _RULES.validate_python(json.loads(Path(path).read_text(encoding="utf-8")))
        except OSError as error:
            raise ValueError(f"cannot read {path}: {error.strerror}") from None
        except ValidationError as error:
            raise ValueError(f"{path}: {_told(error)}") from None
        except ValueError as error:
            raise ValueError(f"{path}: not JSON: {error}") from None
        names = [rule.name for rule in rules]
        for number, rule in enumerate(rules, 1):
            if names.index(rule.name) < number - 1:
                raise ValueError(f"{path}: rule {number}: a second rule named {rule.name}")
            if max(rule.experts) >= num_experts:
                raise ValueError(
                    f"{path}: rule {number} ({rule.name}): there is no expert {max(rule.experts)}, "
                    f"the model has {num_experts}, numbered from 0"
                )
        return cls(rules)

    def for_prompt(self, text: str) -> tuple[tuple[str, Boost], ...]:
        """(rule's name, boost) for each rule whose pattern is found. A search that takes too long finds nothing."""
        return tuple((name, boost) for name, pattern, boost in self._rules if _found(name, pattern, text))


def _found(name: str, pattern: "regex.Pattern[str]", text: str) -> bool:
    try:
        return pattern.search(text, timeout=_SEARCH_TIMEOUT_S) is not None
    except TimeoutError:
        logger.warning("boost rule %s: its search took more than %g s and was given up", name, _SEARCH_TIMEOUT_S)
        return False


def _told(error: ValidationError) -> str:
    first = error.errors()[0]
    place = [str(part) for part in first["loc"]]
    where = f"rule {int(place[0]) + 1}: " if place else ""
    return where + (f"{'.'.join(place[1:])}: " if place[1:] else "") + first["msg"].removeprefix("Value error, ")
