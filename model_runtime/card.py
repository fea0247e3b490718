"""What the group says about the model it serves. Knows no torch and no Ray."""

from dataclasses import dataclass

from model_runtime.estimate import TokenEstimate
from model_runtime.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What is served. `context_tokens` is what a prompt and its answer may use together. Of a model behind another
    server, only the name, the server (`file`) and the context are known: no vocabulary, experts or shards, and an
    estimate for a tokenizer."""

    name: str
    file: str
    context_tokens: int
    vocab: int
    num_experts: int  # 0: dense
    active_experts: int
    shards: int
    dtype: str
    tokenizer: Tokenizer | TokenEstimate
