"""Connections to the database, its clock and migrations; the tables are in :mod:`reveal_leaderboard.store.tables`.

A new database gets the current tables; migrations change the tables of existing databases.

Conventions
-----------
A database is named by its URL: ``sqlite:///FILE`` or ``postgresql+psycopg://...``. Only this module and the migrations
distinguish SQLite from PostgreSQL. Every change is one transaction (``with engine.begin() as connection``). Functions
with a parameter `connection` run inside their caller's transaction. Every time is a float: seconds since 1970 UTC by
the *database's* clock (:func:`now`), so that servers and workers agree about leases even if the clocks of their
machines are wrong.

SQLite is set up for durability (write-ahead log, ``synchronous=FULL``) and takes its write lock at the start of a
writing transaction. In PostgreSQL, writers run at READ COMMITTED and lock the rows on which they decide, always in this
order: board, team, job, submission, chain of receipts, chain of events. So two writers never deadlock. In both
databases, a reader sees one snapshot for its whole transaction.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from reveal_leaderboard.store.tables import CHAINS, GENESIS, chains, tables

BUSY_TIMEOUT_MS = 30_000
POOL = {"pool_size": 5, "max_overflow": 15, "pool_timeout": 30, "pool_recycle": 1800, "pool_pre_ping": True}
MIGRATIONS = Path(__file__).parent / "migrations"
MIGRATION_LOCK = 5_262_626_262  # arbitrary, but must not be used by other programs on the same PostgreSQL
UNDER_WAY = {"options": "-c idle_in_transaction_session_timeout=60000", "keepalives_idle": 30}
"""Milliseconds after which an idle transaction is ended, so that a frozen machine cannot keep its locks for ever."""


class now(FunctionElement[float]):  # noqa: N801 - used like a function, such as sqlalchemy.func.count
    """The database's clock, in seconds since 1970 UTC."""

    type = sa.Float(53)
    inherit_cache = True


@compiles(now)
def _now(element: now, compiler: Any, **options: Any) -> str:
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS double precision)"


@compiles(now, "sqlite")
def _now_sqlite(element: now, compiler: Any, **options: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


def moment(connection: sa.Connection) -> float:
    """Return the time of the database's clock, in seconds since 1970 UTC."""
    return float(connection.execute(sa.select(now())).scalar_one())


def iso_time(moment: float) -> str:
    """Return seconds since 1970 as UTC text, such as 2026-11-21T23:05:00Z."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def connect(url: str | sa.URL) -> sa.Engine:
    """Return an engine for `url`, which tests pooled connections before use.

    Raises
    ------
    ValueError
        If `url` names another database than SQLite or PostgreSQL through psycopg.
    """
    parsed = sa.make_url(url)
    if parsed.drivername in ("sqlite", "sqlite+pysqlite"):
        engine = sa.create_engine(parsed, **(POOL if parsed.database else {}))
        sa.event.listen(engine, "connect", _set_up_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
        return engine
    if parsed.drivername == "postgresql+psycopg":
        return sa.create_engine(parsed, isolation_level="READ COMMITTED", connect_args=UNDER_WAY, **POOL)
    raise ValueError(f"`url` must start with sqlite:/// or postgresql+psycopg://, got {parsed.drivername}://")


NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}


def has_no_room(error: BaseException) -> bool:
    """Return True if a database error means that its disk is full or read-only."""
    if isinstance(error, OSError):
        return error.errno in NO_ROOM
    cause = getattr(error, "orig", None)
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY) or getattr(cause, "sqlstate", None) == "53100"


def size_of(connection: sa.Connection) -> int:
    """Return the database's size in bytes."""
    if connection.dialect.name == "sqlite":
        query = sa.text("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
    else:
        query = sa.text("SELECT pg_database_size(current_database())")
    return int(connection.execute(query).scalar_one())


def keep_private(url: str | sa.URL) -> None:
    """Make a SQLite database readable by its owner only, because it contains people's e-mail addresses.

    Raises
    ------
    ValueError
        If other users can read the file, and this process may not change its mode.
    """
    parsed = sa.make_url(url)
    if parsed.get_backend_name() != "sqlite" or parsed.database in (None, "", ":memory:"):
        return
    file = Path(str(parsed.database))
    if file.parent.is_dir() and not file.exists():
        with suppress(OSError):  # SQLite itself reports the reason; its further files get the mode of this file
            os.close(os.open(file, os.O_CREAT | os.O_RDONLY | os.O_CLOEXEC, 0o600))
    for path in (file, *(file.with_name(file.name + end) for end in ("-wal", "-shm"))):
        with suppress(FileNotFoundError):
            if stat.S_IMODE(path.stat().st_mode) & 0o077:
                _close_to_others(path)


def _close_to_others(path: Path) -> None:
    try:
        path.chmod(0o600)
    except PermissionError:
        raise ValueError(f"{path} must be readable by its owner only, but belongs to another user") from None


def reading(engine: sa.Engine) -> sa.Engine:
    """Return `engine` with options for read-only transactions, which take no write lock and see one snapshot."""
    if engine.dialect.name == "sqlite":
        return engine.execution_options(reading=True)
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def _set_up_sqlite(connection: Any, record: Any) -> None:
    connection.isolation_level = None  # the driver's own BEGIN would be too late for BEGIN IMMEDIATE
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    _keep_a_write_ahead_log(cursor)
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _keep_a_write_ahead_log(cursor: sqlite3.Cursor) -> None:
    """Turn on WAL mode, and retry while the file is locked, because SQLite does not wait for this lock."""
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _begin_sqlite(connection: sa.Connection) -> None:
    is_reading = connection.get_execution_options().get("reading", False)
    connection.exec_driver_sql("BEGIN" if is_reading else "BEGIN IMMEDIATE")


def locked(query: sa.Select[Any], *, skip: bool = False) -> sa.Select[Any]:
    """Return `query` with a lock on its rows until the transaction ends; with `skip`, omit rows locked by others.

    The lock is PostgreSQL's FOR NO KEY UPDATE, so that other transactions can insert rows that refer to a locked row.
    """
    return query.with_for_update(key_share=True, skip_locked=skip)


def insert_if_absent(connection: sa.Connection, table: sa.Table, values: Mapping[str, Any]) -> bool:
    """Insert a row unless a row with the same key exists; return True if the row was inserted."""
    dialect: Any = sqlite if connection.dialect.name == "sqlite" else postgresql
    insert = dialect.insert(table).values(**values).on_conflict_do_nothing()
    key = next(iter(table.primary_key))
    return connection.execute(insert.returning(key)).one_or_none() is not None


def migrate(engine: sa.Engine) -> None:
    """Create the tables, or migrate them to this version; concurrent calls are safe, and no lock is taken if the tables
    are up to date.

    Raises
    ------
    ValueError
        If the database belongs to another version of this program, from which no migration starts.
    """
    from alembic import command
    from alembic.config import Config
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    versions = ScriptDirectory.from_config(config)
    head = versions.get_current_head()
    with reading(engine).begin() as connection:
        present = MigrationContext.configure(connection).get_current_revision()
    if present == head:
        return
    if present not in (None, *(script.revision for script in versions.walk_revisions())):
        raise ValueError(f"the database must have version {head} or one that it can be migrated from, got {present}")
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATION_LOCK)))
        config.attributes["connection"] = connection
        if MigrationContext.configure(connection).get_current_revision() is None:  # no other process created them
            tables.create_all(connection)
            connection.execute(chains.insert(), [{"name": name, "length": 0, "head": GENESIS} for name in CHAINS])
            command.stamp(config, "head")
        command.upgrade(config, "head")
