import json
import os
import re
import subprocess
import sys
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import ingest.sources.sample as sample
from ingest.sources.sample import (
    NOW,
    Question,
    Story,
    off_topic_questions,
    orders,
    planted_pii,
    post_stories,
    sample_records,
    stories,
)
from ingest.sources.sample.people import people

Record = dict[str, Any]

RESERVED = {
    "email": r"[\w.]+@example\.(?:com|org)",
    "phone": r"(?:\(\d{3}\) |\d{3}-)555-01\d\d|\+44 20 7946 0\d{3}",
    "card": r"4111 1111 1111 1111|5555 5555 5555 4444|3782 822463 10005",
    "iban": r"GB82 WEST 1234 5698 7654 32|DE89 3704 0044 0532 0130 00|SA03 8000 0000 6080 1016 7519",
    "ip": r"(?:192\.0\.2|198\.51\.100|203\.0\.113)\.\d{1,3}",
}
# Wider than any reserved range: whatever looks like a personal detail at all.
SUSPICIOUS = re.compile(
    r"[\w.+-]+@[\w-]+\.\w+"
    r"|\b[A-Z]{2}\d{2} ?(?:[A-Z0-9]{4} ?){3,}[A-Z0-9]*"
    r"|\b\d{1,3}(?:\.\d{1,3}){3}\b"
    r"|\+?\(?\d(?:[\s().-]{0,2}\d){8,}"
)


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return sample_records()


@pytest.fixture(scope="module")
def told() -> dict[str, str]:
    """Post id -> the story's slug."""
    return post_stories()


@pytest.fixture(scope="module")
def posts(records: list[Record]) -> list[Record]:
    """The first version of every post, in order."""
    return [record["post"] for record in records if record["post"] and not record["post"]["edited_at"]]


@pytest.fixture(scope="module")
def newest(records: list[Record]) -> dict[str, Record]:
    """The last version of every post, deleted or not."""
    return {record["id"]: record["post"] for record in records if record["post"]}


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_the_feed_is_large_enough_and_speaks_six_languages(posts: list[Record]) -> None:
    assert len(posts) >= 2000
    assert len({post["id"] for post in posts}) == len(posts)
    shares = {lang: count / len(posts) for lang, count in Counter(post["lang"] for post in posts).items()}
    assert set(shares) == {"en", "es", "de", "zh", "ja", "ar"}
    assert min(shares.values()) >= 0.05
    assert max(shares, key=lambda lang: shares[lang]) == "en"


def test_a_dozen_stories_are_told_and_a_third_is_small_talk(posts: list[Record], told: dict[str, str]) -> None:
    sizes = Counter(told[post["id"]] for post in posts)
    assert set(sizes) == {story.slug for story in stories()} | {""}
    assert 12 <= len(stories()) <= 14
    assert min(sizes.values()) >= 60
    assert 1 / 3 <= sizes[""] / len(posts) <= 1 / 2
    for lang in ("en", "es", "de", "zh", "ja", "ar"):
        assert sum(lang in story.languages for story in stories()) >= 2
    for story in stories():
        assert 5 <= len(story.beats) <= 10
        spoken = Counter(post["lang"] for post in posts if told[post["id"]] == story.slug)
        assert set(spoken) == set(story.languages)
        assert spoken[story.languages[0]] == max(spoken.values())


def test_about_two_hundred_accounts_each_with_one_handle_and_one_id(posts: list[Record]) -> None:
    authors = {(post["author"]["id"], post["author"]["handle"], post["author"]["name"]) for post in posts}
    assert 180 <= len(authors) <= 260
    for part in range(2):
        assert len({author[part] for author in authors}) == len(authors)
    assert all(re.fullmatch(r"[a-z0-9.-]+\.example", handle) for _, handle, _ in authors)


def test_people_post_replies_quotes_reposts_repeats_edits_and_deletions(records: list[Record]) -> None:
    posts = [record["post"] for record in records if record["post"] and not record["post"]["edited_at"]]
    assert sum(bool(post["reply_to"]) for post in posts) >= 150
    assert sum(bool(post["quote_of"]) for post in posts) >= 30
    assert sum(bool(post["repost_of"]) for post in posts) >= 100
    assert sum(bool(record["post"] and record["post"]["edited_at"]) for record in records) >= 40
    assert sum(record["post"] is None for record in records) >= 25
    said = [post["text"] for post in posts if not post["repost_of"]]
    assert 10 <= len(said) - len(set(said)) <= 100
    near = [
        text for text in set(said) if any(text != other and text in other and len(text) > 30 for other in set(said))
    ]
    assert len(near) >= 10


def test_the_same_seed_gives_the_same_bytes_whatever_the_hash_seed() -> None:
    code = (
        "import hashlib, json; from ingest.sources.sample import sample_records;"
        "print(hashlib.sha256(json.dumps(sample_records()).encode()).hexdigest())"
    )
    root = Path(__file__).parents[2]
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=root,
            env={"PATH": os.environ["PATH"], "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1
    assert sample_records() == sample_records(7)
    assert sample_records(8) != sample_records(7)


def test_a_caller_that_changes_its_records_changes_nobody_elses(records: list[Record]) -> None:
    before = json.dumps(records)
    mine = sample_records()
    mine[0]["post"]["engagement"]["likes"] = -1
    mine[0]["post"]["text"] = ""
    assert json.dumps(sample_records()) == before


def test_records_are_in_order_around_now_and_keep_flowing_after_it(records: list[Record]) -> None:
    times = [moment(record["at"]) for record in records]
    assert times == sorted(times)
    assert NOW - timedelta(hours=6) <= times[0] < NOW - timedelta(hours=5, minutes=45)
    assert NOW + timedelta(hours=1, minutes=45) < times[-1] < NOW + timedelta(hours=2)
    windows = Counter((at - NOW) // timedelta(minutes=5) for at in times)
    assert all(windows[number] >= 15 for number in range(24)), "a demo would stand still"
    assert all(windows[number] >= 5 for number in range(-71, 0))


def test_every_record_is_a_topic_object(records: list[Record]) -> None:
    for record in records:
        assert set(record) == {"at", "id", "post"}
        assert re.fullmatch(r"sample:[2-7a-z]{13}", record["id"])
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record["at"])
        post = record["post"]
        if post is None:
            continue
        assert set(post) == {
            *("id", "source", "version", "author", "text", "lang", "url", "created_at", "edited_at"),
            *("reply_to", "quote_of", "repost_of", "labels", "consent", "engagement"),
        }
        native = record["id"].removeprefix("sample:")
        assert post["id"] == record["id"] and post["source"] == "sample"
        assert post["url"] == f"https://social.example/@{post['author']['handle']}/{native}"
        assert post["text"].strip() == post["text"] != ""
        at_us = (moment(record["at"]) - datetime.fromisoformat("1970-01-01T00:00:00Z")) // timedelta(microseconds=1)
        assert post["version"] == str(at_us)
        assert record["at"] == (post["edited_at"] or post["created_at"])
        assert set(post["engagement"]) == {"likes", "reposts", "replies", "views"}
        assert isinstance(post["consent"]["indexable"], bool)
    assert json.loads(json.dumps(records)) == records


def test_every_reference_points_to_a_post_that_stood_at_that_time(records: list[Record]) -> None:
    standing: dict[str, Record] = {}
    for record in records:
        post = record["post"]
        if post is None:
            assert record["id"] in standing, "a deletion of nothing"
            del standing[record["id"]]
            continue
        before = standing.get(record["id"])
        assert bool(before) == bool(post["edited_at"])
        if before:
            assert int(post["version"]) > int(before["version"])
            assert post["text"] != before["text"]
            assert post["created_at"] == before["created_at"] and post["author"] == before["author"]
        for kind in ("reply_to", "quote_of", "repost_of"):
            if post[kind] and not before:
                assert post[kind] in standing, f"{kind} of {post['text']!r} points nowhere"
        if post["repost_of"]:
            assert post["text"] == standing[post["repost_of"]]["text"]
            assert post["author"] != standing[post["repost_of"]]["author"]
        standing[record["id"]] = post
    for post in standing.values():
        assert not post["repost_of"] or post["repost_of"] in standing, "a repost outlived its original"


def test_engagement_counts_what_the_feed_contains(posts: list[Record]) -> None:
    for kind, count in (("reply_to", "replies"), ("repost_of", "reposts")):
        found = Counter(post[kind] for post in posts if post[kind])
        assert all(post["engagement"][count] == found[post["id"]] for post in posts)


@pytest.mark.parametrize("planted", planted_pii(), ids=lambda planted: f"{planted.kind}-{planted.lang}-{planted.story}")
def test_planted_details_are_reserved_values_and_stand_in_one_indexable_post(
    planted: sample.Planted, records: list[Record]
) -> None:
    assert re.fullmatch(RESERVED[planted.kind], planted.value)
    assert planted.value in planted.text and planted.value not in planted.ask
    bearers = [record["post"] for record in records if record["post"] and planted.value in record["post"]["text"]]
    assert [(post["text"], post["lang"], post["consent"]["indexable"]) for post in bearers] == [
        (planted.text, planted.lang, True)
    ]


def test_nothing_else_in_the_feed_looks_like_a_personal_detail(records: list[Record]) -> None:
    planted = {entry.value for entry in planted_pii()}
    assert {entry.kind for entry in planted_pii()} == set(RESERVED)
    found = {match[0] for record in records if record["post"] for match in SUSPICIOUS.finditer(record["post"]["text"])}
    assert len(found) >= len(planted)
    assert [value for value in found if not any(part in value or value in part for part in planted)] == []


def test_orders_to_the_model_are_in_the_feed_in_every_language(posts: list[Record]) -> None:
    texts = {post["text"] for post in posts}
    assert all(order.text in texts and order.value in order.text for order in orders())
    assert {order.lang for order in orders()} == {"en", "es", "de", "zh", "ja", "ar"}


def cases() -> list[Any]:
    return [
        pytest.param(story, question, id=f"{story.slug}-{question.lang}-{number}")
        for story in stories()
        for number, question in enumerate(story.questions)
    ]


@pytest.mark.parametrize(("story", "question"), cases())
def test_the_newest_official_post_carries_the_facts_and_nothing_outdated(
    story: Story, question: Question, posts: list[Record], newest: dict[str, Record], told: dict[str, str]
) -> None:
    announced = [
        newest[post["id"]]
        for post in posts
        if post["author"]["handle"] in story.officials
        and post["lang"] == question.lang
        and told[post["id"]] == story.slug
        and not post["reply_to"]
    ]
    *earlier, last = [post["text"] for post in announced]
    assert all(fact in last for fact in question.facts)
    assert not any(stale in last for stale in question.outdated)
    said_before = [post["text"] for post in posts if told[post["id"]] == story.slug]
    assert all(any(stale in text for text in said_before) for stale in question.outdated)
    assert earlier, "a story develops"


def test_each_story_offers_a_few_questions_in_its_languages() -> None:
    for story in stories():
        assert 2 <= len(story.questions) <= 5
        assert {question.lang for question in story.questions} <= set(story.languages)
        assert all(question.facts for question in story.questions)
    assert sum(bool(question.outdated) for story in stories() for question in story.questions) >= 15


def test_nothing_in_the_feed_touches_the_off_topic_questions(posts: list[Record]) -> None:
    assert len(off_topic_questions()) >= 10
    assert {question.lang for question in off_topic_questions()} == {"en", "es", "de", "zh", "ja", "ar"}
    feed = "\n".join(post["text"] for post in posts).lower()
    for absent in (
        *(
            "championship",
            "copper",
            "volcano",
            "torvane",
            "space opera",
            "portrait",
            "velden",
            "satellite was",
            "orbit",
        ),
        *("novela", "aceite", "präsidentin", "leitzins", "黄金", "ロケット", "الهجن"),
    ):
        assert absent not in feed


def test_no_template_shows(posts: list[Record]) -> None:
    for post in posts:
        assert not re.search(r"[{}|]|\[(?!/?INST)", post["text"]), post["text"]
        assert "  " not in post["text"]


def test_nobody_is_made_findable_against_their_will(posts: list[Record]) -> None:
    hidden = [post for post in posts if not post["consent"]["indexable"]]
    assert len({post["author"]["id"] for post in hidden}) == 4
    assert 10 <= len(hidden) <= 100
    assert not {post["author"]["handle"] for post in hidden} & {desk.handle for desk in people().desks.values()}


def test_the_package_stays_small() -> None:
    folder = Path(sample.__file__).parent
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.suffix in {".py", ".json"}) < 400_000
