"""Text <-> token ids, and a conversation -> the ids of its prompt. Text that users or posts contain never becomes a
control token: only the checkpoint's chat template can write one. Knows no torch."""

import codecs
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from model_runtime.chat_template import STAND_IN, ChatTemplate, TemplateRefused
from model_runtime.gguf_file import CheckpointError, GgufFile
from model_runtime.spelling import Spelling
from model_runtime.tokenizer_files import TokenizerFiles

__all__ = ["Detokenizer", "TemplateRefused", "Tokenizer", "TokenizerFiles"]


class Tokenizer:
    """Byte-level BPE or SentencePiece's vocabularies. Pickles as what the checkpoint says (TokenizerFiles). Raises
    ValueError if that does not hold together."""

    def __init__(self, files: TokenizerFiles) -> None:
        self._files = files
        self._spelling = Spelling(files.spelling)
        self._template = ChatTemplate(files.chat_template, files.names)
        self._marked = {number: token.encode() for token, number in files.marks.items()}
        marks = "|".join(map(re.escape, sorted(files.marks, key=len, reverse=True)))
        self._marks = re.compile(f"({marks})" if marks else "(?!)")
        self.strips_first_space = self._spelling.strips_first_space
        self.eos_ids = files.eos_ids

    @classmethod
    def from_checkpoint(cls, path: Path | str) -> "Tokenizer":
        """Of a GGUF file, or of a folder as Hugging Face has it. Raises CheckpointError if it is damaged or its
        tokenizer is of a kind not known here."""
        path = Path(path)
        files = TokenizerFiles.from_folder(path) if path.is_dir() else TokenizerFiles.from_gguf(GgufFile(path))
        try:
            return cls(files)
        except ValueError as error:
            raise CheckpointError(str(path), f"its tokenizer: {error}") from error

    def __reduce__(self) -> tuple[type["Tokenizer"], tuple[TokenizerFiles]]:
        return Tokenizer, (self._files,)

    def encode(self, text: str) -> list[int]:
        """Never holds a control id, whatever the text spells. What the vocabulary cannot spell becomes U+FFFD."""
        return self._spelling.encode(text)

    def count(self, text: str) -> int:
        return len(self.encode(text))

    def decode(self, ids: Iterable[int]) -> str:
        """Control tokens have no text. A code point whose last bytes are missing at the end is left out."""
        detokenizer = self.detokenizer()
        return "".join([*map(detokenizer.push, ids), detokenizer.finish()])

    def detokenizer(self) -> "Detokenizer":
        return Detokenizer(self)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for; none for a control token, and for an id beyond the vocabulary: models have
        more rows than tokens."""
        if token_id in self._files.silent:
            return b""
        return self._marked.get(token_id) or self._spelling.token_bytes(token_id)

    def render(self, messages: Sequence[tuple[str, str]], add_generation_prompt: bool = True) -> list[int]:
        """The ids of a conversation of (role, text) by the checkpoint's chat template. The template sees a stand-in for
        each text, so its control tokens are known to be its own. Around the seams the ids are those of the whole text.

        Raises TemplateRefused, and ValueError for a role that is not a plain word."""
        written, texts = self._template.write(messages, add_generation_prompt=add_generation_prompt)
        ids = self._encode_written(written, texts)
        first = self._files.first
        return ids if first is None or ids[:1] == [first] else [first, *ids]

    def _encode_written(self, written: str, texts: dict[str, str]) -> list[int]:
        """Texts join what the template wrote around them; control tokens are searched in the template's parts only."""
        ids: list[int] = []
        run: list[str] = []
        starts = True
        for part in STAND_IN.split(written):
            for piece in [texts[part]] if part in texts else self._marks.split(part):
                if part in texts or piece not in self._files.marks:
                    run.append(piece)
                    continue
                text = "".join(run)
                ids += [*self._spelling.encode(text, starts=starts), self._files.marks[piece]]
                starts = False
                run.clear()
        return ids + self._spelling.encode("".join(run), starts=starts)


class Detokenizer:
    """Turns one stream of ids into text as it comes, whole code points only. A space that SentencePiece's
    vocabularies put in front of a text is taken off it again."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._token_bytes = tokenizer.token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._strips_space = tokenizer.strips_first_space

    def push(self, token_id: int) -> str:
        """What can be shown now; empty while a code point is incomplete. Bytes that are no UTF-8 become U+FFFD."""
        letters = self._token_bytes(token_id)
        if letters and self._strips_space:
            letters, self._strips_space = letters.removeprefix(b" "), False
        return self._decoder.decode(letters)

    def finish(self) -> str:
        """What was held back: always empty, because a code point that was cut off is not shown."""
        self._decoder.reset()
        return ""
