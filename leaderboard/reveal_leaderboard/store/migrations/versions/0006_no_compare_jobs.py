"""Comparisons are made of released figures, without a worker: their jobs and documents go."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Delete them."""
    for name in ("jobs", "results"):
        table = sa.table(name, sa.column("kind", sa.String))
        op.execute(table.delete().where(table.c.kind == "compare"))


def downgrade() -> None:
    """Nothing to do: the version before makes a comparison again when somebody asks."""
