"""Teams that wait for approval. Existing teams need no approval: the column is empty for them."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the time since which a team waits."""
    op.add_column("teams", sa.Column("waiting_since", sa.Float(53), nullable=True))


def downgrade() -> None:
    """Refuse: the version before would let unapproved teams submit."""
    raise NotImplementedError("the tables of 0003 cannot record that a team waits; restore a backup instead")
