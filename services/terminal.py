"""What every command of `groundswell` does alike: read the settings, tell on stderr, end with one line."""

import sys
from typing import NoReturn

import typer
from pydantic import ValidationError

from services.settings import Settings


def settings_or_exit() -> Settings:
    """Ends the command with code 2, and one line a fault, where the settings cannot be used."""
    try:
        return Settings()
    except ValidationError as error:
        for problem in error.errors():
            place = ".".join(str(part) for part in problem["loc"])
            say(f"setting {place}: {problem['msg']}" if place else problem["msg"].removeprefix("Value error, "))
        raise typer.Exit(2) from None


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def fail(line: str, code: int = 1) -> NoReturn:
    say(line)
    raise typer.Exit(code)
