"""What the group says about the model it serves. Knows no torch and no Ray."""

from dataclasses import dataclass

from model_runtime.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What is served. `context_tokens` is what a prompt and its answer may use together."""

    name: str
    file: str
    context_tokens: int
    vocab: int
    num_experts: int  # 0: dense
    active_experts: int
    shards: int
    dtype: str
    tokenizer: Tokenizer
