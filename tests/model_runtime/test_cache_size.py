"""The cache takes what is useful and fits, whatever the model."""

import torch

from model_runtime.cache_size import CPU_CACHED_TOKENS, affordable_blocks
from model_runtime.families import ModelConfig
from model_runtime.kv_cache import BLOCK_TOKENS

CPU = torch.device("cpu")


def config(context_tokens: int, layers: int) -> ModelConfig:
    return ModelConfig(layers, 64, 4, 4, 16, 128, 100, context_tokens, 1e-5, tied_embeddings=True)


def test_a_small_model_gets_room_for_several_conversations_or_one_long_one():
    assert affordable_blocks(config(2048, 2), torch.float32, CPU, 2) == CPU_CACHED_TOKENS // BLOCK_TOKENS
    assert affordable_blocks(config(32768, 2), torch.float32, CPU, 2) == 32768 // BLOCK_TOKENS


def test_a_large_model_gets_what_fits_shared_by_the_ranks_of_the_node():
    huge = config(8192, 4_000_000)
    alone, shared = (affordable_blocks(huge, torch.float32, CPU, ranks) for ranks in (1, 4))
    assert 1 <= shared <= max(1, alone // 4) and alone < CPU_CACHED_TOKENS // BLOCK_TOKENS
    assert affordable_blocks(config(8192, 10**9), torch.float32, CPU, 1) == 1
