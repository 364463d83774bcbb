"""Receipts of final scores: signed and shown together with them, and not before."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from reveal_leaderboard.release import receipts
from reveal_leaderboard.store import boards
from reveal_leaderboard.store.audit import audit
from reveal_leaderboard.store.scores import Score
from reveal_leaderboard.store.submissions import Submission
from reveal_leaderboard.store.tables import receipts as table
from reveal_leaderboard.store.tables import scores

from reveal_bench.exchange.receipts import FINAL_SCHEMA, SCHEMA, receipt_hash, verify_receipt
from tests.leaderboard.api_app import SUBMISSIONS, Person, World, kept_world, problem, sent, world
from tests.leaderboard.conftest import BENCHMARK as SERVED_BENCHMARK
from tests.leaderboard.databases import on_both
from tests.leaderboard.filled_board import VERSION, FilledBoard, filled

__all__ = ["filled", "kept_world", "world"]

PUBLIC, FINAL = 0.93, 0.21


def files(board: FilledBoard, submission_id: str) -> list[dict[str, Any] | None]:
    with board.store.read() as connection:
        return [receipts.receipt_file(connection, submission_id, VERSION, part) for part in ("public", "final")]


def without_final_receipts(board: FilledBoard) -> str:
    """Final figures as they were written before they were signed."""

    def public_alone(connection: sa.Connection, submission: Submission, score: Score) -> None:
        if score.part == "public":
            receipts.append(connection, board.signer, submission, score)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(board, "sign", public_alone)
        return board.score_next(PUBLIC, final=FINAL)


def problems(board: FilledBoard) -> list[str]:
    with board.store.read() as connection:
        return [problem.text for problem in audit(connection).problems]


@on_both
def test_each_part_has_a_receipt_of_its_kind_in_one_chain(filled: FilledBoard) -> None:
    done = filled.score_next(PUBLIC, final=FINAL)
    public, final = files(filled, done)
    key = filled.signer.public_key_text
    documents = [verify_receipt(file, key).receipt for file in (public, final)]
    assert verify_receipt(final, key, previous=public).is_from_trusted_key
    assert [(one["number"], one["schema"], one["part"]) for one in documents] == [
        (5, SCHEMA, "public"),
        (6, FINAL_SCHEMA, "final"),
    ]
    assert [one["released"]["figures"][0]["value"] for one in documents] == ["0.93", "0.21"]
    assert set(documents[1]) - set(documents[0]) == {"blind"}
    assert problems(filled) == []


def test_what_is_held_back_has_no_final_receipt(filled: FilledBoard) -> None:
    done = filled.score_next(0.1, final=FINAL)
    score = filled.store.score_of(done)
    assert score.is_held
    public, final = files(filled, done)
    assert (public is None, final) == (False, None)
    assert problems(filled) == []


def test_a_hash_does_not_give_its_figures_away(filled: FilledBoard) -> None:
    """The next receipt contains the hash; anyone who knows everything else could otherwise try scores until the hash
    matches.
    """
    done = filled.score_next(PUBLIC, final=FINAL)
    with filled.store.read() as connection:
        row = connection.execute(sa.select(scores).where(scores.c.part == "final")).one()
        submission = filled.store.get(done)
    assert submission is not None
    with filled.store.engine.connect() as connection:
        hashes = []
        for _ in range(2):  # the very same facts at the same place, twice
            connection.execute(table.delete().where(table.c.part == "final"))
            again = receipts.append(connection, filled.signer, submission, Score(**row._mapping))
            hashes.append(again.hash)
            document = json.loads(again.document)
            connection.rollback()
    assert hashes[0] != hashes[1]
    assert len(bytes.fromhex(document.pop("blind"))) == 32
    assert receipt_hash(document) not in hashes


CHANGES: dict[str, tuple[Callable[[sa.Connection], object], str]] = {
    "figure": (
        lambda c: c.execute(scores.update().where(scores.c.part == "final").values(released={"figures": []})),
        "final part: `released` differs from its receipt",
    ),
    "score-removed": (
        lambda c: c.execute(scores.delete().where(scores.c.part == "final")),
        "final part: there is a receipt, but no score",
    ),
    "receipt-removed": (
        lambda c: c.execute(table.delete().where(table.c.part == "final")),
        "final part: its score has no receipt",
    ),
    "receipt-moved": (
        lambda c: c.execute(table.update().where(table.c.part == "final").values(version="0.9.0")),
        "receipt 6 does not match its row",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_an_audit_checks_final_figures_before_anybody_sees_them(filled: FilledBoard, name: str) -> None:
    change, text = CHANGES[name]
    filled.score_next(PUBLIC, final=FINAL)
    with filled.store.write() as connection:
        change(connection)
    assert any(text in problem for problem in problems(filled)), problems(filled)


@on_both
def test_a_final_score_without_a_receipt_is_reported(filled: FilledBoard) -> None:
    done = without_final_receipts(filled)
    assert problems(filled) == [f"submission {done} on {VERSION}, final part: its score has no receipt"]


# Over the API --------------------------------------------------------------------------------------------------------


def score(world: World, file: Path, model: str, value: float, final: float | None, signer: receipts.Signer) -> str:
    """A submission that is scored and signed, as by a worker."""
    uid = sent(world, file, model)
    world.score(uid, value, final=final, sign=lambda c, submission, one: receipts.append(c, signer, submission, one))
    return uid


def test_a_final_receipt_is_shown_when_its_figures_are(
    world: World, write_file: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "vault").mkdir(mode=0o700)
    signer = receipts.Signer(tmp_path / "vault")
    plain = score(world, write_file(seed=1), "Plain", 0.47, None, signer)
    pointer = score(world, write_file(seed=2), "Pointer", 0.62, 0.38, signer)
    after = score(world, write_file(seed=3), "Later", 0.77, 0.33, signer)
    with world.services.store.read() as connection:
        rows = connection.execute(sa.select(table).where(table.c.part == "final").order_by(table.c.id)).all()
    assert [row.submission_id for row in rows] == [pointer, after]

    def ask(one: str, who: Person | None = None) -> Any:
        return world.client(who).get(f"{SUBMISSIONS}/{one}/receipt?part=final")

    nothing = problem(ask(plain), 404, "not-found")
    for who in (None, world.other, world.owner, world.admin):
        assert problem(ask(pointer, who), 404, "not-found") == nothing
    paths = [f"{SUBMISSIONS}/{one}{end}" for one in (plain, pointer, after) for end in ("", "/events", "/receipt")]
    texts = [world.client(world.owner).get(path).text for path in (*paths, "/api/v1/keys")]
    for row in rows:
        hidden = json.loads(row.document)
        assert not any(hidden["blind"] in text or row.signature in text for text in texts)
    assert not any("0.38" in text or "0.33" in text for text in texts)

    with world.services.store.write() as connection:
        boards.set_state(connection, SERVED_BENCHMARK, "closed", who="cli:test", why="the round is over")
    [key] = world.client().get("/api/v1/keys").json()["keys"]
    document = ask(pointer).json()
    receipt = verify_receipt(document, key["public_key"]).receipt
    assert (receipt["part"], receipt["submission"]) == ("final", pointer)
    assert receipt["released"]["figures"][0]["value"] == "0.38"
    following = world.client().get(f"{SUBMISSIONS}/{after}/receipt?part=public").json()
    assert verify_receipt(following, key["public_key"], previous=document).is_from_trusted_key
    assert problem(ask(plain), 404, "not-found") == nothing
