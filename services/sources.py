"""A network's name -> its client, with the files that it keeps. Each client is imported when it is asked for."""

import time
from typing import TYPE_CHECKING

from ingest.sources.arrival import Source
from services.settings import Settings

if TYPE_CHECKING:
    from ingest.sources.aliases import Aliases
    from ingest.sources.budget import Budget
    from ingest.sources.x_published import Published
    from ingest.sources.x_search import XSearch

SOURCES = ("bluesky", "mastodon", "x", "rss")


def source_for(name: str, settings: Settings) -> Source:
    """Connects to nothing yet. Raises ValueError for settings that cannot be used, OSError and sqlite3.Error for files
    that cannot."""
    if name == "bluesky":
        from ingest.sources.bluesky_client import BlueskySource

        return BlueskySource(settings.bluesky)
    if name == "mastodon":
        from ingest.sources.mastodon_client import MastodonSource

        return MastodonSource(settings.mastodon, _aliases(settings, name))
    if name == "x":
        from ingest.sources.x_client import XSource

        return XSource(settings.x, _aliases(settings, name), _x_budget(settings), _x_published(settings))
    if name == "rss":
        from ingest.sources.rss_client import RssSource

        return RssSource(settings.rss)
    raise ValueError(f"there is no source {name!r}; there are {', '.join(SOURCES)}")


def x_search_for(settings: Settings) -> "XSearch":
    """Shares the budget, and what is known of posts, with the stream. Raises what `source_for` does."""
    from ingest.sources.x_search import XSearch

    return XSearch(settings.x, _aliases(settings, "x"), _x_budget(settings), _x_published(settings))


def _aliases(settings: Settings, name: str) -> "Aliases":
    from ingest.sources.aliases import Aliases

    return Aliases(settings.cursors_dir / f"{name}-aliases.sqlite")


def _x_budget(settings: Settings) -> "Budget":
    from ingest.sources.budget import Budget

    x = settings.x
    return Budget(settings.cursors_dir / "x-budget.sqlite", x.daily_posts, x.daily_usd, x.usd_per_post, time.time)


def _x_published(settings: Settings) -> "Published":
    from ingest.sources.x_published import Published

    return Published(settings.cursors_dir / "x-published.sqlite")
