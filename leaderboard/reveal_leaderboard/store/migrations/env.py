"""Alembic's entry: runs the versions on the connection that :func:`reveal_leaderboard.store.database.migrate` hands
over."""

from alembic import context

from reveal_leaderboard.store.events import record_all
from reveal_leaderboard.store.tables import tables

RECORDS = "0007"
"""The version that added records to events; earlier rows are recorded once, when all tables exist."""


def run() -> None:
    """Run the requested migrations."""
    connection = context.config.attributes["connection"]
    is_sqlite = connection.dialect.name == "sqlite"
    context.configure(connection=connection, target_metadata=tables, render_as_batch=is_sqlite)
    before = context.get_context().get_current_revision()
    context.run_migrations()
    if before is not None and before < RECORDS:
        record_all(connection)


if __name__ == "env_py":  # the name under which Alembic loads this file; imported otherwise, it does nothing
    run()
