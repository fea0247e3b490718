"""The words of the sample feed: one JSON file per story, small talk by language, people, planted posts."""

import json
from importlib.resources import files
from typing import Any


def load(name: str) -> Any:
    """The content of `name`.json, a file of this package."""
    return json.loads(files(__name__).joinpath(f"{name}.json").read_text(encoding="utf-8"))
