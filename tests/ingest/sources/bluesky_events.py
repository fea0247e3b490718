"""Jetstream events for tests: real ones from the shared data, made ones, and the same in v2's form."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[4] / "shared/data/retrieval"
CORPUS = SHARED / "jetstream_corpus"
DID = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
TIME_US = 1_783_175_888_090_631  # 2026-07-04T14:38:08.090631Z
REV = "3mptbypcq372f"
RKEY = "3mptbyoeyc22k"
TID_DIGITS = "234567abcdefghijklmnopqrstuvwxyz"


def shared(path):
    if not path.exists():
        pytest.skip(f"{path} is absent")
    return path


def real_events():
    return [json.loads(line) for line in shared(CORPUS / "expected_v1.jsonl").read_bytes().splitlines()]


def vectors(kind):
    """(valid, invalid) lines of one syntax, comments and blank lines left out."""
    return tuple(
        [
            line
            for line in shared(SHARED / f"atproto_syntax_vectors/{kind}_syntax_{side}.txt").read_text().split("\n")
            if line.strip() and not line.startswith("# ")
        ]
        for side in ("valid", "invalid")
    )


def tid(us):
    number = us << 10
    return "".join(TID_DIGITS[number >> shift & 31] for shift in range(60, -1, -5))


def commit(
    record=None, *, operation="create", collection="app.bsky.feed.post", rkey=RKEY, rev=REV, did=DID, us=TIME_US
):
    """A v1 event; `record` None has none, as a deletion."""
    body = {"rev": rev, "operation": operation, "collection": collection, "rkey": rkey}
    if record is not None:
        body |= {"record": {"$type": collection, "createdAt": "2026-07-04T14:38:06.240Z", **record}, "cid": "bafyreia"}
    return {"did": did, "time_us": us, "kind": "commit", "commit": body}


def account(active, status=None, *, did=DID, us=TIME_US, seq=7):
    body = {"active": active, "did": did, "seq": seq, "time": "2026-07-04T14:38:07.877Z"}
    return {
        "did": did,
        "time_us": us,
        "kind": "account",
        "account": body | ({} if status is None else {"status": status}),
    }


def identity(handle=None, *, did=DID, us=TIME_US, seq=8):
    body = {"did": did, "seq": seq, "time": "2026-07-04T14:38:07.877Z"}
    return {
        "did": did,
        "time_us": us,
        "kind": "identity",
        "identity": body | ({} if handle is None else {"handle": handle}),
    }


def in_v2(event, seq):
    """The same event as a v2 server frames it."""
    seconds, us = divmod(event["time_us"], 1_000_000)
    time = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{us:06d}Z"
    kind = event["kind"]
    body = event[kind] if kind == "commit" else {kind: event[kind]}
    payload = {"$type": f"network.bsky.jetstream.subscribeEvents#{kind}", "seq": seq, "did": event["did"], "time": time}
    return {"$type": "message", "payload": payload | body}


def frame_of(event):
    return json.dumps(event, ensure_ascii=False).encode()
