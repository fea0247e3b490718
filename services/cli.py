"""The `groundswell` command. Data goes to stdout, progress and errors to stderr; exit codes 0, 1, 2 (usage), 130."""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from services.archive_cli import archive_cli
from services.feed_cli import SOURCES, dlq_cli, publish_source
from services.model_cli import model_cli
from services.search_cli import search
from services.terminal import fail, say, settings_or_exit

cli = typer.Typer(
    help="Answers from what people are posting right now.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
cli.add_typer(model_cli, name="model")
cli.add_typer(dlq_cli, name="dlq")
cli.add_typer(archive_cli, name="archive")
cli.command()(search)
Brokers = Annotated[str, typer.Option(help="Kafka bootstrap servers; the configured ones unless given.")]
Topic = Annotated[str, typer.Option(help="The topic of posts; the configured one unless given.")]


@cli.command()
def run() -> None:
    """Fetch what is missing, start the service here, and say when it is ready. Ctrl-C stops it."""
    from services.fetch import FetchError, fetch
    from services.launch import LaunchError
    from services.launch import run as run_service

    settings = settings_or_exit()
    try:
        fetch(settings.data_dir, say, model=settings.has_default_model)
        code = run_service(settings, os.environ, say)
    except (FetchError, LaunchError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot write to {settings.data_dir}: {error.strerror}. Free some space or set GROUNDSWELL_DATA_DIR.")
    raise typer.Exit(code)


@cli.command()
def fetch() -> None:
    """Download the default weights and the embedded broker, checked against their SHA-256."""
    from services.fetch import FetchError
    from services.fetch import fetch as fetch_assets

    settings = settings_or_exit()
    try:
        fetch_assets(settings.data_dir, say)
    except FetchError as error:
        fail(str(error))
    say(f"all weights and the broker are in {settings.data_dir}")


@cli.command()
def publish(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE|SOURCE", help=f"JSON lines, one post each, or - for standard input; or {', '.join(SOURCES)}."
        ),
    ] = None,
    text: Annotated[str, typer.Option(help="Publish one post with this text.")] = "",
    id: Annotated[str, typer.Option(help="Its id; made up unless given.")] = "",
    author: Annotated[str, typer.Option(help="Its author's handle.")] = "cli.example",
    lang: Annotated[str, typer.Option(help="Its language, e.g. en.")] = "",
    url: Annotated[str, typer.Option(help="Its address.")] = "",
    delete: Annotated[str, typer.Option(help="Instead, delete the post with this id.")] = "",
    brokers: Brokers = "",
    topic: Topic = "",
) -> None:
    """Publish one post, a file of posts, a deletion, or all that a network has to tell, to the topic.

    Examples: groundswell publish --text "The bridge is open again"; groundswell publish posts.jsonl;
    groundswell publish --delete cli:1; groundswell publish bluesky
    """
    if sum(bool(given) for given in (file, text, delete)) != 1:
        fail("give exactly one of FILE, --text and --delete", code=2)
    settings = settings_or_exit()
    where = (brokers or settings.brokers, topic or settings.feed.topic)
    if str(file) in SOURCES:
        code = publish_source(str(file), settings, brokers, topic)
    elif file is not None:
        code = asyncio.run(_publish_lines(where, file.name, _lines(file), None))
    elif delete:
        code = asyncio.run(_send(where, delete, None))
    else:
        made = _post(text, id or f"cli:{time.time_ns()}", author, lang, url)
        code = asyncio.run(_send(where, made["id"], made))
    raise typer.Exit(code)


@cli.command()
def replay(
    file: Annotated[Path, typer.Argument(help="JSON lines in the replay form or posts (docs/feed.md).")],
    speed: Annotated[float, typer.Option(min=0.001, help="1 is the file's own pace.")] = 1.0,
    brokers: Brokers = "",
    topic: Topic = "",
) -> None:
    """Publish a file of posts at its own pace or faster, with its times shifted to now."""
    settings = settings_or_exit()
    try:
        where = (brokers or settings.brokers, topic or settings.feed.topic)
        code = asyncio.run(_publish_lines(where, file.name, _lines(file), speed))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    raise typer.Exit(code)


Where = tuple[str, str]  # bootstrap servers, topic


async def _send(where: Where, id: str, post: dict[str, Any] | None) -> int:
    """Publishes one post, or its deletion. The exit code."""
    from ingest.payload import Refused
    from ingest.publish import BrokerUnreachable, Publisher

    try:
        async with Publisher(*where) as publisher:
            await (publisher.remove(id) if post is None else publisher.publish(post))
    except (Refused, BrokerUnreachable) as error:
        say(str(error))
        return 1
    print(id)
    return 0


def _lines(path: Path) -> list[bytes]:
    try:
        return sys.stdin.buffer.readlines() if str(path) == "-" else path.read_bytes().splitlines()
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror}")


async def _publish_lines(where: Where, name: str, lines: list[bytes], speed: float | None) -> int:
    """Publishes posts, at once or at their pace. Bad lines are told; the others go on. The exit code."""
    from rich.console import Console
    from rich.progress import Progress

    from ingest.publish import BrokerUnreachable, Publisher
    from ingest.sources.jsonl import read_events
    from ingest.sources.replay import replay

    events = read_events(lines)
    try:
        with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:
            bar = progress.add_task(name, total=len(lines))
            async with Publisher(*where) as publisher:
                published = await publisher.run(
                    events if speed is None else replay(events, speed=speed),
                    progress=lambda event: progress.update(bar, completed=event.number),
                )
            progress.update(bar, completed=len(lines))
    except BrokerUnreachable as error:
        say(str(error))
        return 1
    for bad in published.refused:
        say(f"{name}, line {bad.number}: refused: {bad.reason}")
    counts = {"posts": published.posts, "removals": published.removals, "refused": len(published.refused)}
    print(json.dumps(counts))
    return 1 if published.refused else 0


def _post(text: str, id: str, author: str, lang: str, url: str) -> dict[str, Any]:
    made: dict[str, Any] = {"id": id, "source": "cli", "author": {"id": author, "handle": author}, "text": text}
    made["created_at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return made | ({"lang": lang} if lang else {}) | ({"url": url} if url else {})


def main() -> None:
    cli()


if __name__ == "__main__":
    main()
