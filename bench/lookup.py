"""What prompt look-up gains on our own prompts: the same answers with it and without it, one stream, times of decoding
only. Answers that are still running at the limit are left out: a small model that repeats itself is easy to guess."""

from collections.abc import Sequence
from typing import Any

from bench.figures import figure, median, say
from bench.line_up import OURS, LineUp
from bench.rag_prompts import quoting_prompts, rag_prompts
from bench.side import Answer, Side

MOST_TOKENS = 256


def measure_lookup(line_up: LineUp, quick: bool) -> None:
    (ours,) = line_up.get(OURS)
    sets = {
        "answers from posts": rag_prompts(line_up.tokenizer),
        "answers that quote posts": quoting_prompts(line_up.tokenizer),
    }
    for name, prompts in sets.items():
        chosen = prompts[::7] if quick else prompts
        say(f"look-up: {name}, {len(chosen)} prompts")
        pairs = [(_one(ours, prompt, False), _one(ours, prompt, True)) for prompt in chosen]
        report(name, pairs, quick)


def _one(side: Side, prompt: list[int], lookup: bool) -> Answer:
    return side.answer([prompt], MOST_TOKENS, may_end=True, lookup=lookup)


def report(name: str, pairs: Sequence[tuple[Answer, Answer]], quick: bool) -> None:
    ended = [pair for pair in pairs if all(3 <= len(answer.tokens[0]) < MOST_TOKENS for answer in pair)]
    same = sum(plain.tokens == guessed.tokens for plain, guessed in ended)
    say(f"look-up: {len(pairs) - len(ended)} of {len(pairs)} answers did not end, {same} of {len(ended)} are the same")
    if not ended:
        return
    gains = [per_token(plain) / per_token(guessed) for plain, guessed in ended]
    all_plain, all_guessed = (sum(per_token(pair[k]) * len(pair[k].tokens[0]) for pair in ended) for k in (0, 1))
    more: dict[str, Any] = {"set": name, "answers": len(ended), "in_all": round(all_plain / all_guessed, 3)}
    steps = sum(len(set(guessed.times[0])) - 1 for _, guessed in ended)
    more["tokens_per_step"] = round(sum(len(guessed.tokens[0]) - 1 for _, guessed in ended) / steps, 3)
    figure("engine.lookup_gain", median(gains), "times", runs=1, quick=quick, **more)


def per_token(answer: Answer) -> float:
    times = answer.times[0]
    return (times[-1] - times[0]) / (len(times) - 1)
