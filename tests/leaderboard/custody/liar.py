"""A fork server whose children give forbidden answers, as a compromised child might."""

from __future__ import annotations

import json
import time
from typing import Any

from reveal_leaderboard.custody.fork_server import Job

from reveal_bench.predictions import LintReport

RELEASED: dict[str, Any] = {
    "figures": [
        {"metric": "point_hit", "finding": "macro", "value": 0.5, "low": 0.4, "high": 0.6, "n": "1", "signature": "s"},
        {
            "metric": "point_hit",
            "finding": "Edema",
            "value": 0.5,
            "low": None,
            "high": None,
            "n": "30",
            "signature": "",
        },
    ],
    "shown": ["Edema"],
    "hidden": [],
    "note": "",
    "policy": {},
}
SCORE: dict[str, Any] = {
    "released": RELEASED,
    "final": None,
    "reference_hash": "0" * 64,
    "fingerprint": {"content": "1" * 64, "sketch": [1, 2]},
}
PLACE = {"rank": 1, "rank_low": 1, "rank_high": 1, "tier": "A"}
RANK: dict[str, Any] = {
    "schema": 1, "metric": "f1", "n_resamples": 1, "seed": 0, "paired": False, "findings": [], "entries": {"a": PLACE},
    "computed_for": ["a"], "n_patients": 9, "chance": {"point_hit": 7},
}  # fmt: skip

REPORT = LintReport("f", "csv", 1, (), (), (), {"a": 1}).to_document()

ANSWERS = {
    "nothing": b"",
    "no JSON": b"{",
    "deep": b"[" * 1_000_000,
    "list": b"[]",
    "not a report": json.dumps({"report": {}, "signs": []}).encode(),
    "a text": json.dumps({"report": json.dumps(REPORT), "signs": []}).encode(),
    "more": json.dumps({"report": REPORT, "signs": [], "labels": "canary"}).encode(),
    "more in it": json.dumps({"report": REPORT | {"labels": "canary"}, "signs": []}).encode(),
    "good": json.dumps(SCORE).encode(),
    "another field": json.dumps(SCORE | {"labels": [1]}).encode(),
    "another policy": json.dumps(SCORE).replace('"policy": {}', '"policy": {"min_cell": 1}').encode(),
    "no hash": json.dumps(SCORE | {"reference_hash": "canary"}).encode(),
    "raw value": json.dumps(SCORE).replace("0.5", "0.5123456").encode(),
    "raw interval": json.dumps(SCORE).replace("0.4", "0.4000001").encode(),
    "text value": json.dumps(SCORE).replace("0.5", '"0.5"').encode(),
    "infinite": json.dumps(SCORE).replace("0.5", "Infinity").encode(),
    "hidden finding": json.dumps(SCORE).replace('["Edema"]', "[]").encode(),
    "good rank": json.dumps(RANK).encode(),
    "stranger": json.dumps(RANK | {"entries": {"z": PLACE}}).encode(),
    "schema 2": json.dumps(RANK | {"schema": 2}).encode(),
    "exact chance": json.dumps(RANK | {"chance": {"point_hit": 7.1234}}).encode(),
    "rank 0": json.dumps(RANK | {"entries": {"a": PLACE | {"rank": 0}}}).encode(),
}


def say(arguments: dict[str, Any], files: list[int], shared: Any) -> bytes:
    """Answer by the name under which the upload, or the submission, goes."""
    name = arguments.get("name") or arguments.get("split") or arguments["ids"][1]
    if name == "raise":
        raise KeyError("canary of a reference")
    if name == "memory":
        raise MemoryError
    if name == "sleep":
        time.sleep(600)
    policy = json.dumps(arguments.get("policy", {})).encode()
    return ANSWERS[name].replace(b'"policy": {}', b'"policy": ' + policy)


JOBS: dict[str, Job] = dict.fromkeys(("parse", "score", "rank"), say)


def load_shared(data: bytes) -> None:
    """Nothing is shared."""


def warm_up() -> None:
    """Nothing to warm."""
