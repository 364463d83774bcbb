"""Alembic's entry: runs the versions on the connection that :func:`reveal_leaderboard.store.database.migrate` hands
over."""

from alembic import context

from reveal_leaderboard.store.tables import tables


def run() -> None:
    """Run the requested migrations."""
    connection = context.config.attributes["connection"]
    is_sqlite = connection.dialect.name == "sqlite"
    context.configure(connection=connection, target_metadata=tables, render_as_batch=is_sqlite)
    context.run_migrations()


if __name__ == "env_py":  # the name under which Alembic loads this file; imported otherwise, it does nothing
    run()
