"""Token ids -> the text that may be shown: whole code points only, and nothing of a stop string."""

from collections.abc import Sequence

from model_runtime.tokenizer import Detokenizer, Tokenizer


class VisibleText:
    """Holds back the end of the text while it could still become a stop string. Where several could end the text, the
    one that is complete first does, so that the result is the same however the text is cut into tokens."""

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str]) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.stopped = False

    def push(self, token_id: int) -> str:
        """What can be shown now. Sets `stopped` when a stop string is complete; nothing is shown after that."""
        return self._show(self._detokenizer.push(token_id))

    def finish(self) -> str:
        """What is still held back, at the end of an answer that was not stopped."""
        if self.stopped:
            return ""
        shown = self._show(self._detokenizer.finish())
        return shown if self.stopped else shown + self._held

    def _show(self, text: str) -> str:
        assert not self.stopped
        self._held += text
        start = self._stop_start()
        if start is not None:
            self.stopped = True
            shown, self._held = self._held[:start], ""
        else:
            cut = len(self._held) - self._possible_stop()
            shown, self._held = self._held[:cut], self._held[cut:]
        return shown

    def _stop_start(self) -> int | None:
        """Where the first complete stop string begins; of two that end together, the longer."""
        found = [(start + len(stop), start) for stop in self._stops if (start := self._held.find(stop)) >= 0]
        return min(found)[1] if found else None

    def _possible_stop(self) -> int:
        """The length of the longest end of the held text that a stop string begins with."""
        longest = min(len(self._held), max(map(len, self._stops), default=0))
        lengths = range(longest, 0, -1)
        return next((n for n in lengths if any(stop.startswith(self._held[-n:]) for stop in self._stops)), 0)
