"""`groundswell model ...`: look at a checkpoint, convert it, see its experts at work. Data goes to stdout, progress and
errors to stderr. torch is imported by the command that needs it."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from services.terminal import fail, say

model_cli = typer.Typer(
    help="Look at a checkpoint, convert it, see its experts at work.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
Source = Annotated[Path, typer.Argument(help="A GGUF file or a folder of safetensors.", show_default=False)]
Target = Annotated[Path, typer.Argument(help="A new folder for the result.", show_default=False)]


@model_cli.command()
def inspect(
    path: Source,
    shards: Annotated[int, typer.Option(min=1, max=1024, help="Also tell what a shard of so many would hold.")] = 2,
    upcycle: Annotated[bool, typer.Option("--upcycle", help="As if a dense checkpoint were upcycled.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as one JSON object.")] = False,
) -> None:
    """Tell what a checkpoint holds: sizes, experts, tokenizer, memory. Reads headers only."""
    with _errors_in_one_line():
        from model_runtime.blueprint import draw_blueprint

        blueprint = draw_blueprint(path, shards=shards, upcycle=upcycle)
    if as_json:
        print(json.dumps(asdict(blueprint) | {"total": asdict(blueprint.total)}))
    else:
        print("\n".join(blueprint.lines()))


@model_cli.command()
def experts(
    path: Source,
    prompt: Annotated[str, typer.Option(help="The text to route.")] = "",
    file: Annotated[Path | None, typer.Option(help="A UTF-8 file with the text; - reads standard input.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write a heat map here, as PNG.")] = None,
) -> None:
    """Run a text through the model and tell which experts computed it, as JSON. A dense model is upcycled first.

    Example: groundswell model experts model.gguf --prompt "The bridge is open again" --out heat.png
    """
    if bool(prompt) == bool(file):
        fail("give exactly one of --prompt and --file", code=2)
    if out is not None and not out.parent.is_dir():
        fail(f"there is no folder {out.parent}")  # better now than after the model has run
    with _errors_in_one_line():
        from model_runtime.heat_map import save_heat_map
        from model_runtime.route_text import load_and_route

        routed = load_and_route(path, prompt or _text(file))
        if out is not None:
            title = f"{path.name}, {routed.summary.tokens} tokens"
            save_heat_map(routed.summary.use, out, title=title, layers=routed.layers)
    summary = routed.summary
    figures = ("utilisation", "use_entropy", "imbalance")
    print(
        json.dumps({"layers": routed.layers, **asdict(summary), **{name: getattr(summary, name) for name in figures}})
    )


@model_cli.command()
def upcycle(
    source: Source,
    target: Target,
    dtype: Annotated[
        Literal["bfloat16", "float32"], typer.Option(help="Of the matrices that are written.")
    ] = "bfloat16",
) -> None:
    """Turn a dense checkpoint into 8 experts, top-2, with the same output, to train them apart."""
    with _errors_in_one_line(), _progress(f"writing {target}") as advance:
        from model_runtime.convert import upcycle_checkpoint

        written = upcycle_checkpoint(source, target, dtype, advance)
    print(json.dumps({"path": str(target), "bytes": written}))


@model_cli.command()
def quantize(
    source: Source,
    target: Target,
    to: Annotated[Literal["int8", "int4"], typer.Option(help="Bits per weight.", show_default=False)],
) -> None:
    """Write a smaller checkpoint, and tell what that costs: perplexity on a fixed text, beside bfloat16."""
    with _errors_in_one_line():
        from model_runtime.convert import fixed_text_perplexity, quantize_checkpoint

        with _progress(f"writing {target}") as advance:
            written = quantize_checkpoint(source, target, to, advance)
        say(f"written; measuring perplexity of {source.name} in bfloat16 and of {target.name}")
        before, after = fixed_text_perplexity(source, "none"), fixed_text_perplexity(target, to)
    cost = {"bfloat16": before, to: after, "ratio": after / before}
    print(json.dumps({"path": str(target), "bytes": written, "perplexity": cost}))


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    """CheckpointError and every other refusal of bad input is a ValueError."""
    try:
        yield
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except ValueError as error:
        fail(" ".join(str(error).split()))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@contextmanager
def _progress(title: str) -> Iterator[Any]:
    """What to call with (bytes done, bytes in all)."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)


def _text(file: Path | None) -> str:
    assert file is not None
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8: {error.reason} at byte {error.start}") from None
