"""A tokenizer small enough to see through, for tests of grammars that need no checkpoint."""

from collections.abc import Iterable

CONTROL, END = 256, 257
WORDS = (b'{"', b'":', b'"}', b"true", "\u00e9".encode(), b"  ", b'"name"', b"{")  # the last is a byte's token again


class ByteVocabulary:
    """An id for each byte, a control token, one that ends an answer, and some longer tokens. `space_in_front`: encodes
    a text as SentencePiece's vocabularies do. `free`: ids without text before the longer tokens."""

    eos_ids = frozenset({END})

    def __init__(self, *, space_in_front: bool = False, free: int = 0) -> None:
        self._space = b" " if space_in_front else b""
        self.tokens = [*(bytes([byte]) for byte in range(256)), b"", b"", *[b""] * free, *WORDS]

    def token_bytes(self, token_id: int) -> bytes:
        return self.tokens[token_id] if token_id < len(self.tokens) else b""

    def encode(self, text: str) -> list[int]:
        return list(self._space + text.encode())

    def decode(self, ids: Iterable[int]) -> bytes:
        return b"".join(map(self.token_bytes, ids))
