"""The allowed locations of holdouts and vaults."""

from __future__ import annotations

import shutil
import stat
import sys
from pathlib import Path

import pytest
from reveal_leaderboard.worker.worker import Vault, open_holdouts

from tests.leaderboard.conftest import BENCHMARK, Board


def test_holdouts_are_known_by_benchmark_and_version(board: Board, tmp_path: Path) -> None:
    holdouts = open_holdouts([(BENCHMARK, board.holdout)], shared=[tmp_path / "data"], vault=None)
    ((key, holdout),) = holdouts.items()
    assert key == (BENCHMARK, board.manifest.version)
    assert holdout.vault.folder == board.holdout.parent / "vault"
    assert stat.S_IMODE(holdout.vault.folder.stat().st_mode) == 0o700


def test_the_salt_of_a_vault_is_made_once(board: Board, tmp_path: Path) -> None:
    for _ in range(2):
        open_holdouts([(BENCHMARK, board.holdout)], shared=[], vault=tmp_path / "vault")
        salt = (tmp_path / "vault" / "salt").read_bytes()
    assert len(salt) == 32
    open_holdouts([(BENCHMARK, board.holdout)], shared=[], vault=tmp_path / "other")
    assert (tmp_path / "vault" / "salt").read_bytes() == salt
    assert (tmp_path / "other" / "salt").read_bytes() != salt


def test_a_holdout_knows_what_files_must_predict(board: Board, tmp_path: Path) -> None:
    (holdout,) = open_holdouts([(BENCHMARK, board.holdout)], shared=[], vault=tmp_path / "vault").values()
    assert holdout.manifest("holdout") == board.manifest
    assert holdout.manifest("holdout") is holdout.manifest("holdout")


def test_places_that_a_server_reads_are_refused(board: Board, tmp_path: Path) -> None:
    one = [(BENCHMARK, board.holdout)]
    for shared in (board.holdout, board.holdout.parent, board.holdout / "inside"):
        with pytest.raises(ValueError, match="holdout must be outside the data folder"):
            open_holdouts(one, shared=[shared], vault=None)
    with pytest.raises(ValueError, match="vault must be outside"):
        open_holdouts(one, shared=[tmp_path], vault=tmp_path / "vault")
    with pytest.raises(ValueError, match="in a folder of programs"):
        open_holdouts(one, shared=[], vault=Path(sys.prefix) / "vault")


def test_folders_that_are_no_holdout_are_refused(board: Board, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be a folder of this benchmark, got a folder of 'chexlocalize'"):
        open_holdouts([("reveal-cxr", board.holdout)], shared=[], vault=None)
    folder = shutil.copytree(board.holdout, tmp_path / "empty")
    shutil.rmtree(folder / "localization")
    with pytest.raises(ValueError, match="must contain the references of its split 'holdout'"):
        open_holdouts([(BENCHMARK, folder)], shared=[], vault=None)
    with pytest.raises(ValueError, match="given twice"):
        open_holdouts([(BENCHMARK, board.holdout)] * 2, shared=[], vault=None)


def test_incidents_are_kept_under_a_number(tmp_path: Path) -> None:
    vault = Vault(tmp_path / "vault")
    number = vault.write_incident("score abc", "Traceback: \ud800 secret")
    assert number.startswith("INC-")
    kept = (tmp_path / "vault" / f"{number}.txt").read_text()
    assert kept == "score abc\nTraceback: \\ud800 secret"
    assert vault.write_incident("x", "y") != number
