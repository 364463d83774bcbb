"""Events hold the hash of their subject's record. The entry of the migrations records what is there (`env.py`)."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add where it stands."""
    op.add_column("events", sa.Column("record", sa.String(64), nullable=True))


def downgrade() -> None:
    """Remove it: hashes of events that held one do not hold any more for the version before."""
    op.drop_column("events", "record")
