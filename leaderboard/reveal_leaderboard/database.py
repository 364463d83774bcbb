"""Tables, the connection to the database, its clock and its migrations.

Conventions
-----------
Every moment is a float: seconds since 1970 UTC by the *database's* clock (:func:`now`), so that servers and workers on
machines with wrong clocks agree about leases. Names of databases live here and in no query: SQLite is set up for
durability (write-ahead log, ``synchronous=FULL``) and takes its write lock at the start of a writing transaction;
the queries in :mod:`reveal_leaderboard.store` are the same on PostgreSQL.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

__all__ = ["STATUSES", "connect", "events", "migrate", "now", "scores", "submissions", "tables"]

STATUSES = ("received", "linted", "queued", "scoring", "scored", "refused", "failed")
BUSY_TIMEOUT_MS = 30_000

tables = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

submissions = sa.Table(
    "submissions",
    tables,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("benchmark", sa.String(100), nullable=False),
    sa.Column("version", sa.String(100), nullable=False),
    sa.Column("split", sa.String(100), nullable=False),
    sa.Column("team", sa.String(100), nullable=False),
    sa.Column("model_name", sa.String(100), nullable=False),
    sa.Column("kind", sa.String(40), nullable=False),
    sa.Column("prompt_style", sa.String(40)),
    sa.Column("metadata", sa.JSON, nullable=False),
    sa.Column("filename", sa.String(200), nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("allow_missing", sa.Boolean, nullable=False),
    sa.Column("idempotency_key", sa.String(200)),
    sa.Column("status", sa.String(20), nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("fence", sa.Integer, nullable=False),
    sa.Column("lease_until", sa.Float),
    sa.Column("worker", sa.String(100)),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("updated_at", sa.Float, nullable=False),
    sa.Column("incident", sa.String(40)),
    sa.UniqueConstraint("team", "benchmark", "version", "model_name", "sha256"),
    sa.UniqueConstraint("team", "idempotency_key"),
    sa.CheckConstraint(f"status IN {STATUSES}", name="status"),
    sa.Index(None, "status", "created_at"),
)

events = sa.Table(
    "events",
    tables,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("submission_id", sa.ForeignKey("submissions.id"), nullable=False, index=True),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("who", sa.String(120), nullable=False),
    sa.Column("from_status", sa.String(20)),
    sa.Column("to_status", sa.String(20), nullable=False),
    sa.Column("why", sa.Text, nullable=False),
)

scores = sa.Table(
    "scores",
    tables,
    sa.Column("submission_id", sa.ForeignKey("submissions.id"), primary_key=True),
    sa.Column("released", sa.JSON, nullable=False),
    sa.Column("signature", sa.Text, nullable=False),
    sa.Column("reference_hash", sa.String(64), nullable=False),
    sa.Column("scored_at", sa.Float, nullable=False),
)


class now(FunctionElement[float]):  # noqa: N801 - reads as a function, like those of sqlalchemy.func
    """The database's clock, in seconds since 1970 UTC."""

    type = sa.Float()
    inherit_cache = True


@compiles(now)
def _now(element: now, compiler: Any, **options: Any) -> str:
    return "EXTRACT(EPOCH FROM clock_timestamp())"


@compiles(now, "sqlite")
def _now_sqlite(element: now, compiler: Any, **options: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


def connect(url: str) -> sa.Engine:
    """An engine for `url`; a SQLite one is durable, checks foreign keys and serialises writers.

    Transactions begun with the execution option ``reading=True`` take no write lock.
    """
    engine = sa.create_engine(url)
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", _set_up_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: Any, record: Any) -> None:
    connection.isolation_level = None  # the driver's own BEGIN comes too late for BEGIN IMMEDIATE
    cursor = connection.cursor()
    for pragma in (
        f"busy_timeout={BUSY_TIMEOUT_MS}",
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: sa.Connection) -> None:
    reading = connection.get_execution_options().get("reading", False)
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


def migrate(engine: sa.Engine) -> None:
    """Bring the tables to this version; two processes may do so at once. Takes no lock when there is nothing to do."""
    from alembic import command
    from alembic.config import Config
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    with engine.execution_options(reading=True).begin() as connection:
        present = MigrationContext.configure(connection).get_current_revision()
    if present == ScriptDirectory.from_config(config).get_current_head():
        return
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
