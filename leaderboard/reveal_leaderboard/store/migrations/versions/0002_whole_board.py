"""Accounts, boards and their versions, the queue, the ledger, chained events and receipts.

The rows of the first version are read, the tables are created anew, and the converted rows are inserted: see
:mod:`reveal_leaderboard.store.migrations.first_rows`.
"""

import sqlalchemy as sa
from alembic import op

from reveal_leaderboard.store.migrations.first_rows import carry, take_out

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the tables, and convert the rows."""
    bind = op.get_bind()
    old = take_out(bind)
    for name in ("scores", "events", "submissions"):
        op.drop_table(name)
    _make_people()
    _make_boards()
    _make_submissions()
    _make_records()
    carry(bind, old)


def downgrade() -> None:
    """Refuse: the first version cannot store this version's data."""
    raise NotImplementedError("the tables of 0001 cannot store all data of 0002; restore a backup instead")


def _make_people() -> None:
    op.create_table(
        "users",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("issuer", sa.String(200), nullable=False),
        sa.Column("subject", sa.String(200), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("is_admin", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("disabled_at", sa.Float(53), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("issuer", "subject", name=op.f("uq_users_issuer_subject")),
    )
    op.create_table(
        "teams",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("name_key", sa.String(100), nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("disabled_at", sa.Float(53), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_teams")),
        sa.UniqueConstraint("name_key", name=op.f("uq_teams_name_key")),
    )
    op.create_table(
        "members",
        sa.Column("team_id", sa.String(32), nullable=False),
        sa.Column("user_id", sa.String(32), nullable=False),
        sa.Column("role", sa.String(20), nullable=False),
        sa.Column("since", sa.Float(53), nullable=False),
        sa.CheckConstraint("role IN ('owner', 'member', 'reader')", name=op.f("ck_members_role")),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_members_team_id_teams")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_members_user_id_users")),
        sa.PrimaryKeyConstraint("team_id", "user_id", name=op.f("pk_members")),
    )
    op.create_index(op.f("ix_members_user_id"), "members", ["user_id"], unique=False)
    op.create_table(
        "sessions",
        sa.Column("key_hash", sa.String(64), nullable=False),
        sa.Column("user_id", sa.String(32), nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("expires_at", sa.Float(53), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_sessions_user_id_users")),
        sa.PrimaryKeyConstraint("key_hash", name=op.f("pk_sessions")),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("key_hash", sa.String(64), nullable=False),
        sa.Column("user_id", sa.String(32), nullable=False),
        sa.Column("team_id", sa.String(32), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("expires_at", sa.Float(53), nullable=False),
        sa.Column("used_at", sa.Float(53), nullable=True),
        sa.Column("revoked_at", sa.Float(53), nullable=True),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_tokens_team_id_teams")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_tokens_user_id_users")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("key_hash", name=op.f("uq_tokens_key_hash")),
    )
    op.create_index(op.f("ix_tokens_user_id"), "tokens", ["user_id"], unique=False)


def _make_boards() -> None:
    op.create_table(
        "boards",
        sa.Column("benchmark", sa.String(100), nullable=False),
        sa.Column("version", sa.String(100), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("why", sa.String(500), nullable=False),
        sa.Column("changed_at", sa.Float(53), nullable=False),
        sa.CheckConstraint("state IN ('open', 'paused', 'closed')", name=op.f("ck_boards_state")),
        sa.PrimaryKeyConstraint("benchmark", name=op.f("pk_boards")),
    )
    op.create_table(
        "versions",
        sa.Column("benchmark", sa.String(100), nullable=False),
        sa.Column("version", sa.String(100), nullable=False),
        sa.Column("split", sa.String(100), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("added_at", sa.Float(53), nullable=False),
        sa.Column("shown_at", sa.Float(53), nullable=True),
        sa.Column("frozen_at", sa.Float(53), nullable=True),
        sa.PrimaryKeyConstraint("benchmark", "version", name=op.f("pk_versions")),
    )


def _make_submissions() -> None:
    op.create_table(
        "submissions",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("benchmark", sa.String(100), nullable=False),
        sa.Column("version", sa.String(100), nullable=False),
        sa.Column("split", sa.String(100), nullable=False),
        sa.Column("team_id", sa.String(32), nullable=False),
        sa.Column("user_id", sa.String(32), nullable=False),
        sa.Column("model_name", sa.String(100), nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("prompt_style", sa.String(40), nullable=True),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("filename", sa.String(200), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("allow_missing", sa.Boolean(), nullable=False),
        sa.Column("idempotency_key", sa.String(200), nullable=True),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("incident", sa.String(40), nullable=True),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("updated_at", sa.Float(53), nullable=False),
        sa.Column("withdrawn_at", sa.Float(53), nullable=True),
        sa.Column("hidden_at", sa.Float(53), nullable=True),
        sa.Column("hidden_why", sa.String(500), nullable=True),
        sa.Column("is_chosen", sa.Boolean(), nullable=False),
        sa.CheckConstraint(
            "status IN ('received', 'linted', 'queued', 'scoring', 'scored', 'refused', 'failed', 'withdrawn')",
            name=op.f("ck_submissions_status"),
        ),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_submissions_team_id_teams")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_submissions_user_id_users")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_submissions")),
        sa.UniqueConstraint(
            "team_id",
            "benchmark",
            "version",
            "model_name",
            "sha256",
            name=op.f("uq_submissions_team_id_benchmark_version_model_name_sha256"),
        ),
        sa.UniqueConstraint("team_id", "idempotency_key", name=op.f("uq_submissions_team_id_idempotency_key")),
    )
    op.create_index(
        op.f("ix_submissions_benchmark_version_status"), "submissions", ["benchmark", "version", "status"], unique=False
    )
    op.create_index(op.f("ix_submissions_status_created_at"), "submissions", ["status", "created_at"], unique=False)
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("benchmark", sa.String(100), nullable=False),
        sa.Column("version", sa.String(100), nullable=False),
        sa.Column("subject", sa.String(200), nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("lease_until", sa.Float(53), nullable=True),
        sa.Column("worker", sa.String(100), nullable=True),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("started_at", sa.Float(53), nullable=True),
        sa.Column("ended_at", sa.Float(53), nullable=True),
        sa.Column("why", sa.String(500), nullable=False),
        sa.Column("incident", sa.String(40), nullable=True),
        sa.Column("is_stale", sa.Boolean(), nullable=False),
        sa.CheckConstraint("kind IN ('score', 'rescore', 'rank', 'compare')", name=op.f("ck_jobs_kind")),
        sa.CheckConstraint(
            "status IN ('queued', 'leased', 'done', 'refused', 'failed', 'cancelled')", name=op.f("ck_jobs_status")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.UniqueConstraint(
            "kind", "benchmark", "version", "subject", name=op.f("uq_jobs_kind_benchmark_version_subject")
        ),
    )
    op.create_index(op.f("ix_jobs_status_created_at"), "jobs", ["status", "created_at"], unique=False)
    op.create_table(
        "scores",
        sa.Column("submission_id", sa.String(32), nullable=False),
        sa.Column("version", sa.String(100), nullable=False),
        sa.Column("part", sa.String(20), nullable=False),
        sa.Column("released", sa.JSON(), nullable=False),
        sa.Column("shown_of", sa.String(32), nullable=False),
        sa.Column("signature", sa.Text(), nullable=False),
        sa.Column("reference_hash", sa.String(64), nullable=False),
        sa.Column("scored_at", sa.Float(53), nullable=False),
        sa.CheckConstraint("part IN ('public', 'final')", name=op.f("ck_scores_part")),
        sa.ForeignKeyConstraint(
            ["submission_id"], ["submissions.id"], name=op.f("fk_scores_submission_id_submissions")
        ),
        sa.PrimaryKeyConstraint("submission_id", "version", "part", name=op.f("pk_scores")),
    )
    op.create_table(
        "results",
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("benchmark", sa.String(100), nullable=False),
        sa.Column("version", sa.String(100), nullable=False),
        sa.Column("subject", sa.String(200), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("computed_at", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("kind", "benchmark", "version", "subject", name=op.f("pk_results")),
    )
    op.create_table(
        "fingerprints",
        sa.Column("submission_id", sa.String(32), nullable=False),
        sa.Column("version", sa.String(100), nullable=False),
        sa.Column("benchmark", sa.String(100), nullable=False),
        sa.Column("content", sa.String(64), nullable=False),
        sa.Column("sketch", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["submission_id"], ["submissions.id"], name=op.f("fk_fingerprints_submission_id_submissions")
        ),
        sa.PrimaryKeyConstraint("submission_id", "version", name=op.f("pk_fingerprints")),
    )
    op.create_index(
        op.f("ix_fingerprints_benchmark_version_content"),
        "fingerprints",
        ["benchmark", "version", "content"],
        unique=False,
    )
    op.create_table(
        "flags",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("submission_id", sa.String(32), nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("other_id", sa.String(32), nullable=True),
        sa.Column("detail", sa.String(500), nullable=False),
        sa.Column("raised_at", sa.Float(53), nullable=False),
        sa.Column("cleared_at", sa.Float(53), nullable=True),
        sa.Column("cleared_by", sa.String(120), nullable=True),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"], name=op.f("fk_flags_submission_id_submissions")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_flags")),
    )
    op.create_index(op.f("ix_flags_submission_id"), "flags", ["submission_id"], unique=False)
    op.create_table(
        "ledger",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("team_id", sa.String(32), nullable=False),
        sa.Column("benchmark", sa.String(100), nullable=False),
        sa.Column("version", sa.String(100), nullable=False),
        sa.Column("submission_id", sa.String(32), nullable=True),
        sa.Column("sending", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("amount", sa.Integer(), nullable=False),
        sa.Column("why", sa.String(500), nullable=False),
        sa.Column("who", sa.String(120), nullable=False),
        sa.Column("at", sa.Float(53), nullable=False),
        sa.CheckConstraint("kind IN ('reserved', 'charged', 'refunded', 'granted')", name=op.f("ck_ledger_kind")),
        sa.ForeignKeyConstraint(
            ["submission_id"], ["submissions.id"], name=op.f("fk_ledger_submission_id_submissions")
        ),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_ledger_team_id_teams")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger")),
        sa.UniqueConstraint("submission_id", "kind", "sending", name=op.f("uq_ledger_submission_id_kind_sending")),
    )
    op.create_index(op.f("ix_ledger_submission_id"), "ledger", ["submission_id"], unique=False)
    op.create_index(
        op.f("ix_ledger_team_id_benchmark_version"), "ledger", ["team_id", "benchmark", "version"], unique=False
    )


def _make_records() -> None:
    op.create_table(
        "chains",
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("length", sa.Integer(), nullable=False),
        sa.Column("head", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_chains")),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("subject", sa.String(200), nullable=False),
        sa.Column("at", sa.Float(53), nullable=False),
        sa.Column("who", sa.String(120), nullable=False),
        sa.Column("from_status", sa.String(20), nullable=True),
        sa.Column("to_status", sa.String(40), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("previous", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        sa.UniqueConstraint("hash", name=op.f("uq_events_hash")),
    )
    op.create_index(op.f("ix_events_subject"), "events", ["subject"], unique=False)
    op.create_table(
        "receipts",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("submission_id", sa.String(32), nullable=False),
        sa.Column("version", sa.String(100), nullable=False),
        sa.Column("part", sa.String(20), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("signature", sa.String(200), nullable=False),
        sa.Column("key_id", sa.String(64), nullable=False),
        sa.Column("previous", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(
            ["submission_id"], ["submissions.id"], name=op.f("fk_receipts_submission_id_submissions")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_receipts")),
        sa.UniqueConstraint("hash", name=op.f("uq_receipts_hash")),
        sa.UniqueConstraint("submission_id", "version", "part", name=op.f("uq_receipts_submission_id_version_part")),
    )
    op.create_table(
        "workers",
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("serves", sa.JSON(), nullable=False),
        sa.Column("started_at", sa.Float(53), nullable=False),
        sa.Column("seen_at", sa.Float(53), nullable=False),
        sa.Column("job_id", sa.String(32), nullable=True),
        sa.Column("confinement", sa.String(100), nullable=False),
        sa.Column("receipt_key", sa.String(100), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_workers")),
    )
