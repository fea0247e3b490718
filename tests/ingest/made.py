"""Posts, passages and matches for tests, with everything filled in that a test does not care about."""

import hashlib

import numpy as np

from ingest.post import Author, Match, Passage, Post, account_of

DIM = 384
NOW_MS = 1_900_000_000_000


def found(post_id, text, *, score=0.5, author="", sort_ms=0, repost_of=None, number=0):
    return Match(
        post_id=post_id,
        number=number,
        text=text,
        source="test",
        author_id=author or f"author of {post_id}",
        author_handle="",
        author_name="",
        url="",
        lang="en",
        created_ms=sort_ms,
        sort_ms=sort_ms,
        version_us=1,
        score=score,
        why={"bm25": score, "cosine": 1.0, "words": 1.0},
        repost_of=repost_of,
    )


def vector(seed):
    """[384] unit length, the same for the same seed."""
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(repr(seed).encode()).digest()[:8]))
    row = rng.normal(size=DIM)
    return tuple((row / np.linalg.norm(row)).tolist())


def post(post_id, text, *, version_us=1, ms=NOW_MS, lang="en", author="ana", source="test", **fields):
    fields.setdefault("account", account_of(source, author))
    return Post(
        id=post_id,
        source=source,
        version_us=version_us,
        text=text,
        created_ms=ms,
        received_ms=ms,
        author=Author(author, f"{author}.example", author.title()),
        lang=lang,
        url=f"https://social.example/{author}",
        **fields,
    )


def passages(post_id, *texts, **fields):
    """One version of a post in as many pieces as there are texts."""
    whole = post(post_id, " ".join(texts), **fields)
    return [Passage(whole, number, text, vector(text)) for number, text in enumerate(texts)]
