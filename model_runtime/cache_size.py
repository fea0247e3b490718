"""How many blocks the paged cache of a shard may have. Knows no ranks but their number."""

import os
from pathlib import Path

import torch

from model_runtime.families import ModelConfig
from model_runtime.kv_cache import BLOCK_TOKENS

CPU_CACHED_TOKENS = 16_384  # eight conversations of 2,048; a CPU is too slow to use more at once
CPU_MEMORY_SHARE = 0.2  # of the node's memory, for the caches of all its ranks
GPU_CACHED_SEQUENCES = 64  # of full length
GPU_MEMORY_SHARE = 0.85  # of what is free after loading


def affordable_blocks(config: ModelConfig, dtype: torch.dtype, device: torch.device, ranks_on_node: int) -> int:
    """`config` is the shard's own. As many as are useful (one whole context at least), at most as many as fit."""
    block_bytes = BLOCK_TOKENS * config.layers * 2 * config.kv_heads * config.head_dim * dtype.itemsize
    if device.type == "cuda":
        budget = torch.cuda.mem_get_info(device)[0] * GPU_MEMORY_SHARE
        useful = GPU_CACHED_SEQUENCES * config.context_tokens
    else:
        budget = _node_memory_bytes() * CPU_MEMORY_SHARE / ranks_on_node
        useful = max(CPU_CACHED_TOKENS, config.context_tokens)
    return max(1, min(useful // BLOCK_TOKENS, int(budget / block_bytes)))


def _node_memory_bytes() -> int:
    """What the machine has, or what the container may use."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.exists() else "max"
    return machine if text == "max" else min(machine, int(text))
