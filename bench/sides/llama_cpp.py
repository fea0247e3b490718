"""llama.cpp on the same GGUF file, through llama-cpp-python's binding of its C API. Needs nothing but that package: it
runs in an environment of its own (`make peers`).

The batches are those of llama.cpp's own server, with its sizes: a step holds the next token of every running stream,
and fills up with the prompts of the others, first come first served. Each stream has a cache of its own (kv_unified
off: prompts share nothing); flash attention is left to its own choice. Greedy: the highest logit, found by numpy,
without its sampler chain.

    PEERS/bin/python -m bench.sides.llama_cpp MODEL [--q4_0]

`--q4_0` converts the weights to the layout that it multiplies fastest, and a little is lost.
"""

import argparse
import ctypes
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp as ll
import numpy as np

from bench.side import THREADS, Stopwatch, serve

CONTEXT_MULTIPLE = 256
BATCH_TOKENS, AT_ONCE_TOKENS = 2048, 512  # of llama-server


@dataclass(slots=True)
class Stream:
    prompt: list[int]
    wanted: int
    cached: int = 0
    last: int = -1  # the token to feed next, once the prompt is in
    generated: int = 0

    @property
    def prompt_left(self) -> int:
        return max(0, len(self.prompt) - self.cached)


class Batch:
    """A llama_batch that is filled again for every step."""

    def __init__(self, tokens: int) -> None:
        self._raw = ll.llama_batch_init(tokens, 0, 1)
        self._size = tokens
        self.used = 0

    @property
    def room(self) -> int:
        return self._size - self.used

    def add(self, token_id: int, position: int, stream: int, logits: bool) -> None:
        at, raw = self.used, self._raw
        raw.token[at], raw.pos[at], raw.logits[at] = token_id, position, logits
        raw.n_seq_id[at] = 1
        raw.seq_id[at][0] = stream
        self.used += 1

    def decode(self, context: Any) -> None:
        self._raw.n_tokens = self.used
        if ll.llama_decode(context, self._raw) != 0:
            raise RuntimeError("llama_decode failed")

    def free(self) -> None:
        ll.llama_batch_free(self._raw)


def run(context: Any, vocab: int, never: list[int], job: dict[str, Any]) -> Stopwatch:
    streams = [Stream(prompt, job["tokens"]) for prompt in job["prompts"]]
    batch = Batch(BATCH_TOKENS)
    watch = Stopwatch(len(streams))
    while any(stream.generated < stream.wanted for stream in streams):
        chosen = fill(batch, streams)
        batch.decode(context)
        picked = []
        for row, number in chosen:
            logits = np.ctypeslib.as_array(ll.llama_get_logits_ith(context, row), (vocab,))
            logits[never] = -np.inf
            picked.append((number, int(logits.argmax())))
        now = time.perf_counter()
        for number, token_id in picked:
            streams[number].last = token_id
            streams[number].generated += 1
            watch.note(number, token_id, now)
    batch.free()
    return watch


def fill(batch: Batch, streams: list[Stream]) -> list[tuple[int, int]]:
    """(row, stream) of every logit that is wanted."""
    batch.used = 0
    chosen: list[tuple[int, int]] = []
    for number, stream in enumerate(streams):
        if not stream.prompt_left and stream.generated < stream.wanted:
            chosen.append((batch.used, number))
            batch.add(stream.last, stream.cached, number, True)
            stream.cached += 1
    for number, stream in enumerate(streams):
        part = min(stream.prompt_left, batch.room)
        for position in range(stream.cached, stream.cached + part):
            ends = position == len(stream.prompt) - 1
            if ends:
                chosen.append((batch.used, number))
            batch.add(stream.prompt[position], position, number, ends)
        stream.cached += part
    return chosen


def new_context(model: Any, streams: int, tokens: int) -> Any:
    each = -(-tokens // CONTEXT_MULTIPLE) * CONTEXT_MULTIPLE
    params = ll.llama_context_default_params()
    params.n_ctx, params.n_seq_max = each * streams, streams
    params.n_batch, params.n_ubatch = BATCH_TOKENS, AT_ONCE_TOKENS
    params.n_threads = params.n_threads_batch = THREADS
    params.kv_unified = False
    params.no_perf = True
    context = ll.llama_init_from_model(model, params)
    assert context, "llama_init_from_model failed"
    return context


def as_q4_0(path: Path, folder: Path) -> Path:
    params = ll.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize, params.nthread = ll.LLAMA_FTYPE_MOSTLY_Q4_0, True, THREADS
    copy = folder / "q4_0.gguf"
    failed = ll.llama_model_quantize(str(path).encode(), str(copy).encode(), ctypes.byref(params))
    assert not failed, f"{path} could not be converted"
    return copy


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("--q4_0", action="store_true")
    given = parser.parse_args()

    def load() -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
        ll.llama_log_set(_quiet, ctypes.c_void_p(0))
        ll.llama_backend_init()
        with tempfile.TemporaryDirectory() as folder:
            path = as_q4_0(given.path, Path(folder)) if given.q4_0 else given.path
            started = time.perf_counter()
            model = ll.llama_model_load_from_file(str(path).encode(), ll.llama_model_default_params())
        assert model, f"{path} could not be loaded"
        vocab = ll.llama_model_get_vocab(model)
        size = ll.llama_vocab_n_tokens(vocab)
        never = [token_id for token_id in range(size) if ll.llama_vocab_is_eog(vocab, token_id)]

        def work(job: dict[str, Any]) -> dict[str, Any]:
            longest = max(map(len, job["prompts"])) + job["tokens"]
            context = new_context(model, len(job["prompts"]), longest)
            watch = run(context, size, never, job)
            ll.llama_free(context)
            return {"times": watch.times, "tokens": watch.tokens}

        name = f"llama.cpp {ll.__version__}" + ", Q4_0 copy" * given.q4_0
        return {"name": name, "load_s": time.perf_counter() - started}, work

    serve(load)


@ll.llama_log_callback
def _quiet(level: int, text: bytes, user_data: Any) -> None:
    if level >= 4:  # errors; 2 and 3 tell how a model is loaded
        print(text.decode(errors="replace"), end="")


if __name__ == "__main__":
    main()
