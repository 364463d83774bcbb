"""Events contain the hash of their subject's record; `env.py` records existing rows."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the column of the hash."""
    op.add_column("events", sa.Column("record", sa.String(64), nullable=True))


def downgrade() -> None:
    """Drop the column: the version before then finds wrong hashes in events that had one."""
    op.drop_column("events", "record")
