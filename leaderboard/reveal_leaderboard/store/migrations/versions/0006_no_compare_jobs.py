"""Comparisons use released figures, without a worker: their jobs and documents are removed."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Delete these jobs and documents."""
    for name in ("jobs", "results"):
        table = sa.table(name, sa.column("kind", sa.String))
        op.execute(table.delete().where(table.c.kind == "compare"))


def downgrade() -> None:
    """Do nothing: the version before makes comparisons again on request."""
