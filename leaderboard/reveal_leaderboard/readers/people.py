"""Who reads under which name: the maintainer's table of subjects, and the opaque names that a session knows items by.

A subject is what the sign-in provider calls a person (``admin people`` lists them on the board; on Hugging Face it is
the account's id). The table has the columns `subject` and `reader`, CSV in UTF-8; each of them once.
"""

from __future__ import annotations

import csv
import hashlib
import hmac
from collections.abc import Collection, Iterable
from pathlib import Path

__all__ = ["PeopleError", "read_people", "token_of", "tokens_of"]

COLUMNS = ["subject", "reader"]


class PeopleError(ValueError):
    """The table of people is wrong; the message says where."""


def read_people(path: Path, readers: Collection[str]) -> dict[str, str]:
    """Subject -> reader.

    Raises
    ------
    PeopleError
        With everything that is wrong: the columns, a blank or repeated cell, a reader without a list.
    """
    problems: list[str] = []
    people: dict[str, str] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file, strict=True)
            if list(rows.fieldnames or ()) != COLUMNS:
                raise PeopleError(f"{path.name}: the columns must be subject,reader, got {rows.fieldnames}")
            for row in rows:
                subject, reader = ((row[name] or "").strip() for name in COLUMNS)
                where = f"line {rows.line_num}"
                if not subject or not reader or None in row:
                    problems.append(f"{where}: must have a subject and a reader")
                elif reader not in readers:
                    problems.append(f"{where}: `reader` must have a list, got {reader!r}")
                elif subject in people or reader in people.values():
                    problems.append(f"{where}: must bind a subject and a reader once, got {subject!r} and {reader!r}")
                else:
                    people[subject] = reader
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise PeopleError(f"{path.name}: must be CSV in UTF-8: {error}") from None
    if problems:
        raise PeopleError(f"{path.name}: {'; '.join(problems)}")
    return people


def token_of(key: bytes, session: str, reader: str, item: str) -> str:
    """What this session calls an item: 32 hexadecimal digits that say nothing of it."""
    return hmac.new(key, "\0".join((session, reader, item)).encode(), hashlib.sha256).hexdigest()[:32]


def tokens_of(key: bytes, session: str, reader: str, items: Iterable[str]) -> dict[str, str]:
    """Token -> item."""
    return {token_of(key, session, reader, item): item for item in items}
