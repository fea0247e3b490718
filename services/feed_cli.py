"""`groundswell dlq ...`, and what `groundswell publish SOURCE` does. Data to stdout, progress and errors to stderr.

The Kafka client and the sources are imported by the command that needs them.
"""

import asyncio
import json
import re
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from ingest.versions import time_text, time_us
from services.settings import Settings
from services.sources import SOURCES, source_for
from services.terminal import fail, say

if TYPE_CHECKING:
    from ingest.dead_letters import DeadLetter
    from ingest.feed_batch import FeedRecord
    from ingest.outbox import Transferred
    from ingest.sources.arrival import Source, SourceStats

__all__ = ["SOURCES", "dlq_cli", "publish_source"]

REFRESH_S = 0.5
_PLACE = re.compile(r"(?:(\d{1,9}):)?(\d{1,18})", re.ASCII)

dlq_cli = typer.Typer(
    help="Records that were no posts: list them, send them again.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
Brokers = Annotated[str, typer.Option(help="Kafka bootstrap servers; the configured ones unless given.")]
Topic = Annotated[str, typer.Option(help="The topic of posts; the configured one unless given.")]
Reason = Annotated[str, typer.Option(help="Only what was refused for this reason (docs/feed.md).")]
Since = Annotated[str, typer.Option(help="RFC 3339; only what was set aside since then.")]


@dlq_cli.command("list")
def list_(
    reason: Reason = "",
    since: Since = "",
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many, the newest.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, one JSON object a line.")] = False,
    brokers: Brokers = "",
    topic: Topic = "",
) -> None:
    """List records that were no posts and have not been sent again, oldest first, without what they say.

    Example: groundswell dlq list --reason json --since 2026-07-04T10:00:00Z
    """
    since_ms, where = _since_ms(since), _where(brokers, topic)
    counts: Counter[str] = Counter()

    def wanted(letter: "DeadLetter") -> bool:
        counts[letter.reason] += 1
        return reason in ("", letter.reason)

    with _errors_in_one_line():
        from ingest.dead_letters import DeadLetters

        letters = asyncio.run(DeadLetters(*where).newest(wanted, limit, since_ms))
    for letter in letters:
        print(json.dumps(_as_json(letter), ensure_ascii=False) if as_json else _line(letter))
    of_each = ", ".join(f"{count} {label}" for label, count in counts.most_common())
    say(f"{counts.total()} records were set aside{': ' if of_each else ''}{of_each}")


@dlq_cli.command()
def replay(
    reason: Reason = "",
    since: Since = "",
    offset: Annotated[
        list[str], typer.Option(help="Only the record that was here, as PARTITION:OFFSET; may be repeated.")
    ] = [],  # noqa: B006
    value: Annotated[Path | None, typer.Option(help="Send what is in this file instead; with one --offset.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Also what has failed after a replay already.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell how many it would be.")] = False,
    brokers: Brokers = "",
    topic: Topic = "",
) -> None:
    """Send records that were no posts to the topic again, each once: after what refused them was mended.

    Examples: groundswell dlq replay --reason version; groundswell dlq replay --offset 2:1017 --value fixed.json
    """
    places = {_place(text) for text in offset}
    if value is not None and len(places) != 1:
        fail("--value goes with exactly one --offset", code=2)
    since_ms, where = _since_ms(since), _where(brokers, topic)

    def wanted(letter: "DeadLetter") -> bool:
        if places:
            return (letter.record.partition, letter.record.offset) in places
        return reason in ("", letter.reason) and (again or not letter.replays)

    with _errors_in_one_line():
        from ingest.dead_letters import DeadLetters

        letters = DeadLetters(*where)
        if dry_run:
            count = len(asyncio.run(letters.newest(wanted, sys.maxsize, since_ms)))
            print(json.dumps({"would_send": count}))
            return
        replayed = asyncio.run(letters.replay(wanted, since_ms, _mended(value)))
    print(json.dumps(asdict(replayed)))
    if replayed.cut:
        say(f"{replayed.cut} were too large to be kept whole: give their values by --offset and --value")
        raise typer.Exit(1)


def publish_source(name: str, settings: Settings, brokers: str = "", topic: str = "") -> int:
    """Publishes a network until Ctrl-C (or SIGTERM), and then tells as JSON what came of it. The exit code."""
    where = (brokers or settings.brokers, topic or settings.feed.topic)
    try:
        source = source_for(name, settings)
    except (ValueError, OSError, sqlite3.Error) as error:
        say(" ".join(str(error).split()))
        return 2
    return asyncio.run(_publish(source, where, settings.cursors_dir / name))


async def _publish(source: "Source", where: tuple[str, str], cursor: Path) -> int:
    from ingest.cursor import CursorFile
    from ingest.outbox import Transferred
    from ingest.sources.arrival import SourceEnded
    from ingest.transfer import transfer

    counts = Transferred()
    transferring = asyncio.create_task(transfer(source, *where, CursorFile(cursor), counts))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, transferring.cancel)
    watching = asyncio.create_task(_show_status(source, counts))
    code = 0
    try:
        await transferring
    except asyncio.CancelledError:
        code = 130
    except (SourceEnded, OSError, sqlite3.Error) as error:
        say(" ".join(str(error).split()))
        code = 1
    finally:
        watching.cancel()
        await asyncio.wait([watching])
    print(json.dumps(_summary(source.stats, counts)))
    return code


async def _show_status(source: "Source", counts: "Transferred") -> None:
    from rich.console import Console
    from rich.status import Status

    if not sys.stderr.isatty():
        return
    with Status(source.name, console=Console(stderr=True)) as status:
        before, before_s, rate = 0, time.monotonic(), 0.0
        while True:
            await asyncio.sleep(REFRESH_S)
            done, now_s = counts.posts + counts.removals + counts.accounts, time.monotonic()
            rate += 0.2 * ((done - before) / (now_s - before_s) - rate)
            before, before_s = done, now_s
            status.update(_status_line(source.name, source.stats, counts, rate))


def _status_line(name: str, stats: "SourceStats", counts: "Transferred", rate: float) -> str:
    lag = "-" if stats.lag_ms is None else f"{stats.lag_ms / 1000:.1f} s"
    refused = stats.malformed.total() + counts.refused.total()
    parts = [f"{counts.posts} posts", f"{counts.removals} removals", f"{rate:.1f}/s", f"lag {lag}"]
    parts += [f"{stats.gaps} gaps", f"{refused} malformed"]
    faults = [f"{part}: {fault}" for part, fault in ((name, stats.fault), ("broker", counts.fault)) if fault]
    return f"{name}: {', '.join(parts)}{'; waits for ' if faults else ''}{'; '.join(faults)}"


def _summary(stats: "SourceStats", counts: "Transferred") -> dict[str, Any]:
    of_source = {name: getattr(stats, name) for name in ("events", "connects", "gaps", "repeated")}
    sent = {name: getattr(counts, name) for name in ("posts", "removals", "accounts")}
    return sent | of_source | {"skipped": stats.skipped, "malformed": stats.malformed, "refused": counts.refused}


def _line(letter: "DeadLetter") -> str:
    """Says nothing of what is in the record."""
    record = letter.record
    size = "null" if letter.bytes < 0 else f"{letter.bytes} bytes"
    parts = [time_text(letter.set_aside_ms * 1000)[:19] + "Z", f"{record.partition}:{record.offset}", letter.reason]
    parts += [letter.detail or "-", size + ("" if letter.is_whole else ", not kept")]
    return "  ".join([*parts, *([f"replayed {letter.replays} times"] if letter.replays else [])])


def _as_json(letter: "DeadLetter") -> dict[str, Any]:
    """Bytes as text; what is no UTF-8 is escaped as \\xff."""
    record = asdict(letter.record) | {"key": _text(letter.record.key), "value": _text(letter.record.value)}
    record["headers"] = [[name, _text(content)] for name, content in letter.record.headers]
    others = {"reason": letter.reason, "detail": letter.detail, "bytes": letter.bytes, "replays": letter.replays}
    return {"set_aside_at": time_text(letter.set_aside_ms * 1000), **others, "is_whole": letter.is_whole, **record}


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode("utf-8", "backslashreplace")


def _mended(value: Path | None) -> Callable[["FeedRecord"], "FeedRecord"]:
    if value is None:
        return lambda record: record
    content = value.read_bytes()
    return lambda record: replace(record, value=content)


def _place(text: str) -> tuple[int, int]:
    if (found := _PLACE.fullmatch(text)) is None:
        fail(f"--offset {text}: write PARTITION:OFFSET, as in the log", code=2)
    return int(found[1] or 0), int(found[2])


def _since_ms(text: str) -> int:
    try:
        return max(0, time_us(text) // 1000) if text else 0
    except ValueError as error:
        fail(f"--since {text}: {error}; write 2026-07-04T10:00:00Z", code=2)


def _where(brokers: str, topic: str) -> tuple[str, str]:
    try:
        settings = Settings()
    except ValidationError as error:
        for problem in error.errors():
            place = ".".join(str(part) for part in problem["loc"])
            say(f"setting {place}: {problem['msg']}" if place else problem["msg"].removeprefix("Value error, "))
        raise typer.Exit(2) from None
    return brokers or settings.brokers, topic or settings.feed.topic


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    """BrokerUnreachable is an OSError, as is a file that cannot be read."""
    try:
        yield
    except OSError as error:
        fail(" ".join(str(error).split()))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
