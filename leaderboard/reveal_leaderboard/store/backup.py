"""Back up and restore a leaderboard: a snapshot of the database, and all files that it refers to.

Conventions
-----------
A backup is a folder: the database (``database.sqlite``, or ``database.dump`` in PostgreSQL's custom format), ``blobs/``
with the uploads and the predictions made from them, by hash, and ``manifest.json`` with the size and SHA-256 of every
file and the audit's report, including the heads of the chains. The audit checks the copied SQLite file or, for
PostgreSQL, the dumped snapshot. A backup is written under a temporary name and renamed once complete, so an existing
backup folder is complete. The database is copied before the uploads. An upload is never removed while a submission
refers to it, so all uploads that the copied database needs still exist. Missing predictions are skipped, because they
are computed again from the upload when needed. Servers and workers may run during a backup.

Holdouts and vaults (exact scores, incidents, the salt, the receipt key) are excluded, because only the worker's user
may read them. Back up a vault separately, encrypted. A backup contains names of users and hashes of tokens, so keep it
private. A restore requires an empty target, verifies every hash first, and audits the board afterwards.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from reveal_bench.files import flush_folder
from reveal_leaderboard import __version__
from reveal_leaderboard.store.audit import AuditReport, Heads, NoBoardError, audit, opened_to_read, read_heads
from reveal_leaderboard.store.blobs import Blobs, write_durably
from reveal_leaderboard.store.database import connect, iso_time
from reveal_leaderboard.store.submissions import stored_names

SCHEMA = "reveal-leaderboard-backup/1"
MANIFEST = "manifest.json"
LAST_BACKUP = "last-backup.json"
DATABASES = {"sqlite": "database.sqlite", "postgresql": "database.dump"}


class BackupError(ValueError):
    """A backup cannot be written, is incomplete, or cannot be restored to the target."""


@dataclass(frozen=True)
class Backup:
    """A finished backup or restore: the folder, the manifest, and the audit report."""

    folder: Path
    manifest: Mapping[str, Any]
    report: AuditReport


@dataclass(frozen=True)
class LastBackup:
    """The last backup or restore of a data folder: time, backup folder, and heads of the chains in the backup."""

    made_at: str
    folder: str
    heads: Heads


def remember(data: Path, made: Backup) -> None:
    """Record a backup or restore in the data folder, for later audits.

    Raises
    ------
    OSError
        If the data folder cannot be written.
    """
    note = {"made_at": made.manifest["made_at"], "folder": str(made.folder), "heads": made.manifest["audit"]["heads"]}
    write_durably(data / LAST_BACKUP, json.dumps(note, indent=1).encode())


def last_backup(data: Path) -> LastBackup | None:
    """Return the record of the last backup or restore of a data folder, or None.

    Raises
    ------
    BackupError
        If the record is damaged.
    """
    file = data / LAST_BACKUP
    if not file.exists():
        return None
    try:
        text = file.read_text(encoding="utf-8")
        note = json.loads(text)
        return LastBackup(str(note["made_at"]), str(note["folder"]), read_heads(text))
    except (KeyError, TypeError, ValueError):
        raise BackupError(f"{file} is damaged; delete it and make a new backup") from None


def backup(store_url: str, blobs_url: str | Path, target: Path, *, kept: Heads | None = None) -> Backup:
    """Copy the board at `store_url` and `blobs_url` into the new folder `target`.

    Parameters
    ----------
    kept : heads of an earlier backup; the report has a problem if the chains do not contain them

    Raises
    ------
    BackupError
        If `target` exists, `pg_dump` is missing or fails, or an upload is missing or damaged.
    """
    target = Path(target).absolute()
    if target.exists():
        raise BackupError(f"`target` must not exist, got {target}")
    blobs = Blobs(blobs_url)
    new = target.with_name(f".{target.name}.{os.getpid()}")
    new.mkdir(parents=True, mode=0o700)
    try:
        kind = sa.make_url(store_url).get_backend_name()
        dump = new / DATABASES.get(kind, "none")
        with _copied(store_url, dump) as connection:
            uploads, predictions = stored_names(connection)
            report = audit(connection, kept=kept)
        files = {dump.name: _facts(dump)}
        for name in sorted(uploads | {name for name in predictions if blobs.exists(name)}):
            what = "upload" if name in uploads else "predictions"  # predictions may be deleted, uploads never
            files[f"blobs/{name}"] = _copy_blob(blobs, what, name, new / "blobs" / name)
        manifest = {
            "schema": SCHEMA,
            "made_at": iso_time(time.time()),
            "software": {"reveal-leaderboard": __version__},
            "database": kind,
            "files": files,
            "audit": report.to_json(),
        }
        write_durably(new / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True).encode())
        flush_folder(new)
        new.rename(target)
        flush_folder(target.parent)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    return Backup(target, manifest, report)


def restore(source: Path, store_url: str, blobs_url: str | Path) -> Backup:
    """Restore the backup in the folder `source` into an empty database and an empty store for uploads.

    Afterwards the board and the uploads are audited; check the returned report.

    Raises
    ------
    BackupError
        If the backup is incomplete, the target is not empty, or the target is a different kind of database.
    """
    source = Path(source).absolute()
    manifest = _read_manifest(source)
    blobs = Blobs(blobs_url)
    url = sa.make_url(store_url)
    if url.get_backend_name() != manifest["database"]:
        raise BackupError(f"a backup of {manifest['database']} cannot be restored into {url.get_backend_name()}")
    if next(blobs.names(), None) is not None:
        raise BackupError(f"the store for uploads must be empty, but {blobs.url} is not")
    _check_empty(url)
    _check_files(source, manifest)
    for name in manifest["files"]:
        if name.startswith("blobs/"):
            blobs.store(source / name)
    dump = source / DATABASES[manifest["database"]]
    if manifest["database"] == "sqlite":
        _put_sqlite(dump, Path(str(url.database)).absolute())
    else:
        _run_postgresql(url, ["pg_restore", "--no-owner", "--exit-on-error", "--single-transaction", str(dump)], "-d")
    with opened_to_read(store_url) as connection:
        return Backup(source, manifest, audit(connection, blobs=blobs))


@contextmanager
def _copied(url: str, dump: Path) -> Iterator[sa.Connection]:
    """Copy the database at `url` to `dump`, and yield a connection that sees exactly the copied snapshot."""
    try:
        with opened_to_read(url) as connection:
            if not sa.inspect(connection).has_table("submissions"):
                raise BackupError("the database contains no board: its tables are missing")
            if connection.dialect.name == "postgresql":
                snapshot = connection.execute(sa.select(sa.func.pg_export_snapshot())).scalar_one()
                _dump_postgresql(sa.make_url(url), dump, snapshot)
                yield connection
                return
    except NoBoardError as error:
        raise BackupError(str(error)) from None
    except sa.exc.DatabaseError as error:
        raise BackupError(f"the database cannot be read: {error.orig}") from None
    _copy_sqlite(Path(str(sa.make_url(url).database)), dump)
    with opened_to_read(f"sqlite:///{dump}") as connection:
        yield connection


def _check_empty(url: sa.URL) -> None:
    if url.get_backend_name() == "sqlite":
        path = Path(str(url.database))
        if any(path.with_name(path.name + end).exists() for end in ("", "-wal", "-shm", "-journal")):
            raise BackupError(f"the database must not exist yet, but {path} does")
        return
    engine = connect(url)
    try:
        if tables := sa.inspect(engine).get_table_names():
            raise BackupError(f"the database must be empty, but it has the table {tables[0]!r}")
    finally:
        engine.dispose()


def _copy_sqlite(source: Path, path: Path) -> None:
    with closing(sqlite3.connect(source, timeout=30)) as connection:
        try:
            connection.execute("VACUUM INTO ?", [str(path)])
        except sqlite3.DatabaseError as error:
            raise BackupError(f"the database cannot be copied: {error} (`audit` lists the damage)") from None
    with path.open("rb") as file:
        os.fsync(file.fileno())
    path.chmod(0o600)


def _put_sqlite(dump: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with dump.open("rb") as source, open(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as copy:
            shutil.copyfileobj(source, copy)
            copy.flush()
            os.fsync(copy.fileno())
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
    flush_folder(path.parent)


def _dump_postgresql(url: sa.URL, path: Path, snapshot: str) -> None:
    words = ["--format=custom", "--no-owner", "--no-privileges", f"--snapshot={snapshot}", f"--file={path}"]
    _run_postgresql(url, ["pg_dump", *words], "-d")
    path.chmod(0o600)


def _run_postgresql(url: sa.URL, command: list[str], database_option: str) -> None:
    """Run a program of PostgreSQL; the password is passed in the environment, never on the command line."""
    program = shutil.which(command[0])
    if program is None:
        raise BackupError(f"{command[0]} is needed for PostgreSQL: install its client programs (postgresql-client)")
    options = {name: value for name, value in url.query.items() if isinstance(value, str)}
    facts = {"host": url.host, "port": url.port, "user": url.username, "dbname": url.database} | options
    words = {name: str(value) for name, value in facts.items() if value and name != "password"}
    conninfo = " ".join(f"{name}='{_quoted(value)}'" for name, value in words.items())
    environment = os.environ | ({"PGPASSWORD": str(url.password)} if url.password else {})
    done = subprocess.run(
        [program, *command[1:], database_option, conninfo, "--no-password"],
        env=environment, capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise BackupError(f"{command[0]} failed: {done.stderr.strip()[-500:]}")


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "\\'")


def _copy_blob(blobs: Blobs, what: str, name: str, target: Path) -> dict[str, Any]:
    target.parent.mkdir(exist_ok=True, mode=0o700)
    try:
        with blobs.open_local(name) as path:  # the hash is checked there
            write_durably(target, path.read_bytes())
    except FileNotFoundError:
        raise BackupError(f"{what} {name} is not stored: audit the board before backing it up") from None
    except OSError as error:
        raise BackupError(f"{what} {name}: {error}") from None
    return _facts(target)


def _facts(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"sha256": file_digest(file, "sha256").hexdigest(), "size": path.stat().st_size}


def _read_manifest(source: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((source / MANIFEST).read_bytes())
    except (OSError, ValueError) as error:
        raise BackupError(f"{source} must be a backup folder with a manifest.json: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA or manifest.get("database") not in DATABASES:
        raise BackupError(f"{source}: manifest.json must be a manifest of {SCHEMA}")
    expected = {DATABASES[manifest["database"]]}
    names = set(manifest["files"])
    strange = {name for name in names - expected if not _is_blob(name)}
    if strange or not expected <= names:
        raise BackupError(f"{source}: manifest.json must name the database and uploads, got {sorted(strange)[:3]}")
    return manifest


def _is_blob(name: str) -> bool:
    folder, _, sha256 = name.partition("/")
    return folder == "blobs" and len(sha256) == 64 and set(sha256) <= set("0123456789abcdef")


def _check_files(source: Path, manifest: Mapping[str, Any]) -> None:
    for name, facts in manifest["files"].items():
        path = source / name
        if not path.is_file():
            raise BackupError(f"the backup is incomplete: {name} is missing")
        if _facts(path) != facts or (_is_blob(name) and facts["sha256"] != path.name):
            raise BackupError(f"the backup is damaged: {name} differs from the manifest")
