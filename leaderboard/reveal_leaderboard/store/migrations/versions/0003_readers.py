"""Answers to tasks, their ratings by readers, and the status of a submission that waits for them.

A check that only allows more needs no validation of existing rows. PostgreSQL has its own statements for it. SQLite
cannot change a check, and recreating the table would mean dropping it and, through its foreign keys, the rows that
refer to it. So the text of the table is changed where SQLite stores it, as its documentation recommends ("Making Other
Kinds Of Table Schema Changes", the procedure that leaves the content on disk unchanged).
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

OLD = "'received', 'linted', 'queued', 'scoring', 'scored', 'refused', 'failed', 'withdrawn'"
NEW = "'received', 'linted', 'queued', 'scoring', 'reading', 'scored', 'refused', 'failed', 'withdrawn'"
CRITERIA = ("process", "execution", "synthesis", "language", "image_content", "image_style")


def upgrade() -> None:
    """Widen the check, and create the tables."""
    if op.get_bind().dialect.name == "sqlite":
        _widen_on_sqlite(op.get_bind())
    else:
        op.drop_constraint(op.f("ck_submissions_status"), "submissions", type_="check")
        op.create_check_constraint(op.f("ck_submissions_status"), "submissions", f"status IN ({NEW})")
    op.create_table(
        "answers",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("submission_id", sa.String(32), nullable=False),
        sa.Column("task_id", sa.String(200), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("boxes", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["submission_id"], ["submissions.id"], name=op.f("fk_answers_submission_id_submissions")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_answers")),
        sa.UniqueConstraint("submission_id", "task_id", name=op.f("uq_answers_submission_id_task_id")),
    )
    op.create_table(
        "ratings",
        sa.Column("answer_id", sa.String(32), nullable=False),
        sa.Column("reader", sa.String(120), nullable=False),
        *(sa.Column(name, sa.Integer(), nullable=True) for name in CRITERIA),
        sa.Column("who", sa.String(120), nullable=False),
        sa.Column("rated_at", sa.Float(53), nullable=False),
        *(sa.CheckConstraint(f"{name} BETWEEN 1 AND 5", name=op.f(f"ck_ratings_{name}")) for name in CRITERIA),
        sa.ForeignKeyConstraint(["answer_id"], ["answers.id"], name=op.f("fk_ratings_answer_id_answers")),
        sa.PrimaryKeyConstraint("answer_id", "reader", name=op.f("pk_ratings")),
    )


def downgrade() -> None:
    """Refuse: the version before cannot store this version's data."""
    raise NotImplementedError("the tables of 0002 cannot store all data of 0003; restore a backup instead")


def _widen_on_sqlite(bind: sa.Connection) -> None:
    """Replace the list of statuses in the text of the table, in this transaction, exactly once."""
    query = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = 'submissions'"
    text = bind.exec_driver_sql(query).scalar_one()
    if text.count(OLD) != 1:
        raise ValueError("the table `submissions` must have the check of its statuses that 0002 made, it has another")
    version = bind.exec_driver_sql("PRAGMA schema_version").scalar_one()
    bind.exec_driver_sql("PRAGMA writable_schema = ON")
    try:
        change = "UPDATE sqlite_master SET sql = ? WHERE type = 'table' AND name = 'submissions'"
        bind.exec_driver_sql(change, (text.replace(OLD, NEW),))
        bind.exec_driver_sql(f"PRAGMA schema_version = {int(version) + 1}")  # every connection reads the text anew
    finally:
        bind.exec_driver_sql("PRAGMA writable_schema = OFF")
    problem = bind.exec_driver_sql("PRAGMA integrity_check(1)").scalar_one()
    if problem != "ok":
        raise ValueError(f"the changed table must pass SQLite's own check, got {problem}")
