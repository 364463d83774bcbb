"""Submissions, events and scores."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

STATUSES = "('received', 'linted', 'queued', 'scoring', 'scored', 'refused', 'failed')"


def upgrade() -> None:
    """Make the first tables."""
    op.create_table(
        "submissions",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("benchmark", sa.String(100), nullable=False),
        sa.Column("version", sa.String(100), nullable=False),
        sa.Column("split", sa.String(100), nullable=False),
        sa.Column("team", sa.String(100), nullable=False),
        sa.Column("model_name", sa.String(100), nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("prompt_style", sa.String(40)),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("filename", sa.String(200), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("allow_missing", sa.Boolean(), nullable=False),
        sa.Column("idempotency_key", sa.String(200)),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("lease_until", sa.Float()),
        sa.Column("worker", sa.String(100)),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.Column("incident", sa.String(40)),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_submissions")),
        sa.UniqueConstraint(
            "team",
            "benchmark",
            "version",
            "model_name",
            "sha256",
            name=op.f("uq_submissions_team_benchmark_version_model_name_sha256"),
        ),
        sa.UniqueConstraint("team", "idempotency_key", name=op.f("uq_submissions_team_idempotency_key")),
        sa.CheckConstraint(f"status IN {STATUSES}", name=op.f("ck_submissions_status")),
    )
    op.create_index(op.f("ix_submissions_status_created_at"), "submissions", ["status", "created_at"])
    op.create_table(
        "events",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("submission_id", sa.String(32), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("who", sa.String(120), nullable=False),
        sa.Column("from_status", sa.String(20)),
        sa.Column("to_status", sa.String(20), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        sa.ForeignKeyConstraint(
            ["submission_id"], ["submissions.id"], name=op.f("fk_events_submission_id_submissions")
        ),
    )
    op.create_index(op.f("ix_events_submission_id"), "events", ["submission_id"])
    op.create_table(
        "scores",
        sa.Column("submission_id", sa.String(32), nullable=False),
        sa.Column("released", sa.JSON(), nullable=False),
        sa.Column("signature", sa.Text(), nullable=False),
        sa.Column("reference_hash", sa.String(64), nullable=False),
        sa.Column("scored_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("submission_id", name=op.f("pk_scores")),
        sa.ForeignKeyConstraint(
            ["submission_id"], ["submissions.id"], name=op.f("fk_scores_submission_id_submissions")
        ),
    )


def downgrade() -> None:
    """Drop these tables."""
    for table in ("scores", "events", "submissions"):
        op.drop_table(table)
