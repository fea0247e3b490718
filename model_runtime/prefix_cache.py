"""Which blocks hold which beginnings of token sequences, so that what two prompts share is computed once. Knows neither
who uses a block nor when one is given away."""

import hashlib
import secrets
from array import array
from collections.abc import Sequence

from model_runtime.kv_cache import BLOCK_TOKENS, Boost

_KEY_BYTES = 16


class PrefixCache:
    """A full block's key is a hash of all tokens up to its end, chained block by block. The hash is keyed by a secret
    of this process: nobody can make two prompts meet."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._blocks: dict[bytes, int] = {}
        self._keys: dict[int, bytes] = {}

    def __contains__(self, block: int) -> bool:
        return block in self._keys

    def extend(self, keys: list[bytes], token_ids: Sequence[int], boosts: tuple[Boost, ...] = ()) -> None:
        """Appends the keys of the full blocks of `token_ids` that `keys` lacks. Boosts change what is computed from the
        same tokens, so they are part of the key."""
        before = keys[-1] if keys else repr(boosts).encode() if boosts else b""
        for first in range(len(keys) * BLOCK_TOKENS, len(token_ids) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
            content = before + array("q", token_ids[first : first + BLOCK_TOKENS]).tobytes()
            before = hashlib.blake2b(content, digest_size=_KEY_BYTES, key=self._secret).digest()
            keys.append(before)

    def find(self, keys: Sequence[bytes]) -> list[int]:
        """The blocks of the longest beginning that is there."""
        blocks: list[int] = []
        for key in keys:
            block = self._blocks.get(key)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def put(self, key: bytes, block: int) -> None:
        """`block` holds what `key` names. If another block does already, that one stays the one to find."""
        if key not in self._blocks:
            assert block not in self._keys, f"block {block} has a key already"
            self._blocks[key] = block
            self._keys[block] = key

    def forget(self, block: int) -> None:
        """What the block holds is about to change, or is not to be used again."""
        key = self._keys.pop(block, None)
        if key is not None:
            del self._blocks[key]

    def rename(self, block: int, copy: int) -> None:
        """The block's content is in `copy` from now on."""
        key = self._keys.pop(block, None)
        if key is not None:
            self._blocks[key] = copy
            self._keys[copy] = key

    def clear(self) -> None:
        self._blocks.clear()
        self._keys.clear()
