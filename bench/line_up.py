"""Which engines take part, and where their processes are. Each starts when a part of the bench first asks for it, and
stays to the end."""

import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from bench.figures import say
from bench.prompts import distinct_prompts
from bench.side import Side
from model_runtime.tokenizer import Tokenizer

OURS, UPCYCLED, TWO_SHARDS = "ours", "ours, upcycled", "ours, upcycled, two shards"
TRANSFORMERS = "transformers"
LLAMA_CPP, LLAMA_CPP_Q4_0 = "llama.cpp", "llama.cpp, Q4_0 copy"
SIDES = {  # what runs, with which options
    OURS: ("ours", "--dense"),
    UPCYCLED: ("ours",),
    TWO_SHARDS: ("ours", "--shards", "2"),
    TRANSFORMERS: ("hugging_face",),
    LLAMA_CPP: ("llama_cpp",),
    LLAMA_CPP_Q4_0: ("llama_cpp", "--q4_0"),
}


class LineUp:
    """`peers`: the folder of the environment with llama-cpp-python (`make peers`)."""

    def __init__(self, model: Path, peers: Path) -> None:
        self.model = model
        self.tokenizer = Tokenizer.from_checkpoint(model)
        self._peers_python = peers / "bin/python"
        self._sides: dict[str, Side] = {}
        self._open = ExitStack()

    def __enter__(self) -> "LineUp":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def llama_cpp(self) -> list[Side]:
        """On the file itself and on a faster copy; none when it is missing, which is said with what to do about it."""
        if self._peers_python.exists():
            return self.get(LLAMA_CPP, LLAMA_CPP_Q4_0)
        say(f"llama.cpp is left out: {self._peers_python} is missing; `make peers` builds it in some ten minutes")
        return []

    def get(self, *names: str) -> list[Side]:
        """Loaded and warm, in the order of the names. Those that are new load at the same time."""
        new = {name: self._start(name) for name in names if name not in self._sides}
        for name, side in new.items():
            ready = side.ready()
            say(f"{name} ({side.name}): loaded in {ready['load_s']:.1f} s, {ready['memory_mb']:.0f} MB at most")
        self._sides |= new
        for side in new.values():
            side.answer(distinct_prompts(self.tokenizer, 2, 128, seed=0), 4)
        return [self._sides[name] for name in names]

    def _start(self, name: str) -> Side:
        module, *options = SIDES[name]
        python = self._peers_python if module == "llama_cpp" else Path(sys.executable)
        return self._open.enter_context(Side(name, python, f"bench.sides.{module}", str(self.model), *options))
