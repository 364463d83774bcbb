"""Patients among the held-out cases, and versions whose references public folders reveal.

Ids have other digests than before. A server records the cases of the versions that it serves when it starts; known
shares of common cases stay.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Empty the table of held-out cases, allow patients in it, and add the table of overlaps."""
    _make_held_out("'patient', 'study', 'image', 'picture'")
    op.create_table(
        "overlaps",
        sa.Column("benchmark", sa.String(100), primary_key=True),
        sa.Column("version", sa.String(100), primary_key=True),
        sa.Column("other", sa.String(100), primary_key=True),
        sa.Column("other_version", sa.String(100), primary_key=True),
        sa.Column("sentence", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Drop the table of overlaps, and empty the table of held-out cases."""
    op.drop_table("overlaps")
    _make_held_out("'study', 'image', 'picture'")


def _make_held_out(kinds: str) -> None:
    op.drop_table("held_out")
    op.create_table(
        "held_out",
        sa.Column("benchmark", sa.String(100), primary_key=True),
        sa.Column("version", sa.String(100), primary_key=True),
        sa.Column("kind", sa.String(10), primary_key=True),
        sa.Column("digest", sa.String(32), primary_key=True),
        sa.CheckConstraint(f"kind IN ({kinds})", name="kind"),
    )
    op.create_index("ix_held_out_digest", "held_out", ["digest"])
