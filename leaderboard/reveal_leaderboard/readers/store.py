"""Database of the readers' app; an answer is on disk before it is acknowledged, and is never changed.

Conventions
-----------
A *reader* is a name in the assignments. An *item* is a study, a model's miss, or an answer to judge. A reader's last
answer to an item counts. ``cannot_read`` is an answer but not a vote. A list is *open* until its reader stops (mark
``stop``) or the maintainer closes the list (mark ``close``); the mark ``open`` reopens it. Times are by the database's
clock.

The database is a SQLite file. Answers and marks are append-only: triggers refuse changes. Lists have version 0 as
assigned, and a higher version after each reassignment. `content` and `details` are JSON.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from reveal_leaderboard.store.database import connect, moment, reading

metadata = sa.MetaData()

facts = sa.Table(
    "facts",
    metadata,
    sa.Column("name", sa.String(40), primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)
"""Facts about the data folder: form, name, seed, digest of its input, and the key from which tokens are computed."""

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
"""Images of an item in the order shown; `file` is relative to the root of the images."""

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
"""Answers; `seconds` is the time on the screen, `at` is by the database's clock, `key` is new for each press of a
button.
"""

marks = sa.Table(
    "marks",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("reader", sa.String(200), nullable=False),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("at", sa.Float, nullable=False),
    sqlite_autoincrement=True,
)
"""Marks on readers' lists; `kind` is one of :data:`MARKS`."""

APPEND_ONLY = tuple(
    f"CREATE TRIGGER IF NOT EXISTS {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
    f"BEGIN SELECT RAISE(ABORT, '{table} are append-only'); END"
    for table in ("answers", "marks")
    for verb in ("UPDATE", "DELETE")
)


FILE_NAME = "readings.sqlite"
CANNOT_READ = "cannot_read"
MARKS = ("stop", "close", "open")

Lists = Sequence[tuple[str, int, str]]  # reader, position, item


class UnpreparedError(ValueError):
    """The data folder has no database of the readers' app, or its database was made for different input."""


class NotOnListError(LookupError):
    """The item is not, or is no longer, on the reader's list."""


class ListClosedError(PermissionError):
    """The reader's list no longer accepts answers."""


class KeyUsedError(ValueError):
    """The key of an answer was used before for a different answer."""


@dataclass(frozen=True, slots=True)
class ItemImage:
    """An image of an item: `file` is relative to the root of the images, `member` is its name inside an archive."""

    file: str
    member: str | None
    view: str


@dataclass(frozen=True, slots=True)
class Item:
    """An item to judge, with its images in the order shown."""

    item: str
    content: Mapping[str, Any]
    films: tuple[ItemImage, ...]


@dataclass(frozen=True, slots=True)
class ReaderAnswer:
    """A reader's answer to an item; `seconds` is the time on the screen, `at` is by the database's clock, `details` is
    JSON.
    """

    reader: str
    item: str
    answer: str
    comment: str = ""
    details: Any = None
    seconds: float = 0.0
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class ListEntry:
    """An item on a reader's list; `answer` is the current answer, or ""."""

    position: int
    item: str
    answer: str


class Readings:
    """The database of the readers' app in `folder`, written by :meth:`create`.

    Raises
    ------
    UnpreparedError
        If the database does not exist.
    """

    def __init__(self, folder: Path) -> None:
        path = Path(folder) / FILE_NAME
        if not path.is_file():
            raise UnpreparedError(f"{folder} contains no {FILE_NAME}: start with --curation, or --form and its input")
        self.engine = connect(f"sqlite:///{path.resolve()}")
        self._reading = reading(self.engine)
        with self._reading.begin() as connection:
            values = {row.name: row.value for row in connection.execute(sa.select(facts))}
        self.form, self.name, self.seed = values["form"], values["name"], int(values["seed"])
        self.digest, self.root, self.key = values["digest"], Path(values["root"]), bytes.fromhex(values["key"])

    @classmethod
    def create(
        cls, folder: Path, content: Iterable[Item], first: Lists, *, form: str, name: str, seed: int, digest: str,
        root: Path,
    ) -> Readings:  # fmt: skip
        """Write items and lists into a new database; an interruption leaves no database.

        Parameters
        ----------
        first : version 0 of the lists, as (reader, position, item)
        digest : digest of the input, by which a later start recognises the same input
        root : root folder of the images

        Raises
        ------
        UnpreparedError
            If the database exists already.
        """
        path = Path(folder) / FILE_NAME
        if path.exists():
            raise UnpreparedError(f"{path} already exists")
        new = path.with_suffix(".new")
        for old in Path(folder).glob(f"{new.name}*"):  # left by an interrupted attempt
            old.unlink()
        engine = connect(f"sqlite:///{new.resolve()}")
        entries = {"form": form, "name": name, "seed": str(seed), "digest": digest, "root": str(root.resolve())}
        with engine.begin() as connection:
            metadata.create_all(connection)
            for trigger in APPEND_ONLY:
                connection.exec_driver_sql(trigger)
            rows = [{"name": key, "value": value} for key, value in (entries | {"key": secrets.token_hex(32)}).items()]
            connection.execute(facts.insert(), rows)
            for item in content:
                connection.execute(items.insert().values(item=item.item, content=dict(item.content)))
                for number, film in enumerate(item.films):
                    row = {"item": item.item, "number": number, "file": film.file, "member": film.member}
                    connection.execute(films.insert().values(**row, view=film.view))
            _put_lists(connection, 0, first)
        with engine.connect() as connection:  # merges the write-ahead log, so that a single file can be renamed
            connection.connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")
        engine.dispose()
        new.rename(path)
        return cls(folder)

    # For the reader ---------------------------------------------------------------------------------------------

    def readers(self) -> list[str]:
        """Return the names of all readers who have or had a list, sorted."""
        with self._reading.begin() as connection:
            return list(connection.execute(sa.select(lists.c.reader).distinct().order_by(lists.c.reader)).scalars())

    def places(self, reader: str) -> list[ListEntry]:
        """Return the entries of a reader's list in order, with the current answers."""
        with self._reading.begin() as connection:
            answered = {row.item: row.answer for row in connection.execute(_last_answers().where(_of(reader)))}
            mine = _current().where(lists.c.reader == reader).order_by(lists.c.position)
            return [ListEntry(row.position, row.item, answered.get(row.item, "")) for row in connection.execute(mine)]

    def is_open(self, reader: str) -> bool:
        """Return True if the reader's list is open for answers."""
        with self._reading.begin() as connection:
            return _is_open(connection, reader)

    def item(self, name: str) -> Item:
        """Return an item with its images."""
        with self._reading.begin() as connection:
            content = connection.execute(sa.select(items.c.content).where(items.c.item == name)).scalar_one()
            rows = connection.execute(sa.select(films).where(films.c.item == name).order_by(films.c.number))
            return Item(name, content, tuple(ItemImage(row.file, row.member, row.view) for row in rows))

    def answer(self, reader: str, item: str) -> ReaderAnswer | None:
        """Return the reader's current answer to an item, or None."""
        query = _last_answers().where(_of(reader), answers.c.item == item)
        with self._reading.begin() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else _answer(row)

    # Answering ---------------------------------------------------------------------------------------------

    def put(self, answer: ReaderAnswer, key: str) -> bool:
        """Store an answer on disk; return False if the same answer was sent with this key before.

        Raises
        ------
        NotOnListError, ListClosedError
            If the item is not on this reader's list, or the list no longer accepts answers.
        KeyUsedError
            If a different answer was sent with this key before.
        """
        with self.engine.begin() as connection:
            known = connection.execute(sa.select(answers).where(answers.c.key == key)).one_or_none()
            if known is not None:
                if _contents(_answer(known)) != _contents(answer):
                    raise KeyUsedError("this key was used for a different answer")
                return False
            here = (lists.c.reader == answer.reader, lists.c.item == answer.item)
            if connection.execute(_current().where(*here)).one_or_none() is None:
                raise NotOnListError("this item is no longer on your list")
            if not _is_open(connection, answer.reader):
                raise ListClosedError("your list is closed")
            row = asdict(answer) | {"at": moment(connection), "key": key}
            connection.execute(answers.insert().values(**row))
        return True

    def mark(self, reader: str, kind: str) -> None:
        """Record that a reader stops, or that the reader's list is closed or reopened.

        Raises
        ------
        ValueError
            If `kind` is not one of :data:`MARKS`, or no reader of this name has a list.
        """
        if kind not in MARKS:
            raise ValueError(f"`kind` must be one of {', '.join(MARKS)}, got {kind!r}")
        if reader not in self.readers():
            raise ValueError(f"no list for the reader {reader!r}")
        with self.engine.begin() as connection:
            connection.execute(marks.insert().values(reader=reader, kind=kind, at=moment(connection)))

    # For the maintainer -----------------------------------------------------------------------------------

    def version(self) -> int:
        """Return the number of reassignments."""
        with self._reading.begin() as connection:
            return _version(connection)

    def listed(self) -> list[tuple[str, int, str]]:
        """Return the current lists: (reader, position, item)."""
        with self._reading.begin() as connection:
            return _listed(connection)

    def all_items(self) -> dict[str, Mapping[str, Any]]:
        """Return item -> content of the form's questions."""
        with self._reading.begin() as connection:
            return {row.item: row.content for row in connection.execute(sa.select(items).order_by(items.c.item))}

    def all_answers(self) -> list[ReaderAnswer]:
        """Return the current answers to items on their reader's current list, sorted by item and reader."""
        with self._reading.begin() as connection:
            return _counting(connection)

    def last_marks(self) -> dict[str, str]:
        """Return reader -> last mark."""
        with self._reading.begin() as connection:
            return _last_marks(connection)

    def relist(self, plan: Callable[[Lists, Sequence[ReaderAnswer], Mapping[str, str]], Lists]) -> int:
        """Replace the lists and return their new version, in one transaction, so that no vote is stored meanwhile.

        Parameters
        ----------
        plan : function that returns the new lists, given the old lists, the current answers and the last marks
        """
        with self.engine.begin() as connection:
            new = plan(_listed(connection), _counting(connection), _last_marks(connection))
            version = _version(connection) + 1
            _put_lists(connection, version, new)
        return version


def _put_lists(connection: sa.Connection, version: int, new: Lists) -> None:
    rows = [{"version": version, "reader": reader, "position": n, "item": item} for reader, n, item in new]
    if not rows:
        raise UnpreparedError("all reading lists are empty")
    connection.execute(lists.insert(), rows)


def _version(connection: sa.Connection) -> int:
    return int(connection.execute(sa.select(sa.func.max(lists.c.version))).scalar_one())


def _last_marks(connection: sa.Connection) -> dict[str, str]:
    return {row.reader: row.kind for row in connection.execute(sa.select(marks).order_by(marks.c.id))}


def _current() -> sa.Select[Any]:
    newest = sa.select(sa.func.max(lists.c.version)).scalar_subquery()
    return sa.select(lists).where(lists.c.version == newest)


def _listed(connection: sa.Connection) -> list[tuple[str, int, str]]:
    rows = connection.execute(_current().order_by(lists.c.reader, lists.c.position))
    return [(row.reader, row.position, row.item) for row in rows]


def _last_answers() -> sa.Select[Any]:
    newest = sa.select(sa.func.max(answers.c.id)).group_by(answers.c.reader, answers.c.item)
    return sa.select(answers).where(answers.c.id.in_(newest))


def _of(reader: str) -> sa.ColumnElement[bool]:
    return answers.c.reader == reader


def _counting(connection: sa.Connection) -> list[ReaderAnswer]:
    places = {(reader, item) for reader, _, item in _listed(connection)}
    rows = connection.execute(_last_answers().order_by(answers.c.item, answers.c.reader))
    return [_answer(row) for row in rows if (row.reader, row.item) in places]


def _is_open(connection: sa.Connection, reader: str) -> bool:
    mine = sa.select(marks.c.kind).where(marks.c.reader == reader).order_by(marks.c.id.desc()).limit(1)
    return connection.execute(mine).scalar_one_or_none() in (None, "open")


def _answer(row: Any) -> ReaderAnswer:
    return ReaderAnswer(row.reader, row.item, row.answer, row.comment, row.details, row.seconds, row.at)


def _contents(answer: ReaderAnswer) -> tuple[str, ...]:
    """Return the fields that must be equal for a repeated answer; the time on the screen may differ."""
    details = json.dumps(answer.details, sort_keys=True)
    return answer.reader, answer.item, answer.answer, answer.comment, details
