"""Count, in the vault, of the scores that a worker has released for a version (answers).

Conventions
-----------
Budgets are in the database, which the server writes. An attacker who takes over the server can raise budgets, delete
the ledger or invent teams. So the worker keeps its own count in the vault. Every scored file whose scores are released
is one answer, identified by the keyed fingerprint of its predictions (:mod:`reveal_leaderboard.release.fingerprints`).
Scoring the same predictions again is not another answer. The limit is `quota.board_total` of the worker's own settings.

An answer is counted in the transaction that releases its scores, before they are written. If the worker is killed in
between, the count is too high until the submission is scored again.

Submissions that a refresh scores against another version are counted separately. Their limit is the number of answers
of the benchmark's other versions, if this number is larger.

The count is a file per version, ``answers.BENCHMARK.VERSION.json``. At every start, the worker adds the fingerprints in
the database to the count, because the vault may be older than the count or restored from a backup. This can only raise
the count.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from pydantic import TypeAdapter

from reveal_leaderboard.store.blobs import write_durably
from reveal_leaderboard.store.tables import fingerprints, submissions

Contents = dict[str, str]
"""Fingerprint of predictions -> kind of the job that scored them first: "score" or "rescore"."""
_CONTENTS = TypeAdapter(Contents)


class CountDamagedError(OSError):
    """The file of a count cannot be read; the message names the file and the remedy."""

    loggable = True


class AnswerCount:
    """Count of the answers of one version; safe to use from several workers that share the vault."""

    def __init__(self, vault: Path, benchmark: str, version: str) -> None:
        self._vault, self._file = vault, vault / f"answers.{benchmark}.{version}.json"

    def read(self) -> Contents:
        """Return the counted answers.

        Raises
        ------
        CountDamagedError
            If the file is damaged.
        """
        if not self._file.exists():
            return {}
        try:
            return _CONTENTS.validate_json(self._file.read_bytes())
        except ValueError:
            raise CountDamagedError(
                f"the count of answers in {self._file} is damaged: delete this file, and start the worker again, which "
                "then counts the answers in the database"
            ) from None

    def include(self, contents: Contents) -> None:
        """Add answers that were released earlier to the count."""
        with self._locked():
            known = self.read()
            if not contents.keys() <= known.keys():
                self._write({**contents, **known})

    def admit(self, content: str, kind: str, limit: int) -> bool:
        """Count one more answer, unless `limit` answers of its kind were released; return True if it may be
        released.
        """
        with self._locked():
            known = self.read()
            if content in known:
                return True
            if sum(one == kind for one in known.values()) >= limit:
                return False
            self._write({**known, content: kind})
            return True

    def _write(self, contents: Contents) -> None:
        write_durably(self._file, json.dumps(contents, indent=0).encode())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        folder = os.open(self._vault, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)


def answers_in_database(connection: sa.Connection, benchmark: str, version: str) -> Contents:
    """Return the answers that are recorded in the database."""
    query = (
        sa.select(fingerprints.c.content, submissions.c.version)
        .join(submissions, submissions.c.id == fingerprints.c.submission_id)
        .where(fingerprints.c.benchmark == benchmark, fingerprints.c.version == version)
    )
    return {row.content: "score" if row.version == version else "rescore" for row in connection.execute(query)}
