"""What every test of X's clients needs: settings with a token, a clock that sleeping moves, files in one folder."""

import asyncio
from collections import Counter
from contextlib import aclosing

from ingest.settings import XSettings
from ingest.sources.aliases import Aliases
from ingest.sources.budget import Budget
from ingest.sources.x_published import Published

TOKEN = "AAAAAAAAAAAAAAAAAAAAAAAA"
NOON_S = 1_783_166_400.0  # 2026-07-04T12:00:00Z
NOON_MS = int(NOON_S * 1000)


class Clock:
    def __init__(self):
        self.now_s = NOON_S
        self.slept = []

    def __call__(self):
        return self.now_s

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.now_s += seconds
        await asyncio.sleep(0)


class Parts:
    """The shared pieces of one installation, in one folder."""

    def __init__(self, folder, url, *, token=TOKEN, **settings):
        (folder / "token").write_text(token + "\n")
        limits = {"daily_posts": 1000, "daily_usd": 100.0, **settings}
        self.settings = XSettings(url=url, token_file=folder / "token", **limits)
        self.clock = Clock()
        self.failed = Counter()
        self.aliases = Aliases(folder / "aliases.sqlite")
        self.published = Published(folder / "published.sqlite")
        one = self.settings
        self.budget = Budget(
            folder / "budget.sqlite", one.daily_posts, one.daily_usd, one.usd_per_post, self.clock
        )  # fmt: skip

    @property
    def all(self):
        return self.settings, self.aliases, self.budget, self.published

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.aliases.close()
        self.published.close()


async def first(source, count, cursor=None):
    """So many arrivals, then the source is closed."""
    arrivals = []
    async with asyncio.timeout(20), aclosing(source.arrivals(cursor)) as coming:
        while len(arrivals) < count:
            arrivals.append(await anext(coming))
    return arrivals


def texts(arrivals):
    return [getattr(record, "text", record) for arrival in arrivals for record in arrival.records]
