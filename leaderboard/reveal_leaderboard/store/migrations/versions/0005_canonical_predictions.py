"""What is kept of a lint: the predictions as arrays, and signs. Of submissions from before nothing was: NULL."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add where a submission's checked predictions are kept, and what the lint saw in them."""
    op.add_column("submissions", sa.Column("canonical", sa.String(64), nullable=True))
    op.add_column("submissions", sa.Column("stamp", sa.String(64), nullable=True))
    op.add_column("submissions", sa.Column("signs", sa.JSON(), nullable=True))


def downgrade() -> None:
    """Remove them: the version before lints again when it scores."""
    for name in ("signs", "stamp", "canonical"):
        op.drop_column("submissions", name)
