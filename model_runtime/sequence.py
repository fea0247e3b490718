"""One request's tokens and what the cache holds of them, as the scheduler sees it."""

from dataclasses import dataclass, field

from model_runtime.block_pool import BlockTable
from model_runtime.draft import PromptLookup
from model_runtime.kv_cache import BLOCK_TOKENS, Boost, Span


@dataclass(slots=True, eq=False)
class Sequence:
    """`token_ids`: the prompt, then what was generated; at most `capacity`. The first `cached` are in the cache.

    `alone`: never computed together with others, and always in the same portions. `lookup` None: no drafts.
    `shared_tokens`: how many of the prompt's were in the cache when it first ran; None before."""

    id: str
    token_ids: list[int]
    prompt_tokens: int
    capacity: int
    boosts: tuple[Boost, ...] = ()
    alone: bool = False
    lookup: PromptLookup | None = None
    shared_tokens: int | None = None
    cached: int = 0
    table: BlockTable = field(default_factory=BlockTable)
    keys: list[bytes] = field(default_factory=list)  # of its full blocks, as far as they were made
    named: int = 0  # blocks that can be found by their key
    is_running: bool = False
    is_started: bool = False  # it has looked for its beginning in the cache
    found: int = 0  # tokens of it that were there then
    last_turn: int = 0

    @property
    def missing(self) -> int:
        """Tokens to compute before there is a next one."""
        return len(self.token_ids) - self.cached

    @property
    def shareable(self) -> list[bytes]:
        """Keys of the blocks it could do without computing: its last token is always computed, for its logits."""
        return self.keys[: (len(self.token_ids) - 1) // BLOCK_TOKENS]

    def accept(self, token_id: int) -> None:
        """The next token, chosen from logits or guessed and confirmed: all before it are in the cache then."""
        self.cached = len(self.token_ids)
        self.token_ids.append(token_id)

    def span(self, length: int, drafted: int = 0) -> Span:
        needed = blocks_for(self.cached + length)
        return Span(tuple(self.table.blocks[:needed]), self.cached, length, 1 + drafted, self.boosts)


def blocks_for(tokens: int) -> int:
    return -(-tokens // BLOCK_TOKENS)
