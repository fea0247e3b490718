"""`groundswell archive ...`: look at the archive, publish posts of it again. Data goes to stdout, progress and errors
to stderr. pyarrow and the Kafka client are imported by the command that needs them."""

import asyncio
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.versions import time_text, time_us
from services.terminal import fail, say, settings_or_exit

if TYPE_CHECKING:
    from ingest.archive import Archive
    from ingest.archive_republish import Republished

DAY_MS = 24 * 3600 * 1000
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)

archive_cli = typer.Typer(
    help="Look at the archive, publish posts of it again.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
Url = Annotated[str, typer.Option(help="The archive; the configured one unless given.")]


@archive_cli.command()
def restore(
    since: Annotated[str, typer.Option("--from", help="RFC 3339 or a date, UTC; not before it.")],
    until: Annotated[str, typer.Option("--to", help="The same; a date means all of that day. Now unless given.")] = "",
    url: Url = "",
    brokers: Annotated[str, typer.Option(help="Kafka bootstrap servers; the configured ones unless given.")] = "",
    topic: Annotated[str, typer.Option(help="The topic of posts; the configured one unless given.")] = "",
) -> None:
    """Publish archived posts again, each as the version it was; what was removed since stays removed.

    Example: groundswell archive restore --from 2026-07-04T10:00Z --to 2026-07-04T12:00Z
    """
    settings = settings_or_exit()
    since_ms = _time_ms("--from", since)
    until_ms = _time_ms("--to", until, is_end=True) if until else time.time_ns() // 1_000_000
    if until_ms < since_ms:
        fail("--to is before --from", code=2)
    where = (brokers or settings.brokers, topic or settings.feed.topic)
    archive = _opened(url or settings.archive.url)
    with _errors_in_one_line(), _progress("restoring", archive.count(since_ms, until_ms)) as advance:
        done = asyncio.run(_restore(archive, where, since_ms, until_ms, advance))
    for path, reason in done.damaged.items():
        say(f"damaged, nothing restored from it: {path}: {reason}")
    print(json.dumps({"posts": done.posts, "refused": done.refused, "damaged": len(done.damaged)}))
    if done.refused or done.damaged:
        raise typer.Exit(1)


@archive_cli.command()
def stats(url: Url = "") -> None:
    """Tell how much the archive holds, as JSON. Reads the footer of every file."""
    archive = _opened(url or settings_or_exit().archive.url)
    with _errors_in_one_line():
        found = asdict(archive.stats())
    for name in ("first", "last"):
        hour_ms = found.pop(f"{name}_ms")
        found[f"{name}_hour"] = None if hour_ms is None else time_text(hour_ms * 1000)
    print(json.dumps(found))
    if found["damaged"]:
        raise typer.Exit(1)


async def _restore(
    archive: "Archive", where: tuple[str, str], since_ms: int, until_ms: int, advance: Callable[[int], None]
) -> "Republished":
    from ingest.archive_republish import republish
    from ingest.publish import Publisher

    async with Publisher(*where) as publisher:
        return await republish(archive, publisher, since_ms, until_ms, advance)


def _opened(url: str) -> "Archive":
    if not url:
        fail("there is no archive: set GROUNDSWELL_ARCHIVE__URL or give --url", code=2)
    with _errors_in_one_line():
        from ingest.archive import Archive

        return Archive(url)


def _time_ms(name: str, text: str, *, is_end: bool = False) -> int:
    try:
        if _DATE.fullmatch(text):
            return time_us(f"{text}T00:00:00Z") // 1000 + (DAY_MS - 1 if is_end else 0)
        return time_us(text) // 1000
    except ValueError as error:
        fail(f"{name} {text}: {error}; write 2026-07-04 or 2026-07-04T10:00:00Z", code=2)


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    """ArchiveUnusable, DamagedFile, BrokerUnreachable and what a store raises."""
    from ingest.archive_rows import DamagedFile
    from ingest.archive_store import ArchiveUnusable

    try:
        yield
    except (ArchiveUnusable, DamagedFile, OSError) as error:
        fail(" ".join(str(error).split()) or type(error).__name__)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@contextmanager
def _progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """What to call with how many are done."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task(title, total=total)
        yield lambda done: progress.update(bar, completed=done)
