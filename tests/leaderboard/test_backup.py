"""Backups are restored, and the restored board is the same."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reveal_leaderboard.store import backup as backups
from reveal_leaderboard.store.backup import BackupError, backup, restore
from reveal_leaderboard.store.blobs import Blobs
from reveal_leaderboard.store.queue import Queue
from reveal_leaderboard.store.store import Store

from tests.leaderboard.databases import DATABASE_SOURCE, each_database_kind
from tests.leaderboard.filled_board import FilledBoard, filled

__all__ = ["each_database_kind", "filled"]
ON_SQLITE = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)


def empty_place(board: FilledBoard, tmp_path: Path) -> tuple[str, Path]:
    folder = tmp_path / "restored"
    folder.mkdir()
    return DATABASE_SOURCE.empty(board.store.engine.dialect.name, folder), folder / "blobs"


def test_restore_drill(filled: FilledBoard, tmp_path: Path) -> None:
    before = filled.all_rows()
    made = backup(filled.url, filled.blobs.url, tmp_path / "copies" / "monday")
    assert made.report.ok
    filled.send(b"after the backup", "Model G")
    url, blobs = empty_place(filled, tmp_path)
    restored = restore(made.folder, url, blobs)
    assert restored.report.problems == ()
    assert restored.report.counts["uploads"] == 6
    again = FilledBoardView(url, blobs)
    assert FilledBoard.all_rows(again) == before  # type: ignore[arg-type]
    for submission in again.store.list_submissions():
        if submission.status == "scored":
            assert again.store.score_of(submission.id) == filled.store.score_of(submission.id)
        for name in (submission.sha256, submission.canonical or ""):
            with again.blobs.open_local(name) as path, filled.blobs.open_local(name) as original:
                assert path.read_bytes() == original.read_bytes()
    again.store.engine.dispose()


class FilledBoardView:
    """A restored board, to be compared."""

    def __init__(self, url: str, blobs: Path) -> None:
        self.store, self.blobs = Store(url), Blobs(blobs)


def after_more(board: FilledBoard, act: Callable[..., Any]) -> Callable[..., Any]:
    """Run `act`, but send and score something before it."""

    def late(*arguments: Any, **options: Any) -> Any:
        board.send(act.__name__.encode(), act.__name__)
        board.score_next(0.93)
        return act(*arguments, **options)

    return late


def test_the_manifest_tells_the_heads_of_the_copy(
    filled: FilledBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The board continues while it is copied: later changes are neither in the copy nor in its manifest."""
    copied_at = filled.all_rows()
    stored = {f"blobs/{name}" for one in filled.store.list_submissions() for name in (one.sha256, one.canonical)}
    with monkeypatch.context() as patched:
        for name in ("_dump_postgresql", "audit"):  # SQLite copies before there is anything to be late for
            patched.setattr(backups, name, after_more(filled, getattr(backups, name)))
        made = backup(filled.url, filled.blobs.url, tmp_path / "copy")
    assert filled.all_rows() != copied_at
    url, blobs = empty_place(filled, tmp_path)
    restored = restore(made.folder, url, blobs)
    assert restored.report.problems == ()
    again = FilledBoardView(url, blobs)
    assert FilledBoard.all_rows(again) == copied_at  # type: ignore[arg-type]
    again.store.engine.dispose()
    assert made.manifest["audit"]["heads"] == restored.report.to_json()["heads"]
    assert {name for name in made.manifest["files"] if name.startswith("blobs/")} == stored


def test_a_restored_board_goes_on(filled: FilledBoard, tmp_path: Path) -> None:
    made = backup(filled.url, filled.blobs.url, tmp_path / "copy")
    url, blobs = empty_place(filled, tmp_path)
    restore(made.folder, url, blobs)
    filled.store.engine.dispose()
    filled.store, filled.blobs = Store(url, filled.store.settings), Blobs(blobs)
    filled.queue = Queue(filled.store.engine, filled.store.settings)
    assert filled.score_next(0.93) == filled.store.list_submissions()[-1].id
    with filled.store.read() as connection:
        assert backups.audit(connection, blobs=filled.blobs).ok


@ON_SQLITE
def test_predictions_that_are_missing_are_left_out(filled: FilledBoard, tmp_path: Path) -> None:
    """Missing predictions can be made again; damaged ones are reported, as by an audit."""
    missing, damaged = (one.canonical or "" for one in filled.store.list_submissions()[:2])
    filled.blobs.remove(missing)
    made = backup(filled.url, filled.blobs.url, tmp_path / "copy")
    assert f"blobs/{missing}" not in made.manifest["files"]
    url, blobs = empty_place(filled, tmp_path)
    assert restore(made.folder, url, blobs).report.problems == ()
    filled.blobs.path(damaged).write_bytes(b"another's")
    with pytest.raises(BackupError, match=f"predictions {damaged}.*is damaged"):
        backup(filled.url, filled.blobs.url, tmp_path / "second")


@ON_SQLITE
def test_a_backup_is_private_and_holds_no_secret(filled: FilledBoard, tmp_path: Path) -> None:
    folder = backup(filled.url, filled.blobs.url, tmp_path / "copy").folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    private = json.loads(filled.signer._file.read_text())["private"].encode()
    assert all(private not in path.read_bytes() for path in files)


@ON_SQLITE
def test_nothing_is_written_over(filled: FilledBoard, tmp_path: Path) -> None:
    made = backup(filled.url, filled.blobs.url, tmp_path / "copy")
    with pytest.raises(BackupError, match="`target` must not exist"):
        backup(filled.url, filled.blobs.url, made.folder)
    url, blobs = empty_place(filled, tmp_path)
    with pytest.raises(BackupError, match="the store for uploads must be empty"):
        restore(made.folder, url, filled.blobs.url)
    with pytest.raises(BackupError, match="the database must not exist yet"):
        restore(made.folder, filled.url, blobs)


@pytest.mark.parametrize("database_kind", ["postgresql"], indirect=True)
def test_a_postgresql_database_with_tables_is_not_written_over(filled: FilledBoard, tmp_path: Path) -> None:
    made = backup(filled.url, filled.blobs.url, tmp_path / "copy")
    with pytest.raises(BackupError, match="the database must be empty"):
        restore(made.folder, filled.url, tmp_path / "other")
    with pytest.raises(BackupError, match="a backup of postgresql cannot be restored into sqlite"):
        restore(made.folder, f"sqlite:///{tmp_path / 'x.sqlite'}", tmp_path / "other")


@pytest.mark.parametrize("database_kind", ["postgresql"], indirect=True)
def test_without_pg_dump_there_is_a_clear_error(
    filled: FilledBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backups.shutil, "which", lambda name: None)
    with pytest.raises(BackupError, match="pg_dump is needed for PostgreSQL: install"):
        backup(filled.url, filled.blobs.url, tmp_path / "copy")
    assert not any("copy" in path.name for path in tmp_path.iterdir())


@ON_SQLITE
def test_a_damaged_backup_is_not_restored(filled: FilledBoard, tmp_path: Path) -> None:
    folder = backup(filled.url, filled.blobs.url, tmp_path / "copy").folder
    url, blobs = empty_place(filled, tmp_path)
    manifest = (folder / "manifest.json").read_text()
    upload = next((folder / "blobs").iterdir())
    whole = upload.read_bytes()
    upload.write_bytes(b"changed")
    with pytest.raises(BackupError, match=f"damaged: blobs/{upload.name} differs from the manifest"):
        restore(folder, url, blobs)
    upload.unlink()
    with pytest.raises(BackupError, match=f"incomplete: blobs/{upload.name} is missing"):
        restore(folder, url, blobs)
    upload.write_bytes(whole)
    (folder / "manifest.json").write_text(manifest.replace("blobs/", "../blobs/"))
    with pytest.raises(BackupError, match="must name the database and uploads"):
        restore(folder, url, blobs)
    (folder / "manifest.json").unlink()
    with pytest.raises(BackupError, match=r"must be a backup folder with a manifest\.json"):
        restore(folder, url, blobs)
    assert not any(path.is_file() for path in (tmp_path / "restored").rglob("*"))


@ON_SQLITE
def test_a_board_that_lost_an_upload_is_not_backed_up_quietly(filled: FilledBoard, tmp_path: Path) -> None:
    sha256 = filled.store.list_submissions()[0].sha256
    filled.blobs.remove(sha256)
    with pytest.raises(BackupError, match=f"upload {sha256} is not stored"):
        backup(filled.url, filled.blobs.url, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_an_absent_database_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="no board at"):
        backup(f"sqlite:///{tmp_path / 'none.sqlite'}", tmp_path / "blobs", tmp_path / "copy")
    assert not (tmp_path / "none.sqlite").exists()
