"""One answer under way on rank 0: its tokens, its text, and when it ends."""

from model_runtime.grammar import GrammarState
from model_runtime.request import ExpertUse, Finished, FinishReason, GenerationRequest, Token
from model_runtime.sampler import Choice, Draw
from model_runtime.sequence import Sequence
from model_runtime.visible_text import VisibleText


class Answer:
    """`ended`: why it ends; None while it goes on. `lost`: experts that it had to do without."""

    def __init__(
        self,
        request: GenerationRequest,
        sequence: Sequence,
        text: VisibleText,
        grammar: GrammarState | None,
        boosts: tuple[str, ...],
        end_ids: frozenset[int],
    ) -> None:
        self.request, self.sequence = request, sequence
        self.ended: FinishReason | None = None
        self.lost: set[tuple[int, int]] = set()
        self._text, self._grammar, self._boosts, self._end_ids = text, grammar, boosts, end_ids
        self._generated: list[int] = []

    @property
    def draw(self) -> Draw:
        """What its next token depends on, besides the logits."""
        return Draw(
            sampling=self.request.sampling,
            position=len(self._generated),
            prompt_ids=self.request.prompt_ids,
            generated=self._generated,
            grammar=self._grammar,
        )

    @property
    def why_none(self) -> str:
        """What is to be told when there is no next token."""
        if self._grammar is not None:
            return "no token can follow: the model's output is not a number, or the grammar became too complex"
        return "the model's output is not a number"

    def push(self, choice: Choice) -> Token | None:
        """The next token, unless it is one that only ends the answer."""
        assert choice.id is not None and self.ended is None
        if choice.id in self._end_ids:
            self.ended = "stop"
            return None
        self.sequence.accept(choice.id)
        return Token(choice.id, self._show(choice.id), choice.logprob)

    def replay(self, token_id: int) -> None:
        """A token that was handed out before a restart; the sequence has it already."""
        self._show(token_id)

    def finished(self, reason: FinishReason, experts: ExpertUse | None) -> Finished:
        return Finished(
            reason,
            prompt_tokens=len(self.request.prompt_ids),
            completion_tokens=len(self._generated),
            text=self._text.finish(),
            cached_tokens=self.sequence.shared_tokens or 0,
            experts=experts,
        )

    def expert_use(self, tokens: tuple[tuple[int, ...], ...]) -> ExpertUse:
        return ExpertUse(tokens, self._boosts, tuple(sorted(self.lost)))

    def _show(self, token_id: int) -> str:
        self._generated.append(token_id)
        text = self._text.push(token_id)
        if self._grammar is not None:
            self._grammar.advance(token_id)
        if self._text.stopped or (self._grammar is not None and self._grammar.is_done):
            self.ended = "stop"
        elif len(self._generated) >= self.request.sampling.max_tokens:
            self.ended = "length"
        return text
