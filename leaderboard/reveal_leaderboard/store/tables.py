"""The tables of the leaderboard.

Conventions
-----------
Every time is a float: seconds since 1970 UTC by the *database's* clock
(:func:`reveal_leaderboard.store.database.now`). Ids are random texts made here, never by a client. JSON columns were
checked before they were written. A row of `submissions` is the summary of its events; `events` and `receipts` are
append-only, each with the hash of the one before. No table contains anything of a holdout: no reference, no exact
figure, no text of an exception.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

STATUSES = ("received", "linted", "queued", "scoring", "reading", "scored", "refused", "failed", "withdrawn")
JOB_STATES = ("queued", "leased", "done", "refused", "failed", "cancelled")
JOB_KINDS = ("score", "rescore", "rank", "compare")
"""Jobs of kind "compare" no longer exist, but the database's constraint still allows them."""
LEDGER_KINDS = ("reserved", "charged", "refunded", "granted")
BOARD_STATES = ("open", "paused", "closed")
INVITATION_STATES = ("open", "accepted", "declined", "withdrawn")
DELIVERY_KINDS = ("scored", "withdrawn", "flagged", "test")
DELIVERY_STATES = ("waiting", "delivered", "failed")
CRITERIA = ("process", "execution", "synthesis", "language", "image_content", "image_style")
"""Columns of ratings, named as in the records of the tasks."""

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
    _word("name"),  # the organization's name as shown
    _word("name_key", unique=True),  # casefolded: two teams never look alike
    _moment("created_at"),
    _moment("disabled_at", nullable=True),
    _moment("waiting_since", nullable=True),  # until an administrator approves it; NULL: approved, or needs no approval
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
    sa.Column("key_hash", sa.String(64), primary_key=True),  # SHA-256 of the cookie's value
    sa.Column("user_id", sa.ForeignKey("users.id"), nullable=False),
    _moment("created_at"),
    _moment("expires_at"),
)

tokens = sa.Table(
    "tokens",
    tables,
    _id(),
    _word("key_hash", 64, unique=True),  # SHA-256 of 256 random bits, shown once
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
    _word("version"),  # the one that is shown and that submissions go to
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
    sa.Column("facts", sa.JSON, nullable=False),  # public: n_images, findings, the public part of the label-diff report
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
    _word("digest", 32, primary_key=True, index=True),  # of an id, or of a public picture
    sa.CheckConstraint("kind IN ('patient', 'study', 'image', 'picture')", name="kind"),
)

shared_cases = sa.Table(
    "shared_cases",
    tables,
    _word("benchmark", primary_key=True),
    _word("version", primary_key=True),
    _word("other", primary_key=True),  # another benchmark, or the same one
    _word("other_version", primary_key=True),
    sa.Column("share", sa.Float(53), nullable=False),  # of this version's held-out cases
)

overlaps = sa.Table(
    "overlaps",
    tables,
    _word("benchmark", primary_key=True),
    _word("version", primary_key=True),  # whose held-out references are revealed
    _word("other", primary_key=True),  # the benchmark whose public folder reveals them, or the same one
    _word("other_version", primary_key=True),
    sa.Column("sentence", sa.Text, nullable=False),
)

# Submissions, their jobs and their scores -----------------------------------------------------------------------------

submissions = sa.Table(
    "submissions",
    tables,
    _id(),
    _word("benchmark"),
    _word("version"),  # to which it was sent
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
    _moment("withdrawn_at", nullable=True),  # by its team, after it was scored: off the board, still charged
    _moment("hidden_at", nullable=True),  # by an admin
    _word("hidden_why", 500, nullable=True),
    sa.Column("is_chosen", sa.Boolean, nullable=False),  # the team's choice for its model
    _word("canonical", 64, nullable=True),  # SHA-256 of its predictions as arrays, a blob; NULL: not stored
    _word("stamp", 64, nullable=True),  # the manifest and format with which they can be read
    sa.Column("signs", sa.JSON(none_as_null=True), nullable=True),  # list of sentences for moderators, from the lint
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
    sa.Column("is_stale", sa.Boolean, nullable=False),  # requested again while leased: to be done once more
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
    _word("shown_of", 32),  # the submission whose figures are shown: itself, unless the ladder held it back
    sa.Column("signature", sa.Text, nullable=False),
    _word("reference_hash", 64),
    _moment("scored_at"),
    sa.CheckConstraint("part IN ('public', 'final')", name="part"),
)

results = sa.Table(
    "results",
    tables,
    _word("kind", 20, primary_key=True),  # "rank" or "frozen": what a version showed when the next replaced it
    _word("benchmark", primary_key=True),
    _word("version", primary_key=True),
    _word("subject", 200, primary_key=True),
    sa.Column("document", sa.JSON, nullable=False),  # released: rounded, shown cells only
    _moment("computed_at"),
)

fingerprints = sa.Table(
    "fingerprints",
    tables,
    sa.Column("submission_id", sa.ForeignKey("submissions.id"), primary_key=True),
    _word("version", primary_key=True),
    _word("benchmark"),
    _word("content", 64),  # keyed hash of the canonical predictions
    sa.Column("sketch", sa.JSON, nullable=False),  # list of ints: MinHash of the canonical predictions
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
    _word("reader", 120, primary_key=True),  # "user:ID", or "file:NAME" as a file of ratings names its readers
    *(sa.Column(name, sa.Integer, nullable=True) for name in CRITERIA),  # 1 to 5; pictures only where there are boxes
    _word("who", 120),  # who entered it
    _moment("rated_at"),
    *(sa.CheckConstraint(f"{name} BETWEEN 1 AND 5", name=name) for name in CRITERIA),
)

# The ledger of spent budgets ------------------------------------------------------------------------------------------

ledger = sa.Table(
    "ledger",
    tables,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("team_id", sa.ForeignKey("teams.id"), nullable=False),
    _word("benchmark"),
    _word("version"),
    sa.Column("submission_id", sa.ForeignKey("submissions.id"), nullable=True, index=True),
    sa.Column("sending", sa.Integer, nullable=False),  # 1 for the first sending, 2 for the second; granted 0
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
    _word("name", 40, primary_key=True),  # "events" or "receipts"
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
    _word("record", 64, nullable=True),  # hash of the subject's record; NULL: the event is older than records
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
    _word("job_id", 32, nullable=True),  # empty: workers never reported it
    _word("confinement", 100),
    _word("receipt_key", 100, nullable=True),  # public half, base64
)

# Between servers, and to other systems --------------------------------------------------------------------------------

buckets = sa.Table(
    "buckets",
    tables,
    _word("name", 150, primary_key=True),  # "address:ADDRESS", "user:ID" or "team:ID"
    sa.Column("units", sa.Float(53), nullable=False),  # units that it contained
    _moment("at"),  # when it contained them
    sa.Index(None, "at"),
)

webhooks = sa.Table(
    "webhooks",
    tables,
    _word("name", 40, primary_key=True),  # as in the settings
    sa.Column("read_to", sa.Integer, nullable=False),  # the last event processed
)

deliveries = sa.Table(
    "deliveries",
    tables,
    _id(),  # also for the receiver, which recognises repeated deliveries by it
    sa.Column("webhook", sa.ForeignKey("webhooks.name"), nullable=False),
    sa.Column("event_id", sa.ForeignKey("events.id"), nullable=True),  # NULL: a test message
    _word("kind", 20),
    _word("status", 20),
    sa.Column("attempts", sa.Integer, nullable=False),
    _moment("next_at"),  # when a waiting one is sent, or sent again if its sender fell silent
    sa.Column("answer", sa.Integer, nullable=True),  # HTTP status of the last answer; NULL without an answer
    _moment("created_at"),
    _moment("ended_at", nullable=True),
    sa.CheckConstraint(f"kind IN {DELIVERY_KINDS}", name="kind"),
    sa.CheckConstraint(f"status IN {DELIVERY_STATES}", name="status"),
    sa.Index(None, "webhook", "status"),
)
