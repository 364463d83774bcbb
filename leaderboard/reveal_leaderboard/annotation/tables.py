"""Tables of the annotation page's database, a SQLite file of its own.

Conventions
-----------
Answers and marks are appended and never changed; triggers refuse it. The last answer of a reader to an item counts, and
the last mark of a reader says whether the list is open. Lists have versions: 0 as they were assigned, then one more
each time that studies changed hands. `content` and `details` are JSON.
"""

from __future__ import annotations

import sqlalchemy as sa

__all__ = ["APPEND_ONLY", "answers", "facts", "films", "items", "lists", "marks", "metadata"]

metadata = sa.MetaData()

facts = sa.Table(
    "facts",
    metadata,
    sa.Column("name", sa.String(40), primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)
"""What this folder is about: form, name, seed, digest of what it was prepared from, and the key of the tokens."""

items = sa.Table(
    "items",
    metadata,
    sa.Column("item", sa.String(200), primary_key=True),
    sa.Column("content", sa.JSON, nullable=False),
)

films = sa.Table(
    "films",
    metadata,
    sa.Column("item", sa.ForeignKey("items.item"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("file", sa.Text, nullable=False),
    sa.Column("member", sa.Text),
    sa.Column("view", sa.String(20), nullable=False),
)
"""Pictures of an item in the order in which they are shown; `file` is relative to the root of the pictures."""

lists = sa.Table(
    "lists",
    metadata,
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("reader", sa.String(200), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("item", sa.ForeignKey("items.item"), nullable=False),
    sa.UniqueConstraint("version", "reader", "item"),
)

answers = sa.Table(
    "answers",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("reader", sa.String(200), nullable=False),
    sa.Column("item", sa.ForeignKey("items.item"), nullable=False),
    sa.Column("answer", sa.String(40), nullable=False),
    sa.Column("comment", sa.Text, nullable=False),
    sa.Column("details", sa.JSON(none_as_null=True)),
    sa.Column("seconds", sa.Float, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("key", sa.String(64), nullable=False, unique=True),
    sa.Index("answers_by_reader", "reader", "item"),
    sqlite_autoincrement=True,
)
"""`seconds`: how long the item was on the screen; `at`: the database's clock; `key`: one for each press of a button."""

marks = sa.Table(
    "marks",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("reader", sa.String(200), nullable=False),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("at", sa.Float, nullable=False),
    sqlite_autoincrement=True,
)
"""`kind` is one of :data:`reveal_leaderboard.annotation.store.MARKS`."""

APPEND_ONLY = tuple(
    f"CREATE TRIGGER IF NOT EXISTS {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
    f"BEGIN SELECT RAISE(ABORT, '{table} are only appended'); END"
    for table in ("answers", "marks")
    for verb in ("UPDATE", "DELETE")
)
