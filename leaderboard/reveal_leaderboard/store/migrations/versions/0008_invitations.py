"""Invitations to teams. Existing members stay members."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the table of invitations."""
    op.create_table(
        "invitations",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("team_id", sa.String(32), sa.ForeignKey("teams.id"), nullable=False),
        sa.Column("user_id", sa.String(32), sa.ForeignKey("users.id"), nullable=False),
        sa.Column("role", sa.String(20), nullable=False),
        sa.Column("who", sa.String(120), nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("expires_at", sa.Float(53), nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.CheckConstraint("role IN ('owner', 'member', 'reader')", name="role"),
        sa.CheckConstraint("status IN ('open', 'accepted', 'declined', 'withdrawn')", name="status"),
    )
    op.create_index("ix_invitations_user_id", "invitations", ["user_id"])
    op.create_index("ix_invitations_team_id_status", "invitations", ["team_id", "status"])


def downgrade() -> None:
    """Drop the table: open invitations must be sent again."""
    op.drop_table("invitations")
