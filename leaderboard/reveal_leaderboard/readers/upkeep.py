"""Maintainer's functions of the readers' app: progress, reassignment of unread items, export of answers.

Only :func:`export_answers` shows answers. A vote is an answer about the labels. ``cannot_read`` is counted separately:
it is not a vote, so the study still lacks one.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from reveal_bench.curation.assign import reassign
from reveal_bench.curation.tables import Assignment, write_table
from reveal_bench.files import replacing, write_whole
from reveal_leaderboard.boards.exports import harmless
from reveal_leaderboard.readers.forms import SCORED
from reveal_leaderboard.readers.store import CANNOT_READ, ReaderAnswer, Readings
from reveal_leaderboard.store.ratings import COLUMNS as RATING_COLUMNS
from reveal_leaderboard.store.tables import CRITERIA

VOTE_COLUMNS = ("study", "reader", "answer", "comment", "labels")
ERROR_COLUMNS = ("id", "finding", "reader", "category", "comment")


@dataclass(frozen=True, slots=True)
class ReaderProgress:
    """A reader's progress.

    Progress of a reader; `state` is "open", "stopped" (by the reader) or "closed" (by the maintainer).
    """

    reader: str
    assigned: int
    answered: int
    not_readable: int
    state: str

    @property
    def left(self) -> int:
        """Number of items without an answer."""
        return self.assigned - self.answered


@dataclass(frozen=True, slots=True)
class RoomProgress:
    """Progress of all readers by name, the number of items by number of votes, and the number of reassignments
    (`version`).
    """

    readers: tuple[ReaderProgress, ...]
    items_by_votes: Mapping[int, int]
    version: int


@dataclass(frozen=True, slots=True)
class Reassignment:
    """Result of a reassignment: `version` of the new lists, number of moved readings, and items without enough readers,
    each as often as a reader is missing.
    """

    version: int
    n_moved: int
    missing: tuple[str, ...]


def progress(readings: Readings) -> RoomProgress:
    """Return the progress of all readers, without answers."""
    listed, answers, marks = readings.listed(), readings.all_answers(), readings.last_marks()
    assigned = Counter(reader for reader, _, _ in listed)
    answered = Counter(one.reader for one in answers)
    blank = Counter(one.reader for one in answers if one.answer == CANNOT_READ)
    states = {"stop": "stopped", "close": "closed"}
    names = sorted({*assigned, *readings.readers()})
    votes = Counter(one.item for one in answers if one.answer != CANNOT_READ)
    tally = Counter(votes[item] for item in {item for _, _, item in listed})
    rows = (ReaderProgress(n, assigned[n], answered[n], blank[n], states.get(marks.get(n, ""), "open")) for n in names)
    return RoomProgress(tuple(rows), {n: tally[n] for n in sorted(tally)}, readings.version())


def reassign_items(readings: Readings, capacities: Mapping[str, int], *, allow_missing: bool = False) -> Reassignment:
    """Reassign the open items of readers who stopped (:func:`reveal_bench.curation.assign.reassign`).

    Parameters
    ----------
    capacities : reader -> maximum number of studies in total; capacities may be raised, and readers added
    allow_missing : True to drop readings for which no reader has capacity

    Raises
    ------
    ValueError
        If no reader has stopped, a remaining reader has no capacity, or a reading finds no reader. Then nothing
        changes.
    """
    version = readings.version() + 1
    results: list[Reassignment] = []

    def plan(
        listed: Sequence[tuple[str, int, str]], answers: Sequence[ReaderAnswer], marks: Mapping[str, str]
    ) -> Sequence[tuple[str, int, str]]:
        stopped = sorted(reader for reader, kind in marks.items() if kind in ("stop", "close"))
        if not stopped:
            raise ValueError("nothing to reassign: no reader has stopped")
        before = [Assignment(reader, position, item) for reader, position, item in listed]
        votes = [(one.item, one.reader) for one in answers if one.answer != CANNOT_READ]
        read = {*votes, *((one.item, one.reader) for one in answers if one.reader not in stopped)}
        rng = np.random.default_rng([readings.seed, version, *sha256(b"hand on").digest()[:8]])
        after = reassign(before, read, capacities, stopped, rng)
        if after.missing and not allow_missing:
            raise ValueError(
                f"{len(after.missing):,} readings find no reader with capacity, the first of {after.missing[0]}: raise "
                "capacities or add readers; or drop these readings with `--allow-missing` (`allow_missing=True`)"
            )
        results.append(Reassignment(version, after.n_moved, after.missing))
        return [(one.reader, one.position, one.study_id) for one in after.assignments]

    readings.relist(plan)
    return results[0]


def export_answers(readings: Readings, out: Path) -> int:
    """Write the current answers as CSV, and return their number.

    Comments are escaped by :func:`harmless`. Votes: the format of ``reveal-bench curate import-votes``. Errors: one
    line per reader and miss, and one line without a reader per partial hit, since readers are not shown partial hits.
    Rubric: the format of ``reveal-leaderboard admin ratings``; answers that were marked unreadable are left out.
    """
    columns, rows_of = EXPORTS[readings.form]
    rows = rows_of(readings)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(columns)
    writer.writerows(rows)
    write_whole(out, text.getvalue().encode(), private=True)  # because votes are labels of a future holdout
    return len(rows)


def export_assignments(readings: Readings, out: Path) -> int:
    """Write the current lists for ``import-votes --reassigned``, and return the number of reassignments."""
    with replacing(out) as new:
        write_table(new, [Assignment(reader, n, item) for reader, n, item in readings.listed()], Assignment)
    return readings.version()


def _vote_rows(readings: Readings) -> list[tuple[str, ...]]:
    votes = [one for one in readings.all_answers() if one.answer != CANNOT_READ]
    return [(one.item, one.reader, one.answer, harmless(one.comment), _labels(one)) for one in votes]


def _labels(answer: ReaderAnswer) -> str:
    if answer.details is None:
        return ""
    return "; ".join(answer.details) or "None"


def _error_rows(readings: Readings) -> list[tuple[str, ...]]:
    content = readings.all_items()
    rows = [
        (one.item, content[one.item]["finding"], one.reader, one.answer, harmless(one.comment))
        for one in readings.all_answers()
    ]
    rows += [(item, one["finding"], "", "partial_hit", "") for item, one in content.items() if one.get("is_partial")]
    return sorted(rows)


def _rating_rows(readings: Readings) -> list[tuple[str, ...]]:
    scored = [one for one in readings.all_answers() if one.answer == SCORED]
    return [(one.item, one.reader, *(str(one.details.get(name, "")) for name in CRITERIA)) for one in scored]


EXPORTS: dict[str, tuple[Sequence[str], Callable[[Readings], list[tuple[str, ...]]]]] = {
    "votes": (VOTE_COLUMNS, _vote_rows),
    "errors": (ERROR_COLUMNS, _error_rows),
    "rubric": (RATING_COLUMNS, _rating_rows),
}
"""Form -> columns of its export, and function that yields the lines."""
