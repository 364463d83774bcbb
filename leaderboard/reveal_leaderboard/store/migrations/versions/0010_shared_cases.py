"""Held-out cases of every version, and what versions have in common."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the tables. A server records the cases of the versions that it serves when it starts."""
    op.create_table(
        "held_out",
        sa.Column("benchmark", sa.String(100), primary_key=True),
        sa.Column("version", sa.String(100), primary_key=True),
        sa.Column("kind", sa.String(10), primary_key=True),
        sa.Column("digest", sa.String(32), primary_key=True),
        sa.CheckConstraint("kind IN ('study', 'image', 'picture')", name="kind"),
    )
    op.create_index("ix_held_out_digest", "held_out", ["digest"])
    op.create_table(
        "shared_cases",
        sa.Column("benchmark", sa.String(100), primary_key=True),
        sa.Column("version", sa.String(100), primary_key=True),
        sa.Column("other", sa.String(100), primary_key=True),
        sa.Column("other_version", sa.String(100), primary_key=True),
        sa.Column("share", sa.Float(53), nullable=False),
    )


def downgrade() -> None:
    """Drop the tables: budgets no longer carry over."""
    for name in ("shared_cases", "held_out"):
        op.drop_table(name)
