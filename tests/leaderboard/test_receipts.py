"""Receipts as the board signs them, and keys that take each other's place."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
import sqlalchemy as sa
from reveal_leaderboard.release import receipts
from reveal_leaderboard.store.tables import receipts as table

from reveal_bench.exchange.receipts import GENESIS, ReceiptError, verify_receipt
from tests.leaderboard.conftest import at_once
from tests.leaderboard.databases import on_both
from tests.leaderboard.filled_board import BENCHMARK, VERSION, FilledBoard, filled

__all__ = ["filled"]


def vault(tmp_path: Path) -> Path:
    folder = tmp_path / "keys"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@on_both
def test_every_scored_submission_has_a_receipt_that_holds(filled: FilledBoard) -> None:
    with filled.store.read() as connection:
        n = connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
    assert n == 4
    previous, hashes = None, []
    for submission in filled.store.list_submissions():
        if submission.status != "scored":
            continue
        with filled.store.read() as connection:
            file = receipts.receipt_file(connection, submission.id, VERSION)
        assert file is not None
        verified = verify_receipt(file, filled.signer.public_key_text, previous=previous, file_sha256=submission.sha256)
        assert verified.is_from_trusted_key
        assert (verified.receipt["submission"], verified.receipt["benchmark"]) == (submission.id, BENCHMARK)
        hashes.append(verified.receipt["previous"])
        previous = file
    assert hashes[0] == GENESIS
    assert len(set(hashes)) == 4


def test_a_receipt_says_what_is_shown_with_its_decimals(filled: FilledBoard) -> None:
    first, held, *_ = filled.store.list_submissions()
    with filled.store.read() as connection:
        receipt = (receipts.receipt_file(connection, held.id, VERSION) or {})["receipt"]
    assert receipt["shown_of"] == first.id
    assert receipt["team"] == "Example Laboratory"
    assert receipt["released"]["figures"][0] == {
        "metric": "point_hit", "finding": "macro", "value": "0.47", "low": "0.42", "high": "0.52", "n": "4 findings",
        "signature": "point_hit|v:1",
    }  # fmt: skip
    assert receipt["released"]["hidden"] == ["Pneumothorax"]


def test_what_has_no_score_has_no_receipt(filled: FilledBoard) -> None:
    waiting = next(one for one in filled.store.list_submissions() if one.status == "queued")
    with filled.store.read() as connection:
        assert receipts.receipt_file(connection, waiting.id, VERSION) is None
        assert receipts.receipt_file(connection, "0" * 32, VERSION) is None


def test_a_receipt_is_undone_with_its_transaction(filled: FilledBoard) -> None:
    before = filled.all_rows()
    submission = filled.store.list_submissions()[0]
    score = filled.store.score_of(submission.id)
    with filled.store.engine.connect() as connection:
        connection.execute(table.delete().where(table.c.submission_id == submission.id))
        assert receipts.append(connection, filled.signer, submission, score).id == 5
        connection.rollback()
    assert filled.all_rows() == before


@on_both
def test_receipts_of_two_keys_are_one_chain(filled: FilledBoard) -> None:
    old = filled.signer.public_key_text
    filled.signer.rotate()
    sent = filled.score_next(0.93)
    with filled.store.read() as connection:
        file = receipts.receipt_file(connection, sent, VERSION)
        keys = receipts.public_keys(connection)
    assert file is not None
    assert verify_receipt(file, old).is_from_trusted_key
    assert verify_receipt(file, filled.signer.public_key_text).is_from_trusted_key
    assert [(key.public_key, key.first, key.last) for key in keys] == [
        (old, 1, 4),
        (filled.signer.public_key_text, 5, 5),
    ]


def test_a_stranger_s_key_is_not_a_successor(filled: FilledBoard, tmp_path: Path) -> None:
    stranger = receipts.Signer(vault(tmp_path))
    filled.signer.rotate()
    sent = filled.score_next(0.93)
    with filled.store.read() as connection:
        file = receipts.receipt_file(connection, sent, VERSION)
    assert file is not None
    with pytest.raises(ReceiptError, match="neither the trusted key"):
        verify_receipt(file, stranger.public_key_text)


def test_a_worker_is_told_that_another_vault_signed_before(filled: FilledBoard, tmp_path: Path) -> None:
    """A mistyped --vault is a new vault with a new key, and what it signs no audit finds intact."""
    filled.signer.rotate()  # a successor of the last key is not a stranger's
    stranger = receipts.Signer(tmp_path)
    with filled.store.read() as connection:
        for signer, others in ((filled.signer, []), (stranger, [(BENCHMARK, VERSION)])):
            signers = {(BENCHMARK, VERSION): signer, (BENCHMARK, "9.9.9"): signer}
            assert receipts.with_other_keys(connection, signers) == others


def test_the_key_is_made_once_and_is_its_owner_s(tmp_path: Path) -> None:
    folder = vault(tmp_path)
    signers = at_once(lambda _: receipts.Signer(folder), range(8))
    assert len({signer.public_key_text for signer in signers}) == 1
    assert [path.name for path in folder.iterdir()] == ["receipt-key.json"]
    assert stat.S_IMODE((folder / "receipt-key.json").stat().st_mode) == 0o600


def test_a_rotation_forgets_the_old_key(tmp_path: Path) -> None:
    signer = receipts.Signer(vault(tmp_path))
    file = tmp_path / "keys" / "receipt-key.json"
    old = json.loads(file.read_text())["private"]
    signer.rotate()
    assert old not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    signer = receipts.Signer(vault(tmp_path))
    (tmp_path / "keys" / "receipt-key.json").chmod(0o640)
    with pytest.raises(ValueError, match="readable by its owner only"):
        _ = signer.public_key_text


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"private": "AAAA", "succession": []}', b"[]"], ids=["empty", "no-key", "short", "list"]
)
def test_a_key_file_without_a_key_is_refused(tmp_path: Path, content: bytes) -> None:
    file = vault(tmp_path) / "receipt-key.json"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(ValueError, match="contains no receipt key"):
        receipts.Signer(file.parent)
