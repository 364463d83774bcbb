"""Rate limits shared by all servers, and deliveries to webhooks."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the tables. Webhooks start with the events from now on."""
    op.create_table(
        "buckets",
        sa.Column("name", sa.String(150), primary_key=True),
        sa.Column("units", sa.Float(53), nullable=False),
        sa.Column("at", sa.Float(53), nullable=False),
    )
    op.create_index("ix_buckets_at", "buckets", ["at"])
    op.create_table(
        "webhooks",
        sa.Column("name", sa.String(40), primary_key=True),
        sa.Column("read_to", sa.Integer, nullable=False),
    )
    op.create_table(
        "deliveries",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("webhook", sa.String(40), sa.ForeignKey("webhooks.name"), nullable=False),
        sa.Column("event_id", sa.Integer, sa.ForeignKey("events.id"), nullable=True),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("next_at", sa.Float(53), nullable=False),
        sa.Column("answer", sa.Integer, nullable=True),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("ended_at", sa.Float(53), nullable=True),
        sa.CheckConstraint("kind IN ('scored', 'withdrawn', 'flagged', 'test')", name="kind"),
        sa.CheckConstraint("status IN ('waiting', 'delivered', 'failed')", name="status"),
    )
    op.create_index("ix_deliveries_webhook_status", "deliveries", ["webhook", "status"])


def downgrade() -> None:
    """Drop the tables: limits start anew, and undelivered messages are lost."""
    for name in ("deliveries", "webhooks", "buckets"):
        op.drop_table(name)
