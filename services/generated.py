"""The tokens of one answer as they come: how many, and how they end."""

from collections.abc import Sequence

from model_runtime.request import Finished, Token

TIMES = 3
SHORTEST_CHARS, LONGEST_CHARS = 8, 160


class Generated:
    """Counts the tokens of one answer and keeps its end. `looped`: it began to repeat itself, which ends it too."""

    def __init__(self) -> None:
        self.tokens = self.echo_chars = 0
        self.end: Finished | None = None
        self.looped = False
        self._repetition = _Repetition()

    @property
    def ended(self) -> bool:
        return self.end is not None or self.looped

    def take(self, batch: Sequence[Token | Finished]) -> str:
        """The batch's text, as far as it is no repetition; `echo_chars` of earlier batches are one as well then."""
        text = ""
        for item in batch:
            if isinstance(item, Finished):
                self.end = item
            else:
                self.tokens += 1
            text += item.text
            if echo := self._repetition.push(item.text):
                self.looped, self.echo_chars = True, max(0, echo - len(text))
                return text[: max(0, len(text) - echo)]
        return text

    def cut_by(self, stop: tuple[str, ...]) -> tuple[str, ...] | None:
        """What cut the answer, for TokenWindow.finish. The engine does not tell a stop string from the end token."""
        if self.looped or self.end is None or self.end.reason != "stop":
            return ()
        return stop or None


class _Repetition:
    """Sees a small model say the same phrase for ever. Looks at the last few hundred characters of the answer only: a
    token costs the same wherever it stands."""

    def __init__(self) -> None:
        self._tail = ""

    def push(self, text: str) -> int:
        """How many characters at the end only say the phrase before them again, once it stands there three times; 0
        as long as it does not. A phrase has a letter: a ruled line is no repetition."""
        self._tail = (self._tail + text)[-max(TIMES * LONGEST_CHARS, len(text)) :]
        size = len(self._tail)
        for period in range(SHORTEST_CHARS, min(LONGEST_CHARS, size // TIMES) + 1):
            start = size - TIMES * period
            if self._tail[start : size - period] == self._tail[start + period :]:
                phrase = self._tail[size - period :]
                if any(map(str.isalpha, phrase)):
                    return (TIMES - 1) * period
        return 0
