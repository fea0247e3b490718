"""`groundswell search`: the posts that bear on a question, asked of a running service."""

import json
from datetime import UTC, datetime
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console
from rich.text import Text

from services.terminal import fail, settings_or_exit

TIMEOUT_S = 60.0

Many = list[str]


def search(
    query: Annotated[str, typer.Argument(help='What to look for; words such as "since 9am" limit the time.')],
    limit: Annotated[int, typer.Option(min=1, max=50, help="How many posts.")] = 10,
    since: Annotated[str, typer.Option(help="RFC 3339; not before it.")] = "",
    until: Annotated[str, typer.Option(help="RFC 3339; not after it.")] = "",
    source: Annotated[Many, typer.Option(help="Only from this network; may be repeated.")] = [],  # noqa: B006
    author: Annotated[Many, typer.Option(help="Only by this id or handle; may be repeated.")] = [],  # noqa: B006
    without_author: Annotated[Many, typer.Option(help="Not by this one; may be repeated.")] = [],  # noqa: B006
    language: Annotated[Many, typer.Option(help="Only in this language; may be repeated.")] = [],  # noqa: B006
    conversation: Annotated[str, typer.Option(help="Only in the thread that began with this post.")] = "",
    key: Annotated[str, typer.Option(help="An API key, where the service asks for one.")] = "",
    url: Annotated[str, typer.Option(help="The service; the configured one unless given.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as it came.")] = False,
) -> None:
    """Show the posts that bear on a question, best first, and why.

    Examples: groundswell search "bridge closed in the last hour"; groundswell search storm --source bluesky --json
    """
    lists = {"sources": source, "authors": author, "without_authors": without_author, "languages": language}
    texts = {"since": since, "until": until, "conversation": conversation}
    body: dict[str, Any] = {"query": query, "limit": limit}
    body |= {name: value for name, value in {**lists, **texts}.items() if value}
    answer = _ask(url or settings_or_exit().http.base_url, body, key)
    if as_json:
        print(json.dumps(answer, ensure_ascii=False))
    else:
        _show(answer)


def _ask(url: str, body: dict[str, Any], key: str) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        response = httpx.post(f"{url}/v1/search", json=body, headers=headers, timeout=TIMEOUT_S, trust_env=False)
    except httpx.HTTPError as error:
        fail(f"no answer from {url} ({type(error).__name__}): is the service running?")
    if response.status_code != 200:
        try:
            reason = response.json()["error"]["message"]
        except (ValueError, KeyError, TypeError):
            reason = f"status {response.status_code}"
        fail(reason)
    answer: dict[str, Any] = response.json()
    return answer


def _show(answer: dict[str, Any]) -> None:
    console = Console(highlight=False)
    if (limits := answer["time_filter"]) is not None:
        console.print(Text(f'"{limits["words"]}": {limits["since"] or "..."} to {limits["until"] or "..."}', "italic"))
    if not answer["data"]:
        console.print("No recent posts about this.")
    for number, match in enumerate(answer["data"], 1):
        author = match["author"]["handle"] or match["author"]["name"] or match["source"]
        when = datetime.fromisoformat(match["created_at"]).astimezone(UTC)
        head = f"{number}. @{author}, {when:%Y-%m-%d %H:%M} UTC, score {match['score']:.3f}"
        console.print(Text(_printable(head), "bold"))
        console.print(Text(_printable(match["text"])))
        console.print(Text(f"   {'; '.join(match['reasons'])}", "dim"))
        if match["url"]:
            console.print(Text(f"   {_printable(match['url'])}", "dim"))


def _printable(text: str) -> str:
    """Without control characters: neither a post nor its author's name may drive the terminal they are shown on."""
    return "".join(char if char.isprintable() or char == "\n" else " " for char in text)
