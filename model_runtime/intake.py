"""A request -> the answer that begins, or a refusal of that request alone."""

import logging

from model_runtime.answer import Answer
from model_runtime.boosts import Boosts
from model_runtime.draft import PromptLookup
from model_runtime.grammar import GrammarCompiler
from model_runtime.request import GenerationRequest, UnusableRequest
from model_runtime.sequence import Sequence
from model_runtime.tokenizer import Tokenizer
from model_runtime.visible_text import VisibleText

logger = logging.getLogger(__name__)

# What a tokenizer or a grammar raises when it cannot cope with what a request brought.
REQUEST_ERRORS = (ArithmeticError, LookupError, RuntimeError, ValueError)


class Intake:
    def __init__(self, tokenizer: Tokenizer, vocab: int, boosts: Boosts | None) -> None:
        self._tokenizer, self._vocab, self._boosts = tokenizer, vocab, boosts
        self._grammars = GrammarCompiler(tokenizer)

    def answer(self, request: GenerationRequest, generated: tuple[int, ...]) -> Answer:
        """`generated`: its tokens before a restart; it may have ended with them. Raises UnusableRequest."""
        self._check_ids(request)
        try:
            return self._begin(request, generated)
        except REQUEST_ERRORS as error:
            logger.warning("request %s cannot be used: %s", request.id, type(error).__name__)
            raise UnusableRequest(f"the request cannot be used: {error}") from error

    def _check_ids(self, request: GenerationRequest) -> None:
        if min(request.prompt_ids) < 0 or max(request.prompt_ids) >= self._vocab:
            raise UnusableRequest(f"the prompt has ids outside the vocabulary of {self._vocab}")
        if any(token_id >= self._vocab for token_id, _ in request.sampling.logit_bias):
            raise UnusableRequest(f"logit_bias has ids outside the vocabulary of {self._vocab}")

    def _begin(self, request: GenerationRequest, generated: tuple[int, ...]) -> Answer:
        sampling, token_ids = request.sampling, [*request.prompt_ids, *generated]
        grammar = self._grammars.compile(sampling.grammar) if sampling.grammar is not None else None
        boosts = self._boosts.for_prompt(self._tokenizer.decode(request.prompt_ids)) if self._boosts else ()
        sequence = Sequence(
            request.id,
            token_ids,
            prompt_tokens=len(request.prompt_ids),
            capacity=len(request.prompt_ids) + sampling.max_tokens,
            boosts=tuple(boost for _, boost in boosts),
            alone=sampling.deterministic,
            lookup=None if sampling.deterministic or grammar is not None else PromptLookup(token_ids),
        )
        answer = Answer(
            request,
            sequence,
            VisibleText(self._tokenizer, sampling.stop),
            grammar,
            tuple(name for name, _ in boosts),
            self._tokenizer.eos_ids | frozenset(sampling.stop_ids),
        )
        for token_id in generated:
            answer.replay(token_id)
        return answer
