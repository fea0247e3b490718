"""How far a load has come, for those who wait for it: a bar on a terminal, else lines in the log."""

import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

PATIENCE_S = 2.0  # a load that takes no longer says nothing
_LOGGED_PERCENT = 10

logger = logging.getLogger(__name__)


class LoadProgress:
    """Bytes loaded of `total_bytes`. Shows nothing before PATIENCE_S have passed, and nothing ever unless `shown`."""

    def __init__(
        self,
        name: str,
        total_bytes: int,
        stream: TextIO,
        shown: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._total, self._stream, self._shown, self._clock = name, total_bytes, stream, shown, clock
        self._done = self._logged_percent = 0
        self._begun = clock()
        self._bar: Progress | None = None

    def advance(self, num_bytes: int) -> None:
        self._done += num_bytes
        if not self._shown or self._clock() - self._begun < PATIENCE_S:
            return
        if self._stream.isatty():
            self._show()
        else:
            self._log()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _show(self) -> None:
        if self._bar is None:
            columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
            self._bar = Progress(*columns, console=Console(file=self._stream))
            self._bar.add_task(f"loading {self._name}", total=self._total)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=self._done)

    def _log(self) -> None:
        percent = 100 * self._done // self._total
        if percent >= self._logged_percent + _LOGGED_PERCENT:
            self._logged_percent = percent
            logger.info("loading %s: %d %% of %d MB", self._name, percent, self._total // 1_000_000)
