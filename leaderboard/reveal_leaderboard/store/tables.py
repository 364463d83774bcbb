"""The tables of the leaderboard's database.

Conventions
-----------
Every time is a float: seconds since 1970 UTC by the *database's* clock (:func:`reveal_leaderboard.store.database.now`).
Ids are random texts, never chosen by a client. JSON values are checked before they are written. A row of `submissions`
summarises its events. `events` and `receipts` are append-only, and each row has the hash of the previous row. No table
contains data of a holdout: no reference, no exact score, no text of an exception.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

STATUSES = ("received", "linted", "queued", "scoring", "reading", "scored", "refused", "failed", "withdrawn")
JOB_STATES = ("queued", "leased", "done", "refused", "failed", "cancelled")
JOB_KINDS = ("score", "rescore", "rank")
LEDGER_KINDS = ("reserved", "charged", "refunded", "granted")
BOARD_STATES = ("open", "paused", "closed")
INVITATION_STATES = ("open", "accepted", "declined", "withdrawn")
DELIVERY_KINDS = ("scored", "withdrawn", "flagged", "test")
DELIVERY_STATES = ("waiting", "delivered", "failed")
CHAINS = ("events", "receipts")
GENESIS = "0" * 64
"""Head of a chain without entries."""
CRITERIA = ("process", "execution", "synthesis", "language", "image_content", "image_style")
"""Columns of ratings, with the names of the criteria in task records."""

tables = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _id() -> sa.Column[str]:
    return sa.Column("id", sa.String(32), primary_key=True)


def _moment(name: str, *, nullable: bool = False) -> sa.Column[float]:
    return sa.Column(name, sa.Float(53), nullable=nullable)


def _word(name: str, length: int = 100, *, nullable: bool = False, **options: Any) -> sa.Column[str]:
    return sa.Column(name, sa.String(length), nullable=nullable, **options)


# People -------------------------------------------------------------------------------------------------------------

users = sa.Table(
    "users",
    tables,
    _id(),
    _word("issuer", 200),  # "local", "huggingface", or the issuer URL of an OpenID provider
    _word("subject", 200),
    _word("name"),
    sa.Column("is_admin", sa.Boolean, nullable=False),
    _moment("created_at"),
    _moment("disabled_at", nullable=True),
    sa.UniqueConstraint("issuer", "subject"),
)

teams = sa.Table(
    "teams",
    tables,
    _id(),
    _word("name"),  # displayed name of the organization
    _word("name_key", unique=True),  # casefolded name, so that two names never differ only in case
    _moment("created_at"),
    _moment("disabled_at", nullable=True),
    _moment("waiting_since", nullable=True),  # NULL: approved, or needs no approval
)

members = sa.Table(
    "members",
    tables,
    sa.Column("team_id", sa.ForeignKey("teams.id"), primary_key=True),
    sa.Column("user_id", sa.ForeignKey("users.id"), primary_key=True, index=True),
    _word("role", 20),
    _moment("since"),
    sa.CheckConstraint("role IN ('owner', 'member', 'reader')", name="role"),
)

invitations = sa.Table(
    "invitations",
    tables,
    _id(),
    sa.Column("team_id", sa.ForeignKey("teams.id"), nullable=False),
    sa.Column("user_id", sa.ForeignKey("users.id"), nullable=False, index=True),
    _word("role", 20),
    _word("who", 120),  # by whom
    _moment("created_at"),
    _moment("expires_at"),
    _word("status", 20),
    sa.CheckConstraint("role IN ('owner', 'member', 'reader')", name="role"),
    sa.CheckConstraint(f"status IN {INVITATION_STATES}", name="status"),
    sa.Index(None, "team_id", "status"),
)

sessions = sa.Table(
    "sessions",
    tables,
    sa.Column("key_hash", sa.String(64), primary_key=True),  # SHA-256 of the session cookie's value
    sa.Column("user_id", sa.ForeignKey("users.id"), nullable=False),
    _moment("created_at"),
    _moment("expires_at"),
)

tokens = sa.Table(
    "tokens",
    tables,
    _id(),
    _word("key_hash", 64, unique=True),  # SHA-256 of the secret, 256 random bits shown once
    sa.Column("user_id", sa.ForeignKey("users.id"), nullable=False, index=True),
    sa.Column("team_id", sa.ForeignKey("teams.id"), nullable=False),
    _word("name"),
    sa.Column("scopes", sa.JSON, nullable=False),
    _moment("created_at"),
    _moment("expires_at"),
    _moment("used_at", nullable=True),
    _moment("revoked_at", nullable=True),
)

# Boards and their versions ------------------------------------------------------------------------------------------

boards = sa.Table(
    "boards",
    tables,
    _word("benchmark", primary_key=True),
    _word("version"),  # version that is shown and accepts submissions
    _word("state", 20),
    _word("why", 500),
    _moment("changed_at"),
    sa.CheckConstraint(f"state IN {BOARD_STATES}", name="state"),
)

versions = sa.Table(
    "versions",
    tables,
    _word("benchmark", primary_key=True),
    _word("version", primary_key=True),
    _word("split"),
    sa.Column("facts", sa.JSON, nullable=False),  # n_images, findings, the public part of the label-diff report
    _moment("added_at"),
    _moment("shown_at", nullable=True),
    _moment("frozen_at", nullable=True),
)

held_out = sa.Table(
    "held_out",
    tables,
    _word("benchmark", primary_key=True),
    _word("version", primary_key=True),
    _word("kind", 10, primary_key=True),
    _word("digest", 32, primary_key=True, index=True),  # digest of an id or of a public image
    sa.CheckConstraint("kind IN ('patient', 'study', 'image', 'picture')", name="kind"),
)

shared_cases = sa.Table(
    "shared_cases",
    tables,
    _word("benchmark", primary_key=True),
    _word("version", primary_key=True),
    _word("other", primary_key=True),  # another benchmark, or the same
    _word("other_version", primary_key=True),
    sa.Column("share", sa.Float(53), nullable=False),  # fraction of this version's held-out cases
)

overlaps = sa.Table(
    "overlaps",
    tables,
    _word("benchmark", primary_key=True),
    _word("version", primary_key=True),  # benchmark whose held-out references are revealed
    _word("other", primary_key=True),  # benchmark whose public folder reveals them; may be the same
    _word("other_version", primary_key=True),
    sa.Column("sentence", sa.Text, nullable=False),
)

# Submissions, their jobs and their scores -----------------------------------------------------------------------------

submissions = sa.Table(
    "submissions",
    tables,
    _id(),
    _word("benchmark"),
    _word("version"),  # version to which it was sent
    _word("split"),
    sa.Column("team_id", sa.ForeignKey("teams.id"), nullable=False),
    sa.Column("user_id", sa.ForeignKey("users.id"), nullable=False),
    _word("model_name"),
    _word("kind", 40),
    _word("prompt_style", 40, nullable=True),
    sa.Column("metadata", sa.JSON, nullable=False),
    _word("filename", 200),
    _word("sha256", 64),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("allow_missing", sa.Boolean, nullable=False),
    _word("idempotency_key", 200, nullable=True),
    _word("status", 20),
    _word("incident", 40, nullable=True),
    _moment("created_at"),
    _moment("updated_at"),
    _moment("withdrawn_at", nullable=True),  # time of withdrawal by its team; a scored one stays charged
    _moment("hidden_at", nullable=True),  # by an admin
    _word("hidden_why", 500, nullable=True),
    sa.Column("is_chosen", sa.Boolean, nullable=False),  # chosen by the team to be shown for its model
    _word("canonical", 64, nullable=True),  # SHA-256 of the parsed predictions in the blobs; NULL: not stored
    _word("stamp", 64, nullable=True),  # manifest and format of the parsed predictions
    sa.Column("signs", sa.JSON(none_as_null=True), nullable=True),  # the linter's sentences for moderators
    sa.UniqueConstraint("team_id", "benchmark", "version", "model_name", "sha256"),
    sa.UniqueConstraint("team_id", "idempotency_key"),
    sa.CheckConstraint(f"status IN {STATUSES}", name="status"),
    sa.Index(None, "status", "created_at"),
    sa.Index(None, "benchmark", "version", "status"),
)

jobs = sa.Table(
    "jobs",
    tables,
    _id(),
    _word("kind", 20),
    _word("benchmark"),
    _word("version"),
    _word("subject", 200),  # score, rescore: a submission's id; rank: "board"
    _word("status", 20),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("fence", sa.Integer, nullable=False),
    _moment("lease_until", nullable=True),
    _word("worker", 100, nullable=True),
    _moment("created_at"),
    _moment("started_at", nullable=True),
    _moment("ended_at", nullable=True),
    _word("why", 500),
    _word("incident", 40, nullable=True),
    sa.Column("is_stale", sa.Boolean, nullable=False),  # requested again while leased, so to be repeated
    sa.UniqueConstraint("kind", "benchmark", "version", "subject"),
    sa.CheckConstraint(f"kind IN {JOB_KINDS}", name="kind"),
    sa.CheckConstraint(f"status IN {JOB_STATES}", name="status"),
    sa.Index(None, "status", "created_at"),
)

scores = sa.Table(
    "scores",
    tables,
    sa.Column("submission_id", sa.ForeignKey("submissions.id"), primary_key=True),
    _word("version", primary_key=True),
    _word("part", 20, primary_key=True),  # "public" or "final"
    sa.Column("released", sa.JSON, nullable=False),  # ReleasedScore, after the ladder
    _word("shown_of", 32),  # submission whose scores are shown; another one if the ladder held the scores back
    sa.Column("signature", sa.Text, nullable=False),
    _word("reference_hash", 64),
    _moment("scored_at"),
    sa.CheckConstraint("part IN ('public', 'final')", name="part"),
)

results = sa.Table(
    "results",
    tables,
    _word("kind", 20, primary_key=True),  # "rank", or "frozen" for the rows of a frozen version
    _word("benchmark", primary_key=True),
    _word("version", primary_key=True),
    _word("subject", 200, primary_key=True),
    sa.Column("document", sa.JSON, nullable=False),  # released scores only
    _moment("computed_at"),
)

fingerprints = sa.Table(
    "fingerprints",
    tables,
    sa.Column("submission_id", sa.ForeignKey("submissions.id"), primary_key=True),
    _word("version", primary_key=True),
    _word("benchmark"),
    _word("content", 64),  # keyed hash of the parsed predictions
    sa.Column("sketch", sa.JSON, nullable=False),  # MinHash of the parsed predictions, a list of integers
    sa.Index(None, "benchmark", "version", "content"),
)

flags = sa.Table(
    "flags",
    tables,
    _id(),
    sa.Column("submission_id", sa.ForeignKey("submissions.id"), nullable=False, index=True),
    _word("kind", 40),  # "duplicate", "near_duplicate", "probing", "degenerate"
    _word("other_id", 32, nullable=True),
    _word("detail", 500),
    _moment("raised_at"),
    _moment("cleared_at", nullable=True),
    _word("cleared_by", 120, nullable=True),
)

# Answers to tasks, and readers' ratings of them -----------------------------------------------------------------------

answers = sa.Table(
    "answers",
    tables,
    _id(),  # random, so that readers cannot tell whose answer it is
    sa.Column("submission_id", sa.ForeignKey("submissions.id"), nullable=False),
    _word("task_id", 200),
    sa.Column("answer", sa.Text, nullable=False),
    sa.Column("boxes", sa.JSON, nullable=False),  # list of {image_id, label, box: [x, y, width, height]}
    sa.UniqueConstraint("submission_id", "task_id"),
)

ratings = sa.Table(
    "ratings",
    tables,
    sa.Column("answer_id", sa.ForeignKey("answers.id"), primary_key=True),
    _word("reader", 120, primary_key=True),  # "user:ID", or "file:NAME" for a name in a file of ratings
    *(sa.Column(name, sa.Integer, nullable=True) for name in CRITERIA),  # 1 to 5; NULL for images without boxes
    _word("who", 120),  # who entered the rating
    _moment("rated_at"),
    *(sa.CheckConstraint(f"{name} BETWEEN 1 AND 5", name=name) for name in CRITERIA),
)

# The ledger of budgets ------------------------------------------------------------------------------------------

ledger = sa.Table(
    "ledger",
    tables,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("team_id", sa.ForeignKey("teams.id"), nullable=False),
    _word("benchmark"),
    _word("version"),
    sa.Column("submission_id", sa.ForeignKey("submissions.id"), nullable=True, index=True),
    sa.Column("sending", sa.Integer, nullable=False),  # number of the sending, from 1; 0 for a grant
    _word("kind", 20),
    sa.Column("amount", sa.Integer, nullable=False),  # reserved +1, charged 0, refunded -1, granted -n
    _word("why", 500),
    _word("who", 120),
    _moment("at"),
    sa.CheckConstraint(f"kind IN {LEDGER_KINDS}", name="kind"),
    sa.UniqueConstraint("submission_id", "kind", "sending"),
    sa.Index(None, "team_id", "benchmark", "version"),
)

# Append-only tables ---------------------------------------------------------------------------------------------

chains = sa.Table(
    "chains",
    tables,
    _word("name", 40, primary_key=True),  # one of CHAINS
    sa.Column("length", sa.Integer, nullable=False),
    _word("head", 64),
)

events = sa.Table(
    "events",
    tables,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),  # 1, 2, 3 ... without a gap
    _word(
        "subject", 200
    ),  # "submission:ID", "board:NAME", "team:ID", "user:ID", "token:ID", "flag:ID", "invitation:ID"
    _moment("at"),
    _word("who", 120),
    _word("from_status", 20, nullable=True),
    _word("to_status", 40),
    sa.Column("why", sa.Text, nullable=False),
    _word("previous", 64),
    _word("hash", 64, unique=True),
    _word("record", 64, nullable=True),  # hash of the subject's record; NULL if it has none
    sa.Index(None, "subject"),
)

receipts = sa.Table(
    "receipts",
    tables,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("submission_id", sa.ForeignKey("submissions.id"), nullable=False),
    _word("version"),
    _word("part", 20),
    sa.Column("document", sa.Text, nullable=False),  # the signed bytes, as text
    _word("signature", 200),
    _word("key_id", 64),
    _word("previous", 64),
    _word("hash", 64, unique=True),
    sa.UniqueConstraint("submission_id", "version", "part"),
)

workers = sa.Table(
    "workers",
    tables,
    _word("name", primary_key=True),
    sa.Column("serves", sa.JSON, nullable=False),
    _moment("started_at"),
    _moment("seen_at"),
    _word("job_id", 32, nullable=True),  # empty: unknown
    _word("confinement", 100),
    _word("receipt_key", 100, nullable=True),  # public half, base64
)

# Rate limits and webhooks --------------------------------------------------------------------------------

buckets = sa.Table(
    "buckets",
    tables,
    _word("name", 150, primary_key=True),  # "address:ADDRESS", "user:ID" or "team:ID"
    sa.Column("units", sa.Float(53), nullable=False),  # units in the bucket at the time `at`
    _moment("at"),  # time at which the units were counted
    sa.Index(None, "at"),
)

webhooks = sa.Table(
    "webhooks",
    tables,
    _word("name", 40, primary_key=True),  # name in the settings
    sa.Column("read_to", sa.Integer, nullable=False),  # number of the last processed event
)

deliveries = sa.Table(
    "deliveries",
    tables,
    _id(),  # the receiver recognises repeated deliveries by this id
    sa.Column("webhook", sa.ForeignKey("webhooks.name"), nullable=False),
    sa.Column("event_id", sa.ForeignKey("events.id"), nullable=True),  # NULL: a test message
    _word("kind", 20),
    _word("status", 20),
    sa.Column("attempts", sa.Integer, nullable=False),
    _moment("next_at"),  # time from which a waiting delivery may be claimed
    sa.Column("answer", sa.Integer, nullable=True),  # HTTP status code of the last answer; NULL without an answer
    _moment("created_at"),
    _moment("ended_at", nullable=True),
    sa.CheckConstraint(f"kind IN {DELIVERY_KINDS}", name="kind"),
    sa.CheckConstraint(f"status IN {DELIVERY_STATES}", name="status"),
    sa.Index(None, "webhook", "status"),
)
