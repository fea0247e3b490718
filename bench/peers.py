"""Our engine beside llama.cpp and transformers on the same weights: 512 tokens of prompt, 128 new ones, two threads,
for 1, 4 and 16 streams whose prompts share nothing; nobody guesses by prompt look-up. And the upcycled model beside
the dense one."""

from collections.abc import Sequence
from typing import Any

from bench.figures import figure, median, say
from bench.line_up import OURS, TRANSFORMERS, UPCYCLED, LineUp
from bench.prompts import distinct_prompts
from bench.side import Answer, Side

PROMPT_TOKENS, NEW_TOKENS = 512, 128
CONTINUOUS = "continuous batching"
STREAMS = ((1, 5), (4, 2), (16, 2))  # and how often
QUICK_STREAMS, QUICK_TOKENS = ((1, 1), (4, 1)), 8

Player = tuple[Side, dict[str, Any], str]  # what else its jobs say, and its name in the figures


def measure_peers(line_up: LineUp, quick: bool) -> None:
    ours, transformers = line_up.get(OURS, TRANSFORMERS)
    llama_cpp = line_up.llama_cpp()
    for streams, runs in QUICK_STREAMS if quick else STREAMS:
        players: list[Player] = [(ours, {}, OURS), (transformers, {}, f"{transformers.name} generate")]
        if streams > 1:
            players.append((transformers, {"continuous": True}, f"{transformers.name} {CONTINUOUS}"))
        players += [(side, {}, side.name) for side in llama_cpp]
        answers = in_turn(players, line_up, streams, runs, QUICK_TOKENS if quick else NEW_TOKENS)
        agreement(answers)
        mine = answers.pop(OURS)
        for peer, theirs in answers.items():
            report(mine, theirs, {"streams": streams, "peer": peer, "runs": runs, "quick": quick})


def measure_upcycled(line_up: LineUp, quick: bool) -> None:
    """What routing and experts cost when they compute what the dense model computes."""
    upcycled, dense = line_up.get(UPCYCLED, OURS)
    for streams, runs in QUICK_STREAMS if quick else ((1, 5), (16, 3)):
        players: list[Player] = [(upcycled, {}, UPCYCLED), (dense, {}, OURS)]
        answers = in_turn(players, line_up, streams, runs, QUICK_TOKENS if quick else NEW_TOKENS)
        for of in ("ttft", "tpot"):
            ours, theirs = (median([getattr(one, f"{of}_ms") for one in answers[name]]) for name in (UPCYCLED, OURS))
            more: dict[str, Any] = {"of": of, "streams": streams, "peer": "the dense model", "theirs": theirs}
            figure("moe.upcycled_cost", ours, "ms", runs=runs, quick=quick, **more)


def in_turn(
    players: Sequence[Player], line_up: LineUp, streams: int, runs: int, tokens: int
) -> dict[str, list[Answer]]:
    """All answer the same prompts, one after the other; other prompts in every run."""
    answers: dict[str, list[Answer]] = {name: [] for _, _, name in players}
    for run in range(runs):
        prompts = distinct_prompts(line_up.tokenizer, streams, PROMPT_TOKENS, seed=1000 * streams + run)
        for side, more, name in players:
            say(f"{streams} streams, run {run + 1} of {runs}: {name}")
            answers[name].append(side.answer(prompts, tokens, **more))
    return answers


def report(ours: Sequence[Answer], theirs: Sequence[Answer], more: dict[str, Any]) -> None:
    def both(of: str) -> tuple[float, float]:
        mine, other = (median([getattr(answer, of) for answer in answers]) for answers in (ours, theirs))
        return mine, other

    for name, of, unit in (
        ("engine.ttft", "ttft_ms", "ms"),
        ("engine.tpot", "tpot_ms", "ms"),
        ("engine.tokens_per_s", "tokens_per_s", "tokens/s"),
        ("engine.memory_mb", "memory_mb", "MB"),
    ):
        mine, other = both(of)
        figure(name, mine, unit, theirs=other, **more)


def agreement(answers: dict[str, list[Answer]]) -> None:
    """A peer that computes something else would be easy to beat: how far the greedy answers are the same."""
    for name in answers:
        if name != OURS:
            pairs = [
                (mine, other)
                for ours, theirs in zip(answers[OURS], answers[name], strict=True)
                for mine, other in zip(ours.tokens, theirs.tokens, strict=True)
            ]
            same = sum(_common(mine, other) for mine, other in pairs)
            say(f"{name} says what we say for {same} of {sum(len(mine) for mine, _ in pairs)} tokens")


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), len(one))
