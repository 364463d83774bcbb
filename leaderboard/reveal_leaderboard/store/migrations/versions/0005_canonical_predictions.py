"""Results of a lint: the predictions as arrays, and signs. NULL for earlier submissions."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add columns for a submission's linted predictions and the linter's signs."""
    op.add_column("submissions", sa.Column("canonical", sa.String(64), nullable=True))
    op.add_column("submissions", sa.Column("stamp", sa.String(64), nullable=True))
    op.add_column("submissions", sa.Column("signs", sa.JSON(), nullable=True))


def downgrade() -> None:
    """Drop the columns: the version before lints again when it scores."""
    for name in ("signs", "stamp", "canonical"):
        op.drop_column("submissions", name)
