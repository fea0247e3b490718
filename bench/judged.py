"""Judged collections: posts, questions, and which posts answer which; and how well an order of posts does."""

import gzip
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

QUICK_YEAR, QUICK_POSTS = 2011, 9_000


@dataclass(frozen=True)
class Collection:
    posts: list[dict[str, Any]]  # _id, text, ts_ms; plain: without the link
    questions: list[dict[str, Any]]  # _id, text, set, query_ts
    grades: dict[str, dict[str, int]]  # question id -> post id -> 1 or 2


def read_trec(folder: Path) -> Collection:
    with gzip.open(folder / "corpus.jsonl.gz", "rt") as lines:
        posts = [json.loads(line) for line in lines]
    for post in posts:
        post["plain"] = post["text"]
        post["text"] = f"{post['text']} {post.get('url_text', '')}".rstrip()  # the link, as a post has it
    questions = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    known = {post["_id"] for post in posts}
    grades: dict[str, dict[str, int]] = defaultdict(dict)
    with gzip.open(folder / "qrels.tsv.gz", "rt") as lines:
        next(lines)
        for line in lines:
            question_id, post_id, grade, _ = line.split()
            if int(grade) > 0 and post_id in known:
                grades[question_id][post_id] = int(grade)
    asked = [question | {"set": f"trec{question['year']}"} for question in questions if question["_id"] in grades]
    return Collection(posts, asked, grades)


def read_claims(folder: Path) -> Collection:
    with gzip.open(folder / "corpus.jsonl.gz", "rt") as lines:
        claims = [json.loads(line) for line in lines]
    first_ms = min(claim["ts_ms"] for claim in claims if claim["ts_ms"])
    for claim in claims:
        claim["ts_ms"] = claim["ts_ms"] or first_ms  # a few are not dated; the time decides nothing here
        claim["plain"] = claim["text"] = f"{claim['title']}. {claim['text']} {claim['subtitle']}"
    grades: dict[str, dict[str, int]] = defaultdict(dict)
    for line in (folder / "qrels.tsv").read_text().splitlines()[1:]:
        question_id, claim_id, grade, split = line.split("\t")
        if split == "test" and int(grade) > 0:
            grades[question_id][claim_id] = int(grade)
    questions = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    asked = [q | {"set": "checkthat2022_2a test"} for q in questions if q["_id"] in grades]
    return Collection(claims, asked, grades)


def sample(whole: Collection) -> Collection:
    questions = [question for question in whole.questions if question["year"] == QUICK_YEAR]
    relevant = {post_id for question in questions for post_id in whole.grades[question["_id"]]}
    last_ms = max(question["query_ts"] for question in questions)
    others = [post for post in whole.posts if post["_id"] not in relevant and post["ts_ms"] <= last_ms]
    step = max(1, len(others) // max(1, QUICK_POSTS - len(relevant)))
    kept = [post for post in whole.posts if post["_id"] in relevant] + others[::step]
    return Collection(kept, questions, whole.grades)


def ndcg10(found: Sequence[str], grades: Mapping[str, int]) -> float:
    return gain(grades.get(post_id, 0) for post_id in found) / gain(sorted(grades.values(), reverse=True))


def gain(grades: Iterable[int]) -> float:
    return math.fsum((2**grade - 1) / math.log2(rank + 2) for rank, grade in zip(range(10), grades, strict=False))


def recall(found: Sequence[str], grades: Mapping[str, int], top: int) -> float:
    return len(grades.keys() & set(found[:top])) / len(grades)


def precision(found: Sequence[str], grades: Mapping[str, int], top: int) -> float:
    return len(grades.keys() & set(found[:top])) / top


def average_precision(found: Sequence[str], grades: Mapping[str, int], top: int) -> float:
    right = [rank for rank, post_id in enumerate(found[:top], 1) if post_id in grades]
    return math.fsum(place / rank for place, rank in enumerate(right, 1)) / min(top, len(grades))
