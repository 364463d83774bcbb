"""Audit a leaderboard: check the hash chains, and that tables and stored files agree with each other.

Conventions
-----------
An audit only reads: the connection of :func:`opened_to_read` refuses writes, and nothing is migrated. Each problem is a
sentence with its area. Someone who rewrites a whole chain passes its check. To detect a rewritten chain, compare the
report's heads (last hashes) with those of earlier reports that are kept elsewhere.

The audit runs SQLite's integrity check and then checks these rules. The chain of events is intact. Every submission,
team, user, token, flag and board, with the rows that belong to it (:mod:`reveal_leaderboard.store.events`), is as its
last event left it. The chain of receipts is intact, every signature is valid, and the previous key signed each new key.
Each score, public or final, has a receipt with its values, team, model and time, and no other receipts exist. Each
submission's status follows from its events, and its readers' ratings match the digest in its event. Every entry of the
ledger has the team and board of its submission and agrees with the submission's outcome, or was granted in an event. On
request, every upload and every stored file of predictions is unchanged. Missing predictions are no problem, because
they are computed again from the upload.

The chains do not cover sessions, jobs, workers, times of a token's last use or a row's last change, the column that
says which of a model's submissions is shown (events record the choice), buckets of rate limits, webhooks and their
deliveries, fingerprints, the record of held-out cases, single ratings of a submission that is still being rated, and
ranks, which are recomputed. Unreadable data are reported as a problem, and the audit continues.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from reveal_bench.exchange.receipts import ReceiptError, exact, verify_receipt
from reveal_leaderboard.store.blobs import Blobs
from reveal_leaderboard.store.database import BUSY_TIMEOUT_MS, MIGRATIONS, connect, iso_time, reading
from reveal_leaderboard.store.events import verify_events, verify_records
from reveal_leaderboard.store.quota import granted_words
from reveal_leaderboard.store.ratings import READ_TO_THE_END, digest_of, ratings_of
from reveal_leaderboard.store.scores import StoredReceipt
from reveal_leaderboard.store.submissions import stored_names
from reveal_leaderboard.store.tables import (
    GENESIS,
    STATUSES,
    chains,
    events,
    ledger,
    receipts,
    scores,
    submissions,
    teams,
)

AMOUNTS = {"reserved": 1, "charged": 0, "refunded": -1}
ENDS = {
    **dict.fromkeys(("queued", "scoring", "reading"), ({"reserved"},)),
    **dict.fromkeys(("refused", "failed", "withdrawn"), ({"reserved", "refunded"},)),
    "scored": ({"reserved", "charged"}, {"reserved", "refunded"}),
}
"""Status of a submission -> the sets of entries that the ledger may have for the last time it was sent."""


class NoBoardError(ValueError):
    """The database contains no board, or a board of another version of this program."""


@dataclass(frozen=True, slots=True)
class AuditProblem:
    """A failed check, in an area such as "receipts" or "ledger"."""

    area: str
    text: str


@dataclass(frozen=True)
class AuditReport:
    """The result of an audit.

    Attributes
    ----------
    problems : empty if every check passed
    counts : numbers of checked events, receipts, scores, submissions, ledger rows and uploads (None: not checked)
    heads : chain -> (length, last hash), which should be kept elsewhere
    keys : ids of the keys that signed receipts, in order of first use
    """

    problems: tuple[AuditProblem, ...]
    counts: dict[str, int | None]
    heads: dict[str, tuple[int, str]]
    keys: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """True without problems."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return {
            "ok": self.ok,
            "problems": [{"area": problem.area, "text": problem.text} for problem in self.problems],
            "counts": self.counts,
            "heads": {name: {"length": length, "hash": head} for name, (length, head) in self.heads.items()},
            "keys": list(self.keys),
        }


@contextmanager
def opened_to_read(url: str | sa.URL) -> Iterator[sa.Connection]:
    """Open the database at `url` without migrating it, and yield a read-only connection that sees one snapshot.

    Raises
    ------
    NoBoardError
        If the file does not exist.
    ValueError
        If the database is neither SQLite nor PostgreSQL with psycopg.
    """
    engine = connect(url)
    if engine.dialect.name == "sqlite":
        engine = _sqlite_to_read(Path(str(engine.url.database)).absolute())
    try:
        with reading(engine).connect() as connection:
            if engine.dialect.name == "postgresql":  # reading all uploads takes long, and no query runs meanwhile
                connection.execute(sa.text("SET LOCAL idle_in_transaction_session_timeout = 0"))
            yield connection
            with suppress(sa.exc.DatabaseError):  # if pages are damaged, the rollback also fails
                connection.rollback()
    finally:
        engine.dispose()


def _sqlite_to_read(file: Path) -> sa.Engine:
    if not file.is_file():
        raise NoBoardError(f"no board at {file}")

    # To read a database that has a write-ahead log, SQLite must write an index of the log, which fails in a read-only
    # folder. If there is no log, no process has the database open.
    is_still = not os.access(file.parent, os.W_OK) and not file.with_name(f"{file.name}-wal").exists()
    address = f"{file.as_uri()}?mode=ro{'&immutable=1' if is_still else ''}"

    def connect_to_read() -> sqlite3.Connection:
        return sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None)

    engine = sa.create_engine("sqlite://", creator=connect_to_read, poolclass=sa.NullPool)
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    return engine


def check_schema(connection: sa.Connection) -> None:
    """Check that the database has the tables of this program version.

    Raises
    ------
    NoBoardError
        If the tables are missing or unreadable, or belong to an older or newer version.
    """
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    try:
        present = MigrationContext.configure(connection).get_current_revision()
    except sa.exc.DatabaseError as error:
        raise NoBoardError(f"the database cannot be read: {error.orig}") from None
    head = ScriptDirectory(str(MIGRATIONS)).get_current_head()
    if present is None:
        raise NoBoardError("the database contains no board: its tables are missing")
    if present != head:
        raise NoBoardError(
            f"the database must have this program's version {head}, got {present}: run `reveal-leaderboard migrate` "
            "first, or audit it with the program that created it"
        )


Heads = Mapping[str, tuple[int, str]]
"""Name of a chain -> (length, last hash)."""


def audit(connection: sa.Connection, *, blobs: Blobs | None = None, kept: Heads | None = None) -> AuditReport:
    """Return the audit report of a database; `connection` must see one snapshot (:func:`opened_to_read`,
    ``store.read()``).

    Parameters
    ----------
    blobs : the stored uploads; None to skip their check, which is much faster
    kept : heads of an earlier report, which the chains must contain
    """
    chain = _Chain()
    steps: list[tuple[str, Callable[[], Iterable[str]]]] = [
        ("database", lambda: _pages(connection)),
        ("events", lambda: verify_events(connection)),
        ("records", lambda: verify_records(connection)),
        ("receipts", lambda: chain.verify(connection)),
        ("scores", lambda: _scores(connection, chain)),
        ("submissions", lambda: _statuses(connection)),
        ("submissions", lambda: _readings(connection)),
        ("ledger", lambda: _ledger(connection)),
        ("ledger", lambda: _grants(connection)),
    ]
    if blobs is not None:
        steps.append(("uploads", lambda: _uploads(connection, blobs)))
    for name, head in (kept or {}).items():
        steps.append((name, partial(_goes_on, connection, name, *head)))
    problems = [AuditProblem(area, text) for area, step in steps for text in _format_problems(step)]
    counts: dict[str, int | None] = {
        table.name: _count(connection, table) for table in (events, receipts, scores, submissions, ledger)
    }
    counts["uploads"] = None
    heads: dict[str, tuple[int, str]] = {}
    with suppress(sa.exc.SQLAlchemyError):  # unreadable tables were already reported
        heads = {
            row.name: (row.length, row.head) for row in connection.execute(sa.select(chains).order_by(chains.c.name))
        }
        counts["uploads"] = None if blobs is None else len(stored_names(connection)[0])
    return AuditReport(tuple(problems), counts, heads, tuple(chain.keys))


def read_heads(text: str) -> dict[str, tuple[int, str]]:
    """Return the heads in an earlier report, as :meth:`AuditReport.to_json` writes it, or in a backup's manifest.

    Raises
    ------
    ValueError
        If the text is not an audit report.
    """
    try:
        document = json.loads(text)
        heads = document.get("audit", document)["heads"]
        return {name: (int(heads[name]["length"]), str(heads[name]["hash"])) for name in _CHAINED}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError("must be a report of `audit --json` with the heads of both chains") from None


_CHAINED = {"events": events, "receipts": receipts}


def _goes_on(connection: sa.Connection, name: str, length: int, head: str) -> Iterator[str]:
    """Check that a chain contains the head of an earlier report."""
    table = _CHAINED[name]
    current = connection.execute(sa.select(table.c.hash).where(table.c.id == length)).scalar_one_or_none()
    if current is None and length:
        yield f"the chain ends before number {length}, which an earlier report contains: entries are lost"
    elif length and current != head:
        yield f"the hash of number {length} differs from an earlier report: the chain was rewritten"


def _format_problems(step: Callable[[], Iterable[str]]) -> Iterator[str]:
    """Yield the problems that a check reports, and a further problem if the check cannot read all of its data."""
    try:
        yield from step()
    except (sa.exc.SQLAlchemyError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        yield f"cannot be read to the end: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def _count(connection: sa.Connection, table: sa.Table) -> int | None:
    try:
        return int(connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())
    except sa.exc.SQLAlchemyError:
        return None


def _pages(connection: sa.Connection) -> Iterator[str]:
    """Yield damage that SQLite finds in its file, including parts that no other check reads, such as indexes."""
    if connection.dialect.name == "sqlite":
        messages = connection.exec_driver_sql("PRAGMA integrity_check").scalars()
        lines = (line for text in messages for line in text.splitlines())
        yield from (line for line in lines if line != "ok" and not line.startswith("*** in database "))


def _uploads(connection: sa.Connection, blobs: Blobs) -> Iterator[str]:
    names, predictions = stored_names(connection)
    yield from _stored(blobs, "upload", names)
    yield from _stored(blobs, "predictions", {name for name in predictions if blobs.exists(name)})


@dataclass
class _Chain:
    """Checks the receipts in order, and records the score that each receipt belongs to."""

    of: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    _last_key: dict[tuple[str, str], str] = field(default_factory=dict)

    def verify(self, connection: sa.Connection) -> Iterator[str]:
        n, head = 0, GENESIS
        query = sa.select(receipts).order_by(receipts.c.id).execution_options(yield_per=500)
        for row in connection.execute(query):
            receipt = StoredReceipt(**row._mapping)
            if receipt.id != n + 1:
                yield f"receipt {n + 1} is missing: the next receipt is {receipt.id}"
            elif receipt.previous != head:
                yield f"receipt {receipt.id} does not follow receipt {n}"
            yield from self._verify_one(receipt)
            n, head = receipt.id, receipt.hash
        end = connection.execute(sa.select(chains.c.length, chains.c.head).where(chains.c.name == "receipts")).first()
        if end is None:
            yield "the chain of receipts has no recorded end"
        elif tuple(end) != (n, head):
            yield f"the chain must end with receipt {end.length} ({end.head[:12]}), but ends with {n}"

    def _verify_one(self, receipt: StoredReceipt) -> Iterator[str]:
        try:
            claims = dict(verify_receipt(receipt.to_file()).receipt)
        except (ReceiptError, ValueError) as error:
            yield f"receipt {receipt.id}: {error}"
            return
        row = (receipt.id, receipt.submission_id, receipt.version, receipt.part, receipt.key_id, receipt.previous)
        names = ("number", "submission", "version", "part", "key_id", "previous")
        if row != tuple(claims[name] for name in names):
            yield f"receipt {receipt.id} does not match its row"
        self.of[receipt.submission_id, receipt.version, receipt.part] = claims
        self.keys.setdefault(claims["key_id"], claims["public_key"])
        yield from self._follow_key(receipt, claims)

    def _follow_key(self, receipt: StoredReceipt, claims: dict[str, Any]) -> Iterator[str]:
        """Check that the previous key of the version signed the new key, if the key changed."""
        before = self._last_key.get((claims["benchmark"], claims["version"]))
        if before is not None and before != claims["public_key"]:
            try:
                verify_receipt(receipt.to_file(), before)
            except ReceiptError:
                yield (
                    f"receipt {receipt.id} is signed with key {claims['key_id']}, "
                    f"for which the key before it on {claims['benchmark']} {claims['version']} did not sign"
                )
        self._last_key[claims["benchmark"], claims["version"]] = claims["public_key"]


def _scores(connection: sa.Connection, chain: _Chain) -> Iterator[str]:
    """Compare every score with its receipt, including scores that are not shown yet."""
    checked = set()
    facts_of = submissions.c["sha256", "model_name", "benchmark", "allow_missing"]
    query = (
        sa.select(scores, teams.c.name.label("team"))
        .add_columns(*facts_of)
        .select_from(scores)
        .join(submissions, submissions.c.id == scores.c.submission_id)
        .join(teams, teams.c.id == submissions.c.team_id)
    )
    for score in connection.execute(query.order_by(scores.c.submission_id, scores.c.version)):
        place = (score.submission_id, score.version, score.part)
        name = f"submission {score.submission_id} on {score.version}, {score.part} part"
        checked.add(place)
        claims = chain.of.get(place)
        if claims is None:
            # A switch of versions copies the displayed scores of a held-back submission.
            is_copied = (score.shown_of, score.version, score.part) in chain.of
            if score.shown_of == score.submission_id or not is_copied:
                yield f"{name}: its score has no receipt"
            continue
        facts = {
            "released": exact(score.released),
            "shown_of": None if score.shown_of == score.submission_id else score.shown_of,
            "metric_signature": score.signature,
            "reference_hash": score.reference_hash,
            "file_sha256": score.sha256,
            "team": score.team,
            "model": score.model_name,
            "benchmark": score.benchmark,
            "allow_missing": score.allow_missing,
            "time": iso_time(score.scored_at),
        }
        for what, value in facts.items():
            if claims[what] != value:
                yield f"{name}: `{what}` differs from its receipt"
    for submission_id, version, part in sorted(set(chain.of) - checked):
        yield f"submission {submission_id} on {version}, {part} part: there is a receipt, but no score"


def _statuses(connection: sa.Connection) -> Iterator[str]:
    query = sa.select(events.c.subject, events.c.from_status, events.c.to_status)
    rows = connection.execute(
        query.where(events.c.subject.like("submission:%")).order_by(events.c.subject, events.c.id)
    )
    stand = {subject: _follow(list(steps)) for subject, steps in groupby(rows, key=lambda row: row.subject)}
    columns = (submissions.c[name] for name in ("id", "status", "withdrawn_at", "hidden_at"))
    for row in connection.execute(sa.select(*columns).order_by(submissions.c.id)):
        name = f"submission {row.id}"
        followed = stand.pop(f"submission:{row.id}", None)
        if followed is None:
            yield f"{name} has no events"
            continue
        status, is_withdrawn, is_hidden = followed
        if status != row.status:
            yield f"{name} is {row.status}, but its events imply {status}"
        if is_withdrawn != (row.withdrawn_at is not None):
            yield f"{name} is {'' if is_withdrawn else 'not '}withdrawn by its events, its row says otherwise"
        if is_hidden != (row.hidden_at is not None):
            yield f"{name} is {'' if is_hidden else 'not '}hidden by its events, its row says otherwise"
    for subject in sorted(stand):
        yield f"{subject.replace(':', ' ')} has events, but does not exist"


def _follow(steps: list[Any]) -> tuple[str | None, bool, bool]:
    """Return (status, is withdrawn, is hidden) after all events; a scored submission stays scored when withdrawn."""
    status, is_withdrawn, is_hidden = None, False, False
    for step in steps:
        if step.to_status in STATUSES and (step.from_status, step.to_status) != ("scored", "withdrawn"):
            status = step.to_status
        if step.to_status == "withdrawn":
            is_withdrawn = True
        elif step.from_status == "withdrawn" and step.to_status in STATUSES:
            is_withdrawn = False
        if step.to_status in ("hidden", "restored"):
            is_hidden = step.to_status == "hidden"
    return status, is_withdrawn, is_hidden


def _readings(connection: sa.Connection) -> Iterator[str]:
    """Compare the ratings of every rated submission with the digest in its event."""
    query = sa.select(events.c.subject, events.c.why).where(events.c.from_status == "reading")
    last = {row.subject: row.why for row in connection.execute(query.order_by(events.c.id))}
    for subject, why in sorted(last.items()):
        if why.startswith(READ_TO_THE_END):
            submission_id = subject.partition(":")[2]
            if not why.endswith(digest_of(ratings_of(connection, submission_id))):
                yield f"submission {submission_id}: its ratings differ from those with which it was scored"


def _ledger(connection: sa.Connection) -> Iterator[str]:
    sendings: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    of: dict[str, set[tuple[str, str, str]]] = defaultdict(set)
    for row in connection.execute(sa.select(ledger).order_by(ledger.c.id)):
        is_right = row.amount < 0 if row.kind == "granted" else row.amount == AMOUNTS[row.kind]
        if not is_right or (row.submission_id is None) != (row.kind == "granted"):
            yield f"ledger row {row.id} is {row.kind} with the amount {row.amount}, which is impossible"
        if row.submission_id is not None:
            sendings[row.submission_id][row.sending].add(row.kind)
            of[row.submission_id].add((row.team_id, row.benchmark, row.version))
    columns = submissions.c["id", "status", "team_id", "benchmark", "version"]
    for submission in connection.execute(sa.select(*columns).order_by(submissions.c.id)):
        name, kinds = f"submission {submission.id}", sendings[submission.id]
        if of[submission.id] - {tuple(submission)[2:]}:
            yield f"{name}: the ledger has entries of this submission under another team, benchmark or version"
        if sorted(kinds) != list(range(1, len(kinds) + 1)) or not kinds:
            yield f"{name}: the ledger must number its reservations from 1, got {sorted(kinds)}"
            continue
        *earlier, last = (kinds[number] for number in sorted(kinds))
        if any(one != {"reserved", "refunded"} for one in earlier):
            yield f"{name}: the team sent it again, although the earlier reservation was not refunded"
        if last not in ENDS.get(submission.status, ()):
            yield f"{name} is {submission.status}, but the ledger says {', '.join(sorted(last))}"


def _grants(connection: sa.Connection) -> Iterator[str]:
    """Compare the grants in the ledger with their events."""
    rows = connection.execute(sa.select(ledger).where(ledger.c.kind == "granted"))
    granted = Counter(
        (f"team:{row.team_id}", row.who, granted_words(-row.amount, row.benchmark, row.version, row.why))
        for row in rows
    )
    query = sa.select(events.c.subject, events.c.who, events.c.why).where(events.c.to_status == "granted")
    known = Counter(tuple(row) for row in connection.execute(query))
    for subject, _, grant_text in sorted((granted - known).elements()):
        yield f"{subject.replace(':', ' ')} was granted {grant_text!r} without an event"
    for subject, _, grant_text in sorted((known - granted).elements()):
        yield f"{subject.replace(':', ' ')} was granted {grant_text!r} by an event, but not in the ledger"


def _stored(blobs: Blobs, what: str, names: set[str]) -> Iterator[str]:
    for sha256 in sorted(names):
        try:
            with blobs.open_local(sha256):
                pass
        except FileNotFoundError:
            yield f"{what} {sha256} is not stored"
        except (OSError, ValueError) as error:
            yield f"{what} {sha256}: {error}"
