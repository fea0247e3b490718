"""Guessing ahead changes the speed of an answer and not a bit of it: tokens and their probabilities of the real model
in bfloat16, as it is served."""

import pytest
import torch

from model_runtime.collectives import Meeting, join
from model_runtime.engine import Engine, Submit
from model_runtime.kv_cache import PagedCache
from model_runtime.load import load_model
from model_runtime.request import Finished, GenerationRequest, Sampling, Token
from model_runtime.scheduler import Limits
from model_runtime.tokenizer import Tokenizer

CPU = torch.device("cpu")
POSTS = (
    "[1] @ana: The bridge at Porto Novo is closed since 7:40 after a lorry hit the railing; buses are diverted. "
    "[2] @harbour: A ferry runs every twenty minutes from the old pier until midnight, bicycles travel free of charge. "
    "[3] @city_works: One lane of the bridge at Porto Novo opens at noon, the other lane stays closed until Friday."
)
QUESTIONS = [
    (f"Repeat these posts word for word: {POSTS}", Sampling(max_tokens=40, logprobs=2)),
    (f"{POSTS} What do the posts say about the bridge and the ferry? Quote them.", Sampling(max_tokens=40, logprobs=2)),
    (f"{POSTS} Repeat the second post.", Sampling(max_tokens=32, logprobs=2, temperature=0.7, top_p=0.9, seed=5)),
]


@pytest.fixture(scope="module", params=[False, True], ids=["dense", "experts"])
def model(request, gguf_path):
    return load_model(gguf_path, dtype=torch.bfloat16, device="cpu", upcycle=request.param)


def answer(model, gguf_path, draft_rows: int) -> tuple[list[list[Token]], int]:
    """The tokens of each answer, one after the other, and how many steps they took."""
    meeting = Meeting(1, one_node=True, device=CPU, host="127.0.0.1")
    ranks = join(meeting.rendezvous, 0, CPU, timeout_s=5)
    tokenizer = Tokenizer.from_checkpoint(gguf_path)
    cache = PagedCache(model.config, 64, torch.bfloat16, "cpu")
    engine = Engine(model, cache, tokenizer, ranks, model.config.context_tokens, Limits(draft_rows=draft_rows))
    answers: list[list[Token]] = []
    steps = 0
    for text, sampling in QUESTIONS:
        engine.submit(Submit(GenerationRequest(text, tuple(tokenizer.render([("user", text)])), sampling)))
        items: list[Token | Finished] = []
        while not (items and isinstance(items[-1], Finished)):
            items += [item for _, item in engine.step()]
            steps += 1
        answers.append([item for item in items if isinstance(item, Token)])
    meeting.close()
    return answers, steps


def test_guesses_save_steps_and_change_no_bit(model, gguf_path):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        plain, all_steps = answer(model, gguf_path, draft_rows=1)
        guessed, fewer_steps = answer(model, gguf_path, draft_rows=8)
    finally:
        torch.set_num_threads(threads)
    assert guessed == plain
    assert fewer_steps < 0.8 * all_steps
