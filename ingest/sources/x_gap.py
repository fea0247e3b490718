"""What a stream missed, bought from X's recent search (seven days). Knows no stream."""

from collections.abc import Callable

from ingest.sources.budget import Budget
from ingest.sources.x import Reading
from ingest.sources.x_api_client import XApi
from ingest.sources.x_backoff import XFault
from ingest.sources.x_fetch import READS_A_POST, RECENT, WITH_REFERENCES, fetch
from ingest.sources.x_ids import first_id_at, made_ms

MAX_QUERY = 512
PAGE_LEAST, PAGE_MOST = 10, 100
MAX_PAGES = 5
OVERLAP_MS = 10_000  # the stream is up to 7 s behind, and does not keep the order of ids


class Gap:
    """One is good for one gap. `is_closed`, afterwards: nothing is missing, as far as X can tell."""

    def __init__(self, api: XApi, budget: Budget, read: Callable[[object], Reading]) -> None:
        self._api, self._budget, self._read = api, budget, read
        self._pages_left = MAX_PAGES
        self.is_closed = True

    async def missed(self, rules: tuple[str, ...], last_id: str) -> list[Reading]:
        """A page each, for each rule the oldest first. Of a gap too wide, or too dear, the oldest are missing.

        Never raises on faults of X.
        """
        made = made_ms(last_id)
        if made is None or not rules:
            self.is_closed = False
            return []
        since = {"since_id": first_id_at(made - OVERLAP_MS)}
        found: list[Reading] = []
        for rule in rules:
            pages: list[Reading] = []
            try:
                self.is_closed &= await self._of_rule(WITH_REFERENCES | since | {"query": rule}, pages)
            except XFault:
                self.is_closed = False
            found += reversed(pages)
        return found

    async def _of_rule(self, parameters: dict[str, str], pages: list[Reading]) -> bool:
        """Fills `pages`, the newest first. True when that was all. Raises XFault."""
        while self._pages_left and len(parameters["query"]) <= MAX_QUERY:
            most, least = READS_A_POST * PAGE_MOST, READS_A_POST * PAGE_LEAST
            reservation = self._budget.reserve("stream", most, least=least)
            if reservation is None:
                return False
            self._pages_left -= 1
            size = {"max_results": str(reservation.posts // READS_A_POST)}
            answer, reading = await fetch(
                self._api, RECENT, parameters | size, self._budget, reservation, self._read
            )  # fmt: skip
            pages.append(reading)
            meta = answer.get("meta")
            token = meta.get("next_token") if isinstance(meta, dict) else None
            if not isinstance(token, str) or not token:
                return True
            parameters = parameters | {"next_token": token}
        return False
