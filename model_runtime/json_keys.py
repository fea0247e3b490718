"""Typed access to the keys of a JSON object in a checkpoint."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model_runtime.weights import CheckpointError


class Keys:
    """A JSON object with typed access; null counts as absent."""

    def __init__(self, file: str, values: Mapping[str, Any], prefix: str = "") -> None:
        self.file, self.values, self.prefix = file, values, prefix

    @classmethod
    def of(cls, path: Path) -> "Keys":
        """Raises CheckpointError if the file is missing or no JSON object."""
        try:
            values = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise CheckpointError(str(path), "is missing") from None
        except (ValueError, RecursionError) as error:
            raise CheckpointError(str(path), "is not JSON") from error
        if not isinstance(values, dict):
            raise CheckpointError(str(path), f"holds a {type(values).__name__}, not an object")
        return cls(str(path), values)

    def get(self, name: str, kind: type[Any], default: Any = None) -> Any:
        """Raises CheckpointError if the value is of another kind, or a float that is not finite."""
        value: Any = self.values.get(name)
        if value is None:
            return default
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind or (type(value) is float and not math.isfinite(value)):
            raise self.error(name, f"is {value!r}, not {kind.__name__}")
        return value

    def require(self, name: str, kind: type[Any]) -> Any:
        value = self.get(name, kind)
        if value is None:
            raise self.error(name, "is missing")
        return value

    def positive(self, name: str, kind: type[Any], default: Any = None) -> Any:
        value = self.require(name, kind) if default is None else self.get(name, kind, default)
        if value <= 0:
            raise self.error(name, f"is {value}, must be positive")
        return value

    def error(self, name: str, problem: str) -> CheckpointError:
        return CheckpointError(self.file, f"key {self.prefix}{name} {problem}")
